package placement

import (
	"fmt"

	"github.com/tandem-gpu/tandem/pkg/vgpu"
)

// Config holds the settings of Choose.
type Config struct {
	// Policy ranks devices and nodes; the zero value is packed.
	Policy Policy
}

// Plan is what to do for one pod.
type Plan struct {
	// Place is the devices for the pod, nil where it fits nowhere.
	Place *vgpu.Assignment
	// Refused says why each of the other nodes cannot take it, by node name.
	Refused []vgpu.Refusal
	Stats   Stats
}

// Stats counts the work that a decision took, and says where a limit ended a search.
type Stats struct {
	// Nodes of the search, and the number of them that fit.
	Nodes, Fits int
	// Cut counts nodes whose search reached its limit of steps.
	Cut int
	// Greedy says that the search did not compare all device sets of the chosen node.
	Greedy bool
}

// Choose returns the node with the highest score, the first by name among equals, with the devices for the pod. The
// cluster does not change. The error is a broken request.
func Choose(c *vgpu.Cluster, r *vgpu.Request, cfg Config) (Plan, error) {
	if err := r.Validate(); err != nil {
		return Plan{}, fmt.Errorf("choose devices: %w", err)
	}
	var plan Plan
	policy := cfg.Policy.orDefault()
	var best *vgpu.Node
	top := int64(0)
	for _, n := range c.Nodes() {
		plan.Stats.Nodes++
		if refusal := policy.Fit(n, r); refusal != nil {
			plan.Refused = append(plan.Refused, *refusal)
			if refusal.Cut {
				plan.Stats.Cut++
			}
			continue
		}
		plan.Stats.Fits++
		if s := policy.randomTieBreak(scoreOn(n, r, &policy), n, r); best == nil || s > top {
			best, top = n, s
		}
	}
	if best == nil {
		return plan, nil
	}
	a, how, refusal := assign(best, r, &policy)
	if refusal != nil {
		return Plan{}, fmt.Errorf("choose devices for pod %s: node %s fits and refuses: %v", r.Pod, best.Name(), *refusal)
	}
	plan.Place, plan.Stats.Greedy = &a, how.greedy
	if how.cut {
		plan.Stats.Cut++
	}
	return plan, nil
}
