package e2e

import (
	"fmt"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"
)

// memoryMajor is the major number of the kernel's memory devices. The devices stand for GPUs here because every kernel
// has them and every process may open them.
const memoryMajor = 1

// gpuMinors are /dev/null and /dev/zero: two devices that a container can distinguish by number, whatever their name.
func gpuMinors() [gpus]uint32 { return [gpus]uint32{3, 5} }

// makeDeviceFiles makes the device files of the node's GPUs under root.
func makeDeviceFiles(root string) error {
	dir := filepath.Join(root, "dev")
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return fmt.Errorf("make device files: %w", err)
	}
	minors := map[string]uint32{"nvidiactl": 3, "nvidia-uvm": 3}
	for index, minor := range gpuMinors() {
		minors[fmt.Sprintf("nvidia%d", index)] = minor
	}
	for name, minor := range minors {
		number := unix.Mkdev(memoryMajor, minor)
		if err := unix.Mknod(filepath.Join(dir, name), unix.S_IFCHR|0o666, int(number)); err != nil {
			return fmt.Errorf("make device file %s: %w", name, err)
		}
	}
	return nil
}

// deviceFiles returns the GPU files that a container with the devices must see, by path, each with its number as
// `stat -c %t:%T` prints it.
func deviceFiles(devices []string) map[string]string {
	files := map[string]string{}
	for index, minor := range gpuMinors() {
		for _, id := range devices {
			if id == uuid(index) {
				files[fmt.Sprintf("/dev/nvidia%d", index)] = fmt.Sprintf("%x:%x", memoryMajor, minor)
			}
		}
	}
	for _, name := range []string{"/dev/nvidiactl", "/dev/nvidia-uvm"} {
		files[name] = fmt.Sprintf("%x:%x", memoryMajor, 3)
	}
	return files
}
