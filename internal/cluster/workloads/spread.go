package workloads

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/tandem-gpu/tandem/internal/cluster/kube"
	"github.com/tandem-gpu/tandem/pkg/api/config"
	"github.com/tandem-gpu/tandem/pkg/api/v1alpha1"
	"github.com/tandem-gpu/tandem/pkg/gang"
	"github.com/tandem-gpu/tandem/pkg/vgpu"
)

// Losses returns the losses of a gang of the workload by its spread, by level; nil without a declaration. The caller
// must not change the list.
func (w *Workload) Losses() []gang.Loss { return w.losses }

// readSpread reads the costs of a spread.
func (w *Workload) readSpread(list []v1alpha1.ProfileSpread) []gang.Loss {
	var all []gang.Loss
	for i := range list {
		s, path := &list[i], fmt.Sprintf("spec.spread[%d]", i)
		written := s.Slowdown.String()
		slowdown, legal := kube.ParseSlowdown(written)
		switch {
		case !config.IsLevel(s.TopologyKey) || slices.ContainsFunc(all, func(l gang.Loss) bool { return l.Level == s.TopologyKey }):
			w.malformed(path+".topologyKey", s.TopologyKey,
				"it must be the key of a node label or "+v1alpha1.TopologyNVLink+", and no other entry may have it")
		case !legal:
			w.malformed(path+".slowdown", written,
				"it must be a decimal from 1 to 10 with up to three decimals, for example 1.02: time spread ÷ time together")
		case len(all) == config.MaxLevels:
			w.malformed(path+".topologyKey", s.TopologyKey, fmt.Sprintf("there must be at most %d entries", config.MaxLevels))
		default:
			all = append(all, gang.Loss{Level: s.TopologyKey, Part: lostBy(slowdown)})
		}
	}
	slices.SortFunc(all, func(a, b gang.Loss) int { return cmp.Compare(a.Level, b.Level) })
	return all
}

// lostBy returns the part of the work that a slowdown in thousandths costs, 1 − 1/slowdown, rounded. The result is 0
// for no slowdown alone. Example: 1.02 loses 20/1020, 20 thousandths; 10 loses 900.
func lostBy(slowdown int64) vgpu.MilliGPU {
	lost := int64(vgpu.WholeGPU) * (slowdown - 1000)
	return vgpu.MilliGPU((lost + slowdown/2) / slowdown)
}
