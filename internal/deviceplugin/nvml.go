package deviceplugin

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/tandem-gpu/tandem/internal/nvml"
	"github.com/tandem-gpu/tandem/pkg/api/v1alpha1"
)

// reasonMIG is the Reason of a device in MIG mode, which cannot be shared as a whole.
const reasonMIG = "MIGEnabled"

// nvmlDriver is NVML as a Driver.
type nvmlDriver struct {
	library nvml.Driver
	// fixed holds devices that take no work whatever their health.
	fixed map[string]*Sickness
}

// FromNVML returns NVML as the agent's driver.
func FromNVML(library nvml.Driver) Driver {
	return &nvmlDriver{library: library, fixed: map[string]*Sickness{}}
}

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
		if d.MIG != nil {
			n.fixed[d.UUID] = &Sickness{Reason: reasonMIG, Message: "the device is split into MIG instances, which this release does not serve; turn MIG off to share it"}
		}
		gpus = append(gpus, GPU{
			ID: d.UUID, Index: d.Index, Minor: d.Minor, Model: d.Model, Memory: int64(d.Memory),
			ComputeMajor: d.Capability.Major, ComputeMinor: d.Capability.Minor,
			PCIBusID: d.PCIBusID, NUMANode: d.NUMANode,
			Contexts: nvml.MaxMPSContexts(d.Capability, n.library.CUDAVersion()),
			Links:    links(d.Links),
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
	if s := n.fixed[id]; s != nil {
		return s
	}
	h := n.library.Health(id)
	if h.OK() {
		return nil
	}
	return &Sickness{Reason: string(h.Reason), Message: fmt.Sprintf("NVML: %s", h.Message)}
}
