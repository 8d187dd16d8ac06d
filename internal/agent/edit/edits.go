package edit

import (
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"slices"
	"strings"

	"github.com/tandem-gpu/tandem/internal/agent/cdi"
	"github.com/tandem-gpu/tandem/internal/agent/inventory"
	"github.com/tandem-gpu/tandem/internal/agent/sharing"
	"github.com/tandem-gpu/tandem/pkg/vgpu"
)

// Sharing says what a client of MPS needs.
type Sharing interface {
	// Client returns what a container needs to use its share of the device.
	Client(c sharing.Client) sharing.Surroundings
}

// Renderer turns a container's assignment into what the container runtime adds.
type Renderer struct {
	// DevRoot is the folder that has dev/nvidia* in it.
	DevRoot string
	Sharing Sharing
}

// ControlFiles serve all devices. The driver creates the unified-memory files late and not everywhere.
var ControlFiles = []string{"nvidiactl", "nvidia-uvm", "nvidia-uvm-tools"}

// Render returns the part of the edits that follows from the assignment: the files of its devices and their UUIDs in
// the environment. For a share of a device it adds the environment and mounts of MPS. A whole device needs no MPS: its
// container is alone on it, and a process has one pipe directory only.
func (r Renderer) Render(c vgpu.ContainerAssignment, devices []inventory.Device) (cdi.Edits, error) {
	var edits cdi.Edits
	ids := make([]string, 0, len(c.Devices))
	var last *inventory.Device
	for _, id := range c.Devices {
		d := inventory.Find(devices, string(id))
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
	for _, name := range ControlFiles {
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
	if inventory.NeedsSharing(c, last) {
		s := r.Sharing.Client(sharing.Client{
			Device:              last.ID,
			ComputeLimitPercent: int(c.Share.ComputeLimit * 100 / vgpu.WholeGPU),
			MemoryLimit:         int64(c.Share.MemoryLimit),
		})
		edits.Env = append(edits.Env, s.Env...)
		edits.Mounts = s.Mounts
	}
	return edits, nil
}

// files returns the device files of a device; for a MIG instance those of its GPU and of its capabilities.
func (r Renderer) files(d *inventory.Device) ([]cdi.DeviceNode, error) {
	names := []string{fmt.Sprintf("nvidia%d", d.Minor)}
	if d.Parent != "" {
		capabilities, err := capabilityFiles(r.DevRoot, d)
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
func (r Renderer) file(name string) (cdi.DeviceNode, error) {
	host, err := filepath.EvalSymlinks(filepath.Join(r.DevRoot, "dev", name))
	if err != nil {
		return cdi.DeviceNode{}, err
	}
	return cdi.DeviceNode{Host: host, Container: "/dev/" + name}, nil
}
