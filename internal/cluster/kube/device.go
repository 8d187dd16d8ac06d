package kube

import (
	"fmt"
	"slices"

	"github.com/tandem-gpu/tandem/pkg/api/v1alpha1"
	"github.com/tandem-gpu/tandem/pkg/vgpu"
)

// linkClasses maps the words of the API to classes. A word that a newer agent writes and this table lacks is the worst
// link, so that an older scheduler still sees the device.
var linkClasses = map[v1alpha1.LinkType]vgpu.LinkClass{
	v1alpha1.LinkNVLink: vgpu.LinkNVLink,
	v1alpha1.LinkPIX:    vgpu.LinkPIX,
	v1alpha1.LinkPXB:    vgpu.LinkPXB,
	v1alpha1.LinkPHB:    vgpu.LinkPHB,
	v1alpha1.LinkNODE:   vgpu.LinkNODE,
	v1alpha1.LinkSYS:    vgpu.LinkSYS,
}

// Devices returns the devices of a node in the order of its GPUNode; those that are cordoned take no new shares, as if they were
// unhealthy. The checks are those of the CRD's schema, for clusters with another version of the schema.
func Devices(g *v1alpha1.GPUNode) ([]vgpu.Device, error) {
	devices := make([]vgpu.Device, 0, len(g.Status.Devices))
	seen := make(map[string]bool, len(g.Status.Devices))
	for i := range g.Status.Devices {
		d := &g.Status.Devices[i]
		converted, err := device(d)
		if err == nil && seen[d.ID] {
			err = fmt.Errorf("the ID %s stands twice", d.ID)
		}
		if err != nil {
			return nil, fmt.Errorf("read GPUNode %s: status.devices[%d]: %w", g.Name, i, err)
		}
		seen[d.ID] = true
		converted.Healthy = converted.Healthy && !Cordoned(g, d.ID)
		devices = append(devices, converted)
	}
	return devices, nil
}

// OffersAll reports whether a kubelet that offers so many slots offers those of all devices that take new shares. One that offers fewer would
// refuse pods, which fail for good.
func OffersAll(offered int64, devices []vgpu.Device) bool {
	for i := range devices {
		if devices[i].Healthy {
			offered -= int64(devices[i].Slots)
		}
	}
	return offered >= 0
}

// Cordoned reports whether an administrator has cordoned a device of a node.
func Cordoned(g *v1alpha1.GPUNode, id string) bool { return CordonOf(g, id) != nil }

// CordonOf returns how an administrator has cordoned a device of a node, nil where none has.
func CordonOf(g *v1alpha1.GPUNode, id string) *v1alpha1.CordonedDevice {
	at := slices.IndexFunc(g.Spec.CordonedDevices, func(d v1alpha1.CordonedDevice) bool { return d.ID == id })
	if at < 0 {
		return nil
	}
	return &g.Spec.CordonedDevices[at]
}

func device(d *v1alpha1.GPUDevice) (vgpu.Device, error) {
	memory, ok := Whole(d.Memory, MaxMemory)
	switch {
	case d.ID == "":
		return vgpu.Device{}, fmt.Errorf("the ID is empty")
	case !ok:
		return vgpu.Device{}, fmt.Errorf("memory %q is no whole number of bytes from 1 to 1Pi", Shown(d.Memory.String()))
	case d.Slots < 1 || d.Slots > 1000:
		return vgpu.Device{}, fmt.Errorf("slots %d are not from 1 to 1000", d.Slots)
	case d.Contexts < 0 || d.Index < 0:
		return vgpu.Device{}, fmt.Errorf("contexts %d or index %d is negative", d.Contexts, d.Index)
	}
	out := vgpu.Device{
		ID: vgpu.DeviceID(d.ID), Index: int(d.Index), Model: d.Model,
		Slots: vgpu.Slots(d.Slots), Memory: vgpu.Bytes(memory), Contexts: int(d.Contexts),
		Healthy: d.Health == v1alpha1.Healthy,
	}
	for _, l := range d.Links {
		out.Links = append(out.Links, vgpu.Link{
			Peer: vgpu.DeviceID(l.Peer), Class: linkClasses[l.Type], Lanes: int(l.Lanes),
		})
	}
	return out, nil
}
