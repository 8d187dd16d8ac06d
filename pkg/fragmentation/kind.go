package fragmentation

import (
	"slices"
	"strings"

	"github.com/tandem-gpu/tandem/pkg/vgpu"
)

// KindOf returns the kind of a request, with weight 1. The containers of a pod count as one whose request is the
// largest use at a time. Such a kind may be legal on no device: then it loses all idle GPU everywhere.
func KindOf(r *vgpu.Request) Kind {
	models := make([]string, 0, len(r.Variants))
	for i := range r.Variants {
		models = append(models, r.Variants[i].Model)
	}
	slices.Sort(models)
	return Kind{
		MilliCPU: r.Host.MilliCPU, Memory: r.Host.Memory, Slots: r.PeakSlots(), Models: strings.Join(models, "|"), Weight: 1,
	}
}
