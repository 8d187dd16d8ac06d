package fragmentation

import (
	"slices"
	"strings"

	"github.com/tandem-gpu/tandem/pkg/vgpu"
)

// KindOf returns what a request counts as among the usual ones, once. The containers of a pod count as one that asks for
// the most that they hold at a time. That may be legal on no device: then all that is idle is lost to the kind everywhere.
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
