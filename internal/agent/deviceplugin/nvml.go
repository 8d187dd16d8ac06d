package deviceplugin

import (
	"cmp"
	"context"
	"fmt"
	"slices"

	"github.com/tandem-gpu/tandem/internal/agent/health"
	"github.com/tandem-gpu/tandem/internal/agent/inventory"
	"github.com/tandem-gpu/tandem/internal/agent/nvml"
	"github.com/tandem-gpu/tandem/pkg/api/v1alpha1"
)

// nvmlDriver is NVML as a Driver.
type nvmlDriver struct{ library nvml.Driver }

// FromNVML returns NVML as the agent's driver.
func FromNVML(library nvml.Driver) Driver { return &nvmlDriver{library: library} }

// GPUs lists the devices that have ever answered: NVML gives no UUID for one that was lost before.
func (n *nvmlDriver) GPUs() ([]inventory.GPU, error) {
	list, err := n.library.Devices()
	if err != nil {
		return nil, err
	}
	gpus := make([]inventory.GPU, 0, len(list))
	for _, d := range list {
		if d.UUID == "" {
			continue
		}
		gpus = append(gpus, inventory.GPU{
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
	return &inventory.Sickness{Reason: string(h.Reason), Message: fmt.Sprintf("NVML: %s", h.Message)}
}

func (n *nvmlDriver) Recovery(id string) health.Recovery {
	action, ok := n.library.Recovery(id)
	switch {
	case !ok:
		return health.RecoveryUnknown
	case action == nvml.RecoveryNone:
		return health.RecoveryNone
	case action == nvml.RecoveryReset || action == nvml.RecoveryBusReset:
		return health.RecoveryReset
	case action == nvml.RecoveryReboot:
		return health.RecoveryReboot
	}
	return health.RecoveryOther
}

func (n *nvmlDriver) Watch(ctx context.Context, report func(health.XID)) error {
	return n.library.Watch(ctx, func(e nvml.Event) {
		x := health.XID{Device: e.UUID, Number: e.XID, Class: health.XIDApplication, Label: string(e.Class), More: max(e.Count-1, 0)}
		switch {
		case e.Class.NeedsReset():
			x.Class = health.XIDReset
		case e.Class.Critical():
			x.Class = health.XIDContained
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
