package shadow

import (
	"github.com/tandem-gpu/tandem/pkg/interference"
	"github.com/tandem-gpu/tandem/pkg/vgpu"
)

// slowdowns returns how many of the pods on a device have a predicted slowdown, and the sum of these. A pod alone on its device has
// the slowdown 1. If there are several, all have one, or none: where the profile of one is missing, the slowdown of the others is a
// guess.
func (l *ledger) slowdowns(d *vgpu.Device, here []vgpu.Resident) (known, slowed float64) {
	if len(here) == 1 {
		return 1, 1
	}
	on := make([]interference.Tenant, 0, len(here))
	for i := range here {
		w := interference.Workload(here[i].Workload)
		if l.neighbours == nil || w == 0 || l.neighbours.Known != nil && !l.neighbours.Known(w) {
			return 0, 0
		}
		on = append(on, l.neighbours.Tenant(w, d.Model, here[i].Compute).Believed())
	}
	for _, p := range l.neighbours.Model.Predict(on, nil) {
		slowed += max(1, p.Slowdown())
	}
	return float64(len(here)), slowed
}
