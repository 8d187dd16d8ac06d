package fragmentation

import (
	"slices"
	"strings"

	"github.com/tandem-gpu/tandem/pkg/vgpu"
)

// KindOf returns the kind of a request, with weight 1. The containers of a pod count as one whose request is the
// largest use at a time; where one of them states no memory, that container counts with none. Such a kind may be legal
// on no device: then it loses all idle GPU everywhere.
func KindOf(r *vgpu.Request) Kind {
	models := make([]string, 0, len(r.Variants))
	for i := range r.Variants {
		models = append(models, r.Variants[i].Model)
	}
	slices.Sort(models)
	var peak vgpu.Peak
	for i := range r.Containers {
		c := &r.Containers[i]
		peak.Add(c.Kind, vgpu.Use{Slots: c.Slots, Memory: c.Memory})
	}
	use := peak.Use()
	return Kind{
		MilliCPU: r.Host.MilliCPU, Memory: r.Host.Memory, Slots: use.Slots, DeviceMemory: use.Memory,
		Models: strings.Join(models, "|"), Weight: 1,
	}
}
