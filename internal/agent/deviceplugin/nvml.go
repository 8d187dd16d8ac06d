package deviceplugin

import (
	"cmp"
	"context"
	"fmt"
	"slices"

	"github.com/tandem-gpu/tandem/internal/agent/nvml"
	"github.com/tandem-gpu/tandem/pkg/api/v1alpha1"
)

// Reasons of devices that the driver does not answer for, beside NVML's own.
const (
	// reasonGPULost: the device has fallen off the bus.
	reasonGPULost = string(nvml.Lost)
	// reasonDriverError: NVML gave an error that tells nothing about the device.
	reasonDriverError = string(nvml.NotAnswering)
	// reasonDriverHangs: NVML gave no answer.
	reasonDriverHangs = "DriverNotAnswering"
)

// nvmlDriver is NVML as a Driver.
type nvmlDriver struct{ library nvml.Driver }

// FromNVML returns NVML as the agent's driver.
func FromNVML(library nvml.Driver) Driver { return &nvmlDriver{library: library} }

// GPUs lists the devices that have ever answered: one that was lost before has no UUID to serve it under.
func (n *nvmlDriver) GPUs() ([]GPU, error) {
	list, err := n.library.Devices()
	if err != nil {
		return nil, err
	}
	gpus := make([]GPU, 0, len(list))
	for _, d := range list {
		if d.UUID == "" {
			continue
		}
		gpus = append(gpus, GPU{
			ID: d.UUID, Index: d.Index, Minor: d.Minor, Model: d.Model, Memory: int64(d.Memory),
			ComputeMajor: d.Capability.Major, ComputeMinor: d.Capability.Minor,
			PCIBusID: d.PCIBusID, NUMANode: d.NUMANode,
			Contexts: nvml.MaxMPSContexts(d.Capability, n.library.CUDAVersion()),
			Links:    links(d.Links),
			Parent:   d.Parent, GI: d.GI, CI: d.CI,
		})
	}
	return gpus, nil
}

func links(list []nvml.Link) []v1alpha1.GPULink {
	out := make([]v1alpha1.GPULink, 0, len(list))
	for _, l := range list {
		out = append(out, v1alpha1.GPULink{Peer: l.Peer, Type: l.Type, Lanes: int32(l.Lanes)})
	}
	slices.SortFunc(out, func(a, b v1alpha1.GPULink) int { return cmp.Compare(a.Peer, b.Peer) })
	return out
}

func (n *nvmlDriver) Version() (string, error) { return n.library.DriverVersion(), nil }

func (n *nvmlDriver) Health(id string) error {
	h := n.library.Health(id)
	if h.OK() {
		return nil
	}
	return &Sickness{Reason: string(h.Reason), Message: fmt.Sprintf("NVML: %s", h.Message)}
}

func (n *nvmlDriver) Recovery(id string) recovery {
	action, ok := n.library.Recovery(id)
	switch {
	case !ok:
		return recoveryUnknown
	case action == nvml.RecoveryNone:
		return recoveryNone
	case action == nvml.RecoveryReset || action == nvml.RecoveryBusReset:
		return recoveryReset
	case action == nvml.RecoveryReboot:
		return recoveryReboot
	}
	return recoveryOther
}

func (n *nvmlDriver) Watch(ctx context.Context, report func(XID)) error {
	return n.library.Watch(ctx, func(e nvml.Event) {
		x := XID{Device: e.UUID, Number: e.XID, Class: xidApplication, Label: string(e.Class), More: max(e.Count-1, 0)}
		switch {
		case e.Class.NeedsReset():
			x.Class = xidReset
		case e.Class.Critical():
			x.Class = xidContained
		}
		report(x)
	})
}

func (n *nvmlDriver) Exclusive(id string) (bool, error) {
	mode, err := n.library.ComputeMode(id)
	if err == nil && mode != nvml.ModeDefault && mode != nvml.ModeExclusiveProcess {
		err = fmt.Errorf("compute mode of %s: it is neither DEFAULT nor EXCLUSIVE_PROCESS", id)
	}
	return mode == nvml.ModeExclusiveProcess, err
}

func (n *nvmlDriver) SetExclusive(id string, on bool) error {
	if on {
		return n.library.SetComputeMode(id, nvml.ModeExclusiveProcess)
	}
	return n.library.SetComputeMode(id, nvml.ModeDefault)
}

// Sample measures the use of a device.
func (n *nvmlDriver) Sample(id string) (nvml.Sample, error) { return n.library.Sample(id) }
