package fleets

import (
	"math"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/tandem-gpu/tandem/pkg/api/v1alpha1"
	"github.com/tandem-gpu/tandem/pkg/traffic"
)

// wholeGPU is a GPU in the unit of traffic.Variant.Worth.
const wholeGPU = 1000

// room is what fleets have under their common cap, in one pass.
type room struct {
	// most is the cap, in thousandths of a GPU.
	most int64
	// has is what each fleet has, later what the needs to come of all fleets add.
	has   map[types.UID]int64
	later int64
}

// roomOf returns the room of the fleets, nil where they have no cap. A fleet that was not looked at yet has what its status says.
func (p *pass) roomOf(fleets []*v1alpha1.InferenceFleet) *room {
	if p.options.MaxGPUs == nil {
		return nil
	}
	r := &room{most: int64(math.Floor(*p.options.MaxGPUs * wholeGPU)), has: make(map[types.UID]int64, len(fleets))}
	for _, f := range fleets {
		m := p.memory[f.UID]
		if m.worth == nil {
			m.worth = map[string]int64{}
			for i := range f.Spec.Variants {
				m.worth[f.Spec.Variants[i].Name] = p.worth(int64(f.Spec.Variants[i].Slots), f.Spec.Variants[i].GPUModel)
			}
			for i := range f.Status.Variants {
				m.has += int64(f.Status.Variants[i].Replicas) * m.worth[f.Status.Variants[i].Name]
			}
		}
		r.has[f.UID] = m.has
	}
	return r
}

// worth returns what slots of a GPU model are in thousandths of a GPU. A device of an unknown model counts with the fewest slots of all, and unknown slots
// are a whole GPU: a fleet that says less of itself does not count for less.
func (c *Controller) worth(slots int64, model string) int64 {
	of := int64(c.slots[model])
	if of <= 0 {
		of = v1alpha1.DefaultSlots
		for _, n := range c.slots {
			of = min(of, int64(n))
		}
	}
	if slots <= 0 || of <= 0 {
		return wholeGPU
	}
	return (min(slots, maxSlots)*wholeGPU + of - 1) / of
}

// maxSlots is the bound of the CustomResourceDefinition.
const maxSlots = 100_000

// claimRoom takes in what the replicas of a fleet are worth, and returns what the cap leaves, nil without one.
func (v *visit) claimRoom() (*traffic.Left, error) {
	if v.room == nil {
		return nil, nil //nolint:nilnil // most clusters have no cap
	}
	for i := range v.fleet.Variants {
		declared := &v.object.Spec.Variants[i]
		slots := int64(declared.Slots)
		if t := v.targets[i]; t != nil && t.selector != nil {
			pods, err := v.pods.Pods(v.object.Namespace).List(t.selector)
			if err != nil {
				return nil, err
			}
			for _, pod := range pods {
				slots = max(slots, slotsOf(pod))
			}
		}
		v.fleet.Variants[i].Worth = v.worth(slots, declared.GPUModel)
		v.memory.worth[declared.Name] = v.fleet.Variants[i].Worth
	}
	v.room.has[v.object.UID] = v.fleet.Takes(make([]int, len(v.fleet.Variants)), v.replicas())
	left := v.room.most
	for _, has := range v.room.has {
		left -= has
	}
	return &traffic.Left{Now: left, Later: left - v.room.later}, nil
}

// takeRoom notes what the fleet has with its plan.
func (v *visit) takeRoom() {
	if v.room == nil {
		return
	}
	now, planned, later := v.replicas(), make([]int, len(v.plan.Variants)), int64(0)
	for i := range planned {
		planned[i] = max(now[i], v.plan.Variants[i].Replicas)
	}
	for _, need := range v.plan.Later {
		later = max(later, v.fleet.Takes(planned, need.Replicas))
	}
	v.memory.has = v.fleet.Takes(make([]int, len(planned)), planned)
	v.room.has[v.object.UID] = v.memory.has
	v.room.later += later
}

// replicas returns those that the scale targets ask for.
func (v *visit) replicas() []int {
	out := make([]int, len(v.fleet.Variants))
	for i := range out {
		out[i] = v.fleet.Variants[i].Wanted
	}
	return out
}

// slotsOf returns the slots that the containers of a pod ask for together, 0 for a pod that has ended.
func slotsOf(pod *v1.Pod) (slots int64) {
	if hasEnded(pod) {
		return 0
	}
	for i := range pod.Spec.Containers {
		q := pod.Spec.Containers[i].Resources.Limits[v1alpha1.ResourceVGPU]
		slots += min(max(0, q.Value()), maxSlots)
	}
	return slots
}
