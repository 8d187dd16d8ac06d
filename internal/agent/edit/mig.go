package edit

import (
	"bufio"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/tandem-gpu/tandem/internal/agent/inventory"
)

// migMinors is where the driver says which minor number each MIG capability has, one "gpu0/gi3/access 12" a line. Source:
// NVIDIA Multi-Instance GPU User Guide, "Device Nodes and Capabilities".
const migMinors = "proc/driver/nvidia-caps/mig-minors"

// capabilityFiles returns the names, below /dev, of the device files that open a MIG instance: one for the GPU instance
// and one for the compute instance in it. It looks for the driver's list below the root, then in this system.
func capabilityFiles(root string, d *inventory.Device) ([]string, error) {
	list, err := os.Open(filepath.Join(root, migMinors))
	if errors.Is(err, fs.ErrNotExist) {
		list, err = os.Open(filepath.Join("/", migMinors))
	}
	if err != nil {
		return nil, err
	}
	defer func() { _ = list.Close() }()
	gpu := fmt.Sprintf("gpu%d/gi%d/", d.Minor, d.GI)
	wanted := []string{gpu + "access", fmt.Sprintf("%sci%d/access", gpu, d.CI)}
	names := make([]string, len(wanted))
	for lines := bufio.NewScanner(list); lines.Scan(); {
		name, minor, _ := strings.Cut(lines.Text(), " ")
		for i := range wanted {
			if name == wanted[i] {
				names[i] = "nvidia-caps/nvidia-cap" + minor
			}
		}
	}
	for i := range names {
		if names[i] == "" {
			return nil, fmt.Errorf("%s does not list %s", list.Name(), wanted[i])
		}
	}
	return names, nil
}
