package preemption

import (
	"cmp"
	"errors"
	"fmt"
	"slices"

	"github.com/tandem-gpu/tandem/pkg/gang"
	"github.com/tandem-gpu/tandem/pkg/vgpu"
)

// Victims returns the cheapest units whose room lets the preemptor run, or why there are none. A group of one member
// without required wishes, and without members that have a place, is a pod; others are gangs.
//
// A pod goes to the node where the cheapest units make room: of nodes with the same ones to that where the fewest pods are
// waited for, then to the one with the highest score of the policy, then to the first by name. Its devices are those that
// the policy prefers once the units and the pods of Plan.Waits are gone.
//
// It changes nothing, and gives the same answer for the same candidates in any order. The error is broken input.
func Victims(c *gang.Cluster, want *gang.Group, candidates *Candidates, cfg Config) (Plan, error) {
	if candidates == nil {
		candidates = &Candidates{}
	}
	if c == nil || want == nil {
		return Plan{}, errors.New("find victims: there is no cluster or no group")
	}
	if err := validate(c, want, candidates, cfg); err != nil {
		return Plan{}, fmt.Errorf("find victims for %s: %w", want.Name, err)
	}
	if len(want.Members) == 0 {
		return Plan{}, nil
	}
	q := newQuestion(c, want, candidates, cfg)
	a := q.answer()
	plan := Plan{Stats: *q.stats}
	if a == nil {
		plan.Refused = &Refusal{Cut: q.stats.Cut}
		if !cfg.SkipExplanation {
			plan.Refused = q.refuse()
		}
		return plan, nil
	}
	plan.Cost, plan.Evict, plan.Waits, plan.Places = a.cost, a.units, a.waits, a.places
	return plan, nil
}

// answer is units that make room, and what is in it.
type answer struct {
	cost   Cost
	units  []Unit
	waits  []int
	places []vgpu.Assignment
}

// answer returns the cheapest units, nil where none make room under the terms.
func (q *question) answer() *answer {
	if q.single() {
		return q.pod()
	}
	return q.group()
}

// single reports whether the preemptor is a pod.
func (q *question) single() bool {
	return len(q.g.Members) == 1 && len(q.g.Placed) == 0 && len(q.g.Wishes.Required) == 0
}

// validate returns an error for input that contradicts itself.
func validate(c *gang.Cluster, want *gang.Group, who *Candidates, cfg Config) error {
	if cfg.MaxSteps < 0 {
		return fmt.Errorf("the most steps are %d", cfg.MaxSteps)
	}
	if err := gang.Validate(c, want, cfg.Config); err != nil {
		return err
	}
	for i := range who.Budgets {
		if b := &who.Budgets[i]; b.Allowed < 0 {
			return fmt.Errorf("budget %d %s allows %d evictions", i, b.Name, b.Allowed)
		}
	}
	for i := range who.Gangs {
		if g := &who.Gangs[i]; g.MinCount < 0 {
			return fmt.Errorf("gang %d %s has the min count %d", i, g.Name, g.MinCount)
		}
	}
	seen := make(map[vgpu.UID]bool, len(who.Pods))
	for i := range who.Pods {
		p := &who.Pods[i]
		if err := cmp.Or(p.validate(who), doubt(seen[p.UID])); err != nil {
			return fmt.Errorf("candidate %d %s: %w", i, p.Name, err)
		}
		seen[p.UID] = true
	}
	return nil
}

var errTwice = errors.New("its UID appears twice")

func doubt(seen bool) error {
	if seen {
		return errTwice
	}
	return nil
}

// MaxLost bounds the work that is lost with one pod: 35 billion seconds of a GPU, in thousandths of a GPU times seconds. Sums of
// it stay within 64 bits for a quarter of a million pods, and saturate beyond.
const MaxLost = 1 << 45

// validate checks one candidate.
func (p *Pod) validate(who *Candidates) error {
	switch {
	case p.UID == "":
		return errors.New("no UID")
	case p.Name == "":
		return errors.New("no name")
	case p.Host.MilliCPU < 0 || p.Host.Memory < 0:
		return fmt.Errorf("its part of the host is %v", p.Host)
	case p.Lost < 0 || p.Lost > MaxLost:
		return fmt.Errorf("the work lost is %d, legal is 0 to %d", p.Lost, int64(MaxLost))
	case p.Gang < -1 || p.Gang >= len(who.Gangs):
		return fmt.Errorf("its gang is %d of %d", p.Gang, len(who.Gangs))
	}
	for i, b := range p.Budgets {
		if b < 0 || b >= len(who.Budgets) {
			return fmt.Errorf("its budget is %d of %d", b, len(who.Budgets))
		}
		if slices.Contains(p.Budgets[:i], b) {
			return fmt.Errorf("budget %d is listed twice", b)
		}
	}
	return nil
}
