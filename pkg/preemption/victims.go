package preemption

import (
	"cmp"
	"errors"
	"fmt"
	"slices"

	"github.com/tandem-gpu/tandem/pkg/gang"
	"github.com/tandem-gpu/tandem/pkg/vgpu"
)

// Victims returns the cheapest units without which the preemptor can run, or why there are none. A group is a pod if it
// has one member, no required wishes, and no members with a place; other groups are gangs.
//
// A pod goes to the node where the cheapest units make room. Between nodes with the same units, Victims takes the node
// where the fewest leaving pods must end, then the highest score of the policy, then the first name. The policy chooses
// the devices, once the units and the pods of Plan.Waits have ended.
//
// Victims changes nothing, and gives the same answer for the same candidates in any order. An error means broken input.
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

// answer is a set of units that makes room, with the places that the preemptor gets.
type answer struct {
	cost   Cost
	units  []Unit
	waits  []int
	places []vgpu.Assignment
}

// answer returns the cheapest units, nil where none makes room under the terms.
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
func validate(c *gang.Cluster, want *gang.Group, candidates *Candidates, cfg Config) error {
	if cfg.MaxSteps < 0 {
		return fmt.Errorf("the most steps are %d", cfg.MaxSteps)
	}
	if err := cfg.Prices.validate(); err != nil {
		return err
	}
	if err := gang.Validate(c, want, cfg.Config); err != nil {
		return err
	}
	for i := range candidates.Budgets {
		if b := &candidates.Budgets[i]; b.Allowed < 0 {
			return fmt.Errorf("budget %d %s allows %d evictions", i, b.Name, b.Allowed)
		}
	}
	for i := range candidates.Gangs {
		if g := &candidates.Gangs[i]; g.MinCount < 0 {
			return fmt.Errorf("gang %d %s has the min count %d", i, g.Name, g.MinCount)
		}
	}
	seen := make(map[vgpu.UID]struct{}, len(candidates.Pods))
	for i := range candidates.Pods {
		p := &candidates.Pods[i]
		seen[p.UID] = struct{}{}
		if err := cmp.Or(p.validate(candidates), duplicate(len(seen) == i)); err != nil {
			return fmt.Errorf("candidate %d %s: %w", i, p.Name, err)
		}
	}
	return nil
}

var errTwice = errors.New("its UID appears twice")

func duplicate(seen bool) error {
	if seen {
		return errTwice
	}
	return nil
}

// MaxLost bounds the lost work of one pod: 35 billion seconds of a GPU, in thousandths of a GPU times seconds. Sums of
// it stay within 64 bits for a quarter of a million pods, and saturate beyond that.
const MaxLost = 1 << 45

// maxShare bounds the share of one pod: a million GPUs.
const maxShare = 1_000_000 * vgpu.WholeGPU

// validate checks one candidate.
func (p *Pod) validate(candidates *Candidates) error {
	switch {
	case p.UID == "":
		return errors.New("no UID")
	case p.Name == "":
		return errors.New("no name")
	case p.Host.MilliCPU < 0 || p.Host.Memory < 0:
		return fmt.Errorf("its part of the host is %v", p.Host)
	case p.Lost < 0 || p.Lost > MaxLost:
		return fmt.Errorf("the work lost is %d, legal is 0 to %d", p.Lost, int64(MaxLost))
	case p.Share < 0 || p.Share > maxShare:
		return fmt.Errorf("its share is %d thousandths of a GPU, legal is 0 to %d", p.Share, maxShare)
	case p.Gang < -1 || p.Gang >= len(candidates.Gangs):
		return fmt.Errorf("its gang is %d of %d", p.Gang, len(candidates.Gangs))
	}
	for i, b := range p.Budgets {
		if b < 0 || b >= len(candidates.Budgets) {
			return fmt.Errorf("its budget is %d of %d", b, len(candidates.Budgets))
		}
		if slices.Contains(p.Budgets[:i], b) {
			return fmt.Errorf("budget %d is listed twice", b)
		}
	}
	return nil
}
