package testkit

import (
	"fmt"
	"strings"

	"github.com/tandem-gpu/tandem/pkg/vgpu"
)

// Draw writes a cluster as Parse reads it, without models and links.
func Draw(c *vgpu.Cluster) string {
	var b strings.Builder
	for _, n := range c.Nodes() {
		devices := make([]string, 0, len(n.Devices()))
		for i := range n.Devices() {
			devices = append(devices, drawDevice(n, i))
		}
		fmt.Fprintf(&b, "%s%s: %s\n", n.Name(), drawRoom(n.Room()), strings.Join(devices, " | "))
	}
	return b.String()
}

func drawDevice(n *vgpu.Node, i int) string {
	d := &n.Devices()[i]
	s := d.Name() + " " + d.Model
	if !d.Healthy {
		s += " sick"
	}
	var owners, holds []string
	for _, a := range n.Assignments() {
		owners = append(owners, drawShares(d, &a, "")...)
	}
	for _, h := range n.Holds() {
		holds = append(holds, drawShares(d, &h.Assignment, fmt.Sprintf("@%d", h.Priority))...)
	}
	if owners != nil {
		s += " [" + strings.Join(owners, " ") + "]"
	}
	if holds != nil {
		s += " (" + strings.Join(holds, " ") + ")"
	}
	return s
}

// drawShares writes the shares that a pod has of a device.
func drawShares(d *vgpu.Device, a *vgpu.Assignment, suffix string) []string {
	var shares []string
	for _, c := range a.Containers {
		for _, id := range c.Devices {
			if id != d.ID {
				continue
			}
			s := fmt.Sprintf("%s:%d", a.Pod, c.Share.Slots)
			if c.Share.Memory != vgpu.MemoryOf(d.Memory, c.Share.Slots, d.Slots) {
				s += "/" + c.Share.Memory.String()
			}
			shares = append(shares, s+kinds[c.Kind]+suffix)
		}
	}
	return shares
}

// kinds marks containers of other kinds than App.
var kinds = map[vgpu.ContainerKind]string{vgpu.Init: "~", vgpu.Sidecar: "+"}

// parseShare reads "3", "3/8Gi", and with the mark of a kind "3~" and "1+".
func parseShare(w string) (c vgpu.ContainerRequest, err error) {
	for kind, mark := range kinds {
		if share, ok := strings.CutSuffix(w, mark); ok {
			w, c.Kind = share, kind
		}
	}
	slots, memory, explicit := strings.Cut(w, "/")
	if _, err = fmt.Sscanf(slots, "%d", &c.Slots); err != nil {
		return c, fmt.Errorf("read share %q: %w", w, err)
	}
	if explicit {
		c.Memory, err = ParseBytes(memory)
	}
	return c, err
}
