package preemption

import (
	"cmp"
	"slices"
	"strings"

	"github.com/tandem-gpu/tandem/pkg/vgpu"
)

// Compare orders costs by their fields, from the first to the last: −1 where c is cheaper. An empty victim set is the
// cheapest.
func (c Cost) Compare(o Cost) int {
	return cmp.Or(
		cmp.Compare(c.Slow, o.Slow),
		cmp.Compare(c.Violations, o.Violations),
		cmp.Compare(min(1, c.Victims), min(1, o.Victims)),
		cmp.Compare(c.Priority, o.Priority),
		after(c.ServesHighest, o.ServesHighest),
		cmp.Compare(c.Serving, o.Serving),
		after(c.Beyond, o.Beyond),
		cmp.Compare(c.Broken, o.Broken),
		cmp.Compare(c.Lost, o.Lost),
		cmp.Compare(c.Victims, o.Victims),
	)
}

// after orders false before true.
func after(a, b bool) int {
	switch {
	case a == b:
		return 0
	case a:
		return 1
	}
	return -1
}

// addPod adds a pod, without its budgets and its gang.
func (c *Cost) addPod(p *Pod) {
	if c.Victims == 0 || p.Priority > c.Priority {
		c.Priority, c.ServesHighest = p.Priority, false
	}
	c.ServesHighest = c.ServesHighest || p.Serving && p.Priority == c.Priority
	if p.Serving {
		c.Serving++
	}
	if p.Slow {
		c.Slow++
	}
	c.Lost = vgpu.Sum(c.Lost, p.Lost)
	c.Victims++
}

// compareUnits orders sets of units of the same cost by the names of the units.
func compareUnits(a, b []Unit) int {
	return slices.CompareFunc(a, b, func(a, b Unit) int { return strings.Compare(a.Name, b.Name) })
}

// byName orders the units of one set.
func byName(a, b Unit) int {
	return cmp.Or(strings.Compare(a.Name, b.Name), cmp.Compare(a.Kind, b.Kind), slices.Compare(a.Pods, b.Pods))
}
