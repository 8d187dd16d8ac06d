package gpugang

import (
	"slices"

	"github.com/tandem-gpu/tandem/internal/cluster/podgroup"
	"github.com/tandem-gpu/tandem/pkg/gang"
)

// losses returns the losses of a gang by its spread. Roles can have different profiles: all wait for the slowest, so
// the largest loss at a level counts. Members whose profiles declare nothing do not count.
func (p *Plugin) losses(pg *podgroup.Gang) []gang.Loss {
	var all []gang.Loss
	for _, pod := range pg.Members {
		if pod.DeletionTimestamp != nil {
			continue
		}
		for _, l := range p.shares().Losses(pod) {
			at := slices.IndexFunc(all, func(o gang.Loss) bool { return o.Level == l.Level })
			if at < 0 {
				all = append(all, l)
			} else {
				all[at].Part = max(all[at].Part, l.Part)
			}
		}
	}
	return all
}
