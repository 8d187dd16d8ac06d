package preemption

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/tandem-gpu/tandem/pkg/gang"
	"github.com/tandem-gpu/tandem/pkg/vgpu"
)

// Compare orders costs: −1 where c is cheaper. Slow victims count first, since the preemptor gets their room too late.
// Then the price counts. Among sets of one price the one with fewer victims is cheaper, so that each further victim
// makes a set dearer. An empty victim set is the cheapest.
func (c Cost) Compare(o Cost) int {
	return cmp.Or(cmp.Compare(c.Slow, o.Slow), cmp.Compare(c.Price, o.Price), cmp.Compare(c.Victims, o.Victims))
}

// addPod adds a candidate, without its budgets and its gang.
func (c *Cost) addPod(q *question, p int32) {
	v := &q.candidates.Pods[p]
	if v.Serving {
		c.Serving++
	}
	if v.Slow {
		c.Slow++
	}
	of := &q.prices[p]
	c.Steps += int(of.steps)
	c.Lost = vgpu.Sum(c.Lost, v.Lost)
	c.Returns = vgpu.Sum(c.Returns, of.returns)
	c.Victims++
	c.Price = vgpu.Sum(c.Price, of.price)
}

// addViolation adds a victim beyond what a budget allows.
func (c *Cost) addViolation(q *question) {
	c.Violations++
	c.Price = vgpu.Sum(c.Price, q.cfg.Prices.Violation)
}

// addBroken adds a gang of some members that leaves as a whole, without its pods.
func (c *Cost) addBroken(q *question, members int) {
	c.Broken++
	c.Price = vgpu.Sum(c.Price, q.cfg.Prices.Broken+int64(members)*q.cfg.Prices.Victim)
}

// Costs returns a function that adds up the cost of units for a preemptor, as Victims does. The arguments are those of
// Victims. An error means broken input.
func Costs(c *gang.Cluster, want *gang.Group, candidates *Candidates, cfg Config) (func(units []Unit) Cost, error) {
	if err := validate(c, want, candidates, cfg); err != nil {
		return nil, fmt.Errorf("price victims for %s: %w", want.Name, err)
	}
	q := newQuestion(c, want, candidates, cfg)
	return q.costOf, nil
}

// costOf adds up the cost of units.
func (q *question) costOf(units []Unit) (cost Cost) {
	counted := make([]int, len(q.candidates.Budgets))
	for i := range units {
		if units[i].Kind == Whole {
			cost.addBroken(q, len(units[i].Pods))
		}
		for _, p := range units[i].Pods {
			cost.addPod(q, int32(p))
			for _, b := range q.candidates.Pods[p].Budgets {
				if counted[b]++; counted[b] > q.candidates.Budgets[b].Allowed {
					cost.addViolation(q)
				}
			}
		}
	}
	return cost
}

// compareUnits orders sets of units of the same cost by the names of the units.
func compareUnits(a, b []Unit) int {
	return slices.CompareFunc(a, b, func(a, b Unit) int { return strings.Compare(a.Name, b.Name) })
}

// byName orders the units of one set.
func byName(a, b Unit) int {
	return cmp.Or(strings.Compare(a.Name, b.Name), cmp.Compare(a.Kind, b.Kind), slices.Compare(a.Pods, b.Pods))
}
