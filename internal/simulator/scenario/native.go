package scenario

import (
	"math"
	"slices"
	"time"

	"github.com/tandem-gpu/tandem/pkg/placement"
	"github.com/tandem-gpu/tandem/pkg/sim"
	"github.com/tandem-gpu/tandem/pkg/vgpu"
)

// native is the policy that plays a workload as Kubernetes does without Tandem: shares are rounded up to whole GPUs, elastic jobs have
// their full size from their start to their end, fleets have what their highest rate needs, and evictions are those of the stock scheduler.
const native = "native"

// nativePlacement is how it places: close together, which is kinder to gangs than the stock scheduler.
const nativePlacement = "packed"

// placementOf returns the policy by which a policy of scenarios places.
func placementOf(policy string) string {
	if policy == native {
		return nativePlacement
	}
	return policy
}

// knownPolicies are the policies of scenarios.
func knownPolicies() []string { return append(placement.Policies(), native) }

// natively makes a setup that of the policy native. Devices have so many slots.
func natively(s *sim.Setup, slots vgpu.Slots) {
	s.Jobs = slices.Clone(s.Jobs)
	gangs := map[*sim.Gang]*sim.Gang{}
	perNode := 1
	for _, n := range s.Nodes {
		perNode = max(perNode, len(n.Devices()))
	}
	for i := range s.Jobs {
		j := &s.Jobs[i]
		j.Request.Containers = slices.Clone(j.Request.Containers)
		for k := range j.Request.Containers {
			c := &j.Request.Containers[k]
			c.Slots, c.Memory = (c.Slots+slots-1)/slots*slots, 0
		}
		g := j.Gang
		if g == nil || g.Elastic == nil || g.Elastic.Fleet != nil {
			continue
		}
		e, perWorker := g.Elastic, int(max(1, j.Request.PeakSlots()/slots))
		full := e.Sizes[len(e.Sizes)-1]
		faster := e.Curve.Rate(full, (full*perWorker+perNode-1)/perNode) / e.Curve.Rate(e.Sizes[0], 1)
		j.Duration, j.Checkpoint = shorter(j.Duration, faster), shorter(j.Checkpoint, faster)
		if gangs[g] == nil {
			gangs[g] = &sim.Gang{Name: g.Name, MinCount: full, Wishes: g.Wishes, Losses: g.Losses}
		}
		j.Gang = gangs[g]
	}
	if s.Preemption.Policy != sim.PreemptNobody {
		s.Preemption.Policy, s.Preemption.KeepBudgets = sim.PreemptInTree, false
	}
}

// shorter returns the time that is left of one at a higher speed, in whole milliseconds; 0 stays 0.
func shorter(d time.Duration, faster float64) time.Duration {
	if d == 0 {
		return 0
	}
	return max(1, time.Duration(math.Round(d.Seconds()*1000/faster))) * time.Millisecond
}
