package deviceplugin

import (
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"slices"
	"strings"

	"github.com/tandem-gpu/tandem/internal/agent/cdi"
	"github.com/tandem-gpu/tandem/pkg/vgpu"
)

// Surroundings is what a container needs beside the device files.
type Surroundings struct {
	Env    []string
	Mounts []cdi.Mount
}

// renderer turns a container's assignment into what the container runtime adds.
type renderer struct {
	devRoot string
	sharing Sharing
}

// controlFiles serve all devices. The driver creates the unified-memory files late and not everywhere.
var controlFiles = []string{"nvidiactl", "nvidia-uvm", "nvidia-uvm-tools"}

// render returns the part of the edits that follows from the assignment: the files of its devices, their UUIDs in the
// environment and, for a share of a device, the surroundings of sharing. Whole devices are used without MPS: nobody else
// is on them, and a process has one pipe directory only.
func (r renderer) render(c vgpu.ContainerAssignment, devices []device) (cdi.Edits, error) {
	var edits cdi.Edits
	ids := make([]string, 0, len(c.Devices))
	var last *device
	for _, id := range c.Devices {
		d := find(devices, string(id))
		if d == nil {
			return cdi.Edits{}, fmt.Errorf("render container %s: the node has no device %s", c.Name, id)
		}
		nodes, err := r.files(d)
		if err != nil {
			return cdi.Edits{}, fmt.Errorf("render container %s: device file of g%d (%s): %w", c.Name, d.Index, d.ID, err)
		}
		for _, node := range nodes {
			if !slices.Contains(edits.Devices, node) { // MIG instances of one GPU share its file
				edits.Devices = append(edits.Devices, node)
			}
		}
		ids = append(ids, d.ID)
		last = d
	}
	for _, name := range controlFiles {
		node, err := r.file(name)
		switch {
		case err == nil:
			edits.Devices = append(edits.Devices, node)
		case !errors.Is(err, fs.ErrNotExist):
			return cdi.Edits{}, fmt.Errorf("render container %s: %w", c.Name, err)
		}
	}
	visible := strings.Join(ids, ",")
	edits.Env = []string{runtimeDevices + visible, cudaDevices + visible}
	if needsSharing(c, last) {
		s := r.sharing.Client(Client{
			Device:              last.ID,
			ComputeLimitPercent: int(c.Share.ComputeLimit * 100 / vgpu.WholeGPU),
			MemoryLimit:         int64(c.Share.MemoryLimit),
		})
		edits.Env = append(edits.Env, s.Env...)
		edits.Mounts = s.Mounts
	}
	return edits, nil
}

// needsSharing reports whether the container's share of d is served by MPS.
func needsSharing(c vgpu.ContainerAssignment, d *device) bool {
	return d != nil && len(c.Devices) == 1 && int(c.Share.Slots) < d.Slots && d.shared()
}

// files returns the device files of a device; for a MIG instance those of its GPU and of its capabilities.
func (r renderer) files(d *device) ([]cdi.DeviceNode, error) {
	names := []string{fmt.Sprintf("nvidia%d", d.Minor)}
	if d.Parent != "" {
		capabilities, err := capabilityFiles(r.devRoot, d)
		if err != nil {
			return nil, err
		}
		names = append(names, capabilities...)
	}
	nodes := make([]cdi.DeviceNode, 0, len(names))
	for _, name := range names {
		node, err := r.file(name)
		if err != nil {
			return nil, err
		}
		nodes = append(nodes, node)
	}
	return nodes, nil
}

// file returns the device file /dev/<name> of the container with its path on the host. The runtime follows no symbolic
// links.
func (r renderer) file(name string) (cdi.DeviceNode, error) {
	host, err := filepath.EvalSymlinks(filepath.Join(r.devRoot, "dev", name))
	if err != nil {
		return cdi.DeviceNode{}, err
	}
	return cdi.DeviceNode{Host: host, Container: "/dev/" + name}, nil
}

func find(devices []device, id string) *device {
	for i := range devices {
		if devices[i].ID == id {
			return &devices[i]
		}
	}
	return nil
}
