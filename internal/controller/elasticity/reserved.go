package elasticity

import (
	"context"
	"slices"

	"github.com/tandem-gpu/tandem/internal/controller/snapshot"
	"github.com/tandem-gpu/tandem/pkg/api/v1alpha1"
	"github.com/tandem-gpu/tandem/pkg/elastic"
	"github.com/tandem-gpu/tandem/pkg/vgpu"
)

// readFleets reads the inference fleets, if the feature that sizes them is on.
func (p *pass) readFleets(ctx context.Context) error {
	if p.options.Fleets == nil {
		return nil
	}
	return p.options.Fleets.List(ctx, &p.fleets)
}

// reserved returns what inference fleets will need beyond the replicas that they should have now. Replicas that they should have are pods, which
// run or wait, but for those that have no pods yet, since the fleet has just grown: a job that took their GPUs would be preempted a moment later.
//
// A fleet whose times have passed needs the devices now: its own controller may be down, and its last decision stands.
func (p *pass) reserved(c *snapshot.Cluster) (all []elastic.Reserved) {
	slots := map[string]vgpu.Slots{} // of a device, by model
	for _, n := range c.Nodes {
		for i := range n.Devices() {
			slots[n.Devices()[i].Model] = n.Devices()[i].Slots
		}
	}
	unmade := p.newUnmade()
	for i := range p.fleets.Items {
		f := &p.fleets.Items[i]
		for k := range f.Spec.Variants {
			v := &f.Spec.Variants[k]
			at := slices.IndexFunc(f.Status.Variants, func(s v1alpha1.FleetVariantStatus) bool { return s.Name == v.Name })
			of := slots[v.GPUModel]
			if at < 0 || of <= 0 || v.Slots <= 0 {
				continue
			}
			s, one := &f.Status.Variants[at], vgpu.MilliGPU(int64(v.Slots)*int64(vgpu.WholeGPU)/int64(of))
			all = append(all, reservations(s, v.GPUModel, one)...)
			if lack := unmade.count(f.Namespace, f.Name, s); lack > 0 {
				all = append(all, elastic.Reserved{Model: v.GPUModel, Amount: vgpu.MilliGPU(lack) * one, Idle: true})
			}
		}
	}
	p.unmade = unmade.waits
	return all
}

// reservations returns what each need of a variant adds to those before it.
func reservations(s *v1alpha1.FleetVariantStatus, model string, one vgpu.MilliGPU) []elastic.Reserved {
	needs := make([]elastic.Need, 0, len(s.Later))
	for i := range s.Later {
		needs = append(needs, elastic.Need{Replicas: int(s.Later[i].Replicas), From: s.Later[i].From.Unix()})
	}
	return elastic.ReservedFor(model, one, int(s.Replicas), needs)
}
