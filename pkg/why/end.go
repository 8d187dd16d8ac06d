package why

import (
	"cmp"
	"slices"

	"github.com/tandem-gpu/tandem/pkg/vgpu"
)

// podsEnd finds the first time at which enough pods have ended, as they declare, and the pods whose ends matter. Other pods may
// take the room meanwhile.
func (q *question) podsEnd() (*Change, error) {
	all := q.ending()
	// Fewer pods leave less room: the least number of those that end first is found by halves.
	var found []vgpu.Assignment
	needed := 0
	for least, most := 1, len(all); least <= most; {
		k := least + (most-least)/2
		places, err := q.without(false, setOf(all[:k]))
		if err != nil {
			return nil, err
		}
		if places == nil {
			least = k + 1
			continue
		}
		found, needed, most = places, k, k-1
	}
	if found == nil {
		return nil, nil
	}
	c, err := q.spare(PodsEnd, all[:needed], found)
	if err == nil {
		c.At = all[needed-1].Until
	}
	return c, err
}

// ending returns the pods with a declared end, the first to end first.
func (q *question) ending() []Leaving {
	var all []Leaving
	for i := range q.s.Nodes {
		n := &q.s.Nodes[i]
		for k := range n.Pods {
			p := &n.Pods[k]
			if p.EndsBy.IsZero() || n.Problem != "" || p.Gang != nil && q.gang != nil && *p.Gang == *q.gang {
				continue
			}
			all = append(all, Leaving{Name: p.Name, Node: n.Name, Priority: p.Priority, Until: p.EndsBy.Unix()})
		}
	}
	slices.SortFunc(all, func(a, b Leaving) int { return cmp.Or(cmp.Compare(a.Until, b.Until), cmp.Compare(a.UID, b.UID)) })
	return all
}
