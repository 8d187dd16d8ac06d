package e2e

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"strings"

	"github.com/google/go-cmp/cmp"
	v1 "k8s.io/api/core/v1"

	"github.com/tandem-gpu/tandem/internal/cluster/kube"
	"github.com/tandem-gpu/tandem/pkg/api/v1alpha1"
)

// podLogs is where the kubelet has the containers' output written.
const podLogs = "/var/log/pods"

// given is what a container found in its environment and under /dev.
type given struct {
	env     map[string]string
	devices map[string]string // path to number
	mounts  map[string]string // mount point to the source of the mount, inside of its file system
	memory  int64             // size of the file system at /dev/shm, in bytes
}

// given waits until the container has logged what it got. The words come from inside of the container, not from
// anything that the agent or the kubelet says about it.
func (n *Tenant) given(pod *v1.Pod, container string) given {
	n.t.Helper()
	path := filepath.Join(logsOf(pod, container), "0.log")
	var g given
	n.await("the words of container "+container, func(context.Context) error {
		log, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		g, err = parseGiven(string(log))
		return err
	})
	return g
}

// logsOf is the folder of a container's logs: one for each of its lives, the first 0.log.
func logsOf(pod *v1.Pod, container string) string {
	return filepath.Join(podLogs, fmt.Sprintf("%s_%s_%s", pod.Namespace, pod.Name, pod.UID), container)
}

// parseGiven reads a log in the format of the CRI: time, stream, F, text.
func parseGiven(log string) (given, error) {
	g := given{env: map[string]string{}, devices: map[string]string{}, mounts: map[string]string{}}
	for line := range strings.Lines(log) {
		fields := strings.SplitN(strings.TrimSuffix(line, "\n"), " ", 4)
		if len(fields) < 4 {
			continue
		}
		text := fields[3]
		if text == "told" {
			return g, nil
		}
		if file, ok := strings.CutPrefix(text, "device "); ok {
			path, number, _ := strings.Cut(file, " ")
			g.devices[path] = number
			continue
		}
		if mount, ok := strings.CutPrefix(text, "mount "); ok {
			point, root, _ := strings.Cut(mount, " ")
			g.mounts[point] = root
			continue
		}
		if memory, ok := strings.CutPrefix(text, "memory "); ok {
			var err error
			if g.memory, err = bytesOf(memory); err != nil {
				return given{}, err
			}
			continue
		}
		name, value, _ := strings.Cut(text, "=")
		g.env[name] = value
	}
	return given{}, errors.New("it has not told all yet")
}

// assignment decodes the pod's assignment.
func (n *Tenant) assignment(pod *v1.Pod) v1alpha1.Assignment {
	n.t.Helper()
	a, err := kube.DecodeAssignment(pod.Annotations[v1alpha1.AnnotationAssignment])
	n.must(err)
	return a
}

// checkShares fails the test where a container of the pod differs from its assignment.
func (n *Tenant) checkShares(pod *v1.Pod) {
	n.t.Helper()
	for _, c := range n.assignment(pod).Containers {
		got := n.given(pod, c.Name)
		if diff := cmp.Diff(deviceFiles(c.Devices), got.devices); diff != "" {
			n.t.Errorf("pod %s, container %s: device files (-want +got):\n%s", pod.Name, c.Name, diff)
		}
		if diff := cmp.Diff(limits(c), got.limits()); diff != "" {
			n.t.Errorf("pod %s, container %s: environment (-want +got):\n%s", pod.Name, c.Name, diff)
		}
		if sharesMemory(c) != (got.memory == sharedMemorySize) {
			n.t.Errorf("pod %s, container %s: %d bytes of shared memory; the clients of MPS have %d, and nobody else has", pod.Name, c.Name, got.memory, int64(sharedMemorySize))
		}
	}
}

// sharesMemory reports whether a container with the assignment is a client of MPS, which shares memory with its server.
func sharesMemory(c v1alpha1.ContainerAssignment) bool {
	return len(c.Devices) == 1 && c.Slots < slotsPerGPU
}

// bytesOf reads a number of blocks and the size of one.
func bytesOf(text string) (int64, error) {
	var blocks, size int64
	if _, err := fmt.Sscanf(text, "%d %d", &blocks, &size); err != nil {
		return 0, fmt.Errorf("read size of a file system, %q: %w", text, err)
	}
	return blocks * size, nil
}

// limits returns the environment that a container with the assignment must have. The agent chooses the path of the pipe
// directory; the test checks that the folder of the container's own device is mounted by it.
func limits(c v1alpha1.ContainerAssignment) map[string]string {
	visible := strings.Join(c.Devices, ",")
	env := map[string]string{"NVIDIA_VISIBLE_DEVICES": visible, "CUDA_VISIBLE_DEVICES": visible}
	if sharesMemory(c) {
		env["CUDA_MPS_PIPE_DIRECTORY"] = visible
		env["CUDA_MPS_ACTIVE_THREAD_PERCENTAGE"] = fmt.Sprint(c.ComputeLimitPercent)
		env["CUDA_MPS_PINNED_DEVICE_MEM_LIMIT"] = fmt.Sprintf("%s=%dM", visible, c.MemoryLimitBytes>>20)
	}
	return env
}

// limits returns the environment, with the device of the mounted folder in place of the path of the pipe directory.
func (g given) limits() map[string]string {
	env := maps.Clone(g.env)
	mounted := g.mounts[env["CUDA_MPS_PIPE_DIRECTORY"]]
	for index := range gpus {
		if strings.Contains(mounted, uuid(index)) {
			env["CUDA_MPS_PIPE_DIRECTORY"] = uuid(index)
		}
	}
	return env
}

// slots returns the devices whose slots the kubelet gave to the container, from the kubelet's own checkpoint. The slots
// are tokens only, and may differ from the assignment.
func (n *Tenant) slots(pod *v1.Pod, container string) map[string]int {
	n.t.Helper()
	raw, err := os.ReadFile(filepath.Join(kubeletDir, "device-plugins", "kubelet_internal_checkpoint"))
	n.must(err)
	var checkpoint struct {
		Data struct {
			PodDeviceEntries []struct {
				PodUID, ContainerName, ResourceName string
				DeviceIDs                           map[string][]string
			}
		}
	}
	n.must(json.Unmarshal(raw, &checkpoint))
	devices := map[string]int{}
	for _, e := range checkpoint.Data.PodDeviceEntries {
		if e.PodUID != string(pod.UID) || e.ContainerName != container || e.ResourceName != v1alpha1.ResourceVGPU {
			continue
		}
		for _, ids := range e.DeviceIDs {
			for _, id := range ids {
				device, _, _ := strings.Cut(id, v1alpha1.SlotSeparator)
				devices[device]++
			}
		}
	}
	if len(devices) == 0 {
		n.t.Fatalf("the kubelet's checkpoint knows nothing of pod %s, container %s", pod.Name, container)
	}
	return devices
}
