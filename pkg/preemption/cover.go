package preemption

import (
	"cmp"
	"slices"
	"strings"

	"github.com/tandem-gpu/tandem/pkg/vgpu"
)

// amount is what a pod lacks, or what another gives back: slots, bytes and contexts of one device, thousandths of a core
// and bytes of the host.
type amount [5]int64

func (a amount) minus(o amount) amount {
	for i := range a {
		a[i] = vgpu.Difference(a[i], o[i])
	}
	return a
}

// within reports whether no part is above o's.
func (a *amount) within(o *amount) bool {
	return a[0] <= o[0] && a[1] <= o[1] && a[2] <= o[2] && a[3] <= o[3] && a[4] <= o[4]
}

// met reports whether nothing is lacking.
func (a *amount) met() bool { return a.within(&amount{}) }

func amountOf(u vgpu.Use, r vgpu.Room) amount {
	return amount{int64(u.Slots), int64(u.Memory), int64(u.Contexts), r.MilliCPU, int64(r.Memory)}
}

// cover looks for the cheapest pods of a node that give back what is lacking: of each pod, the dearest first, it is tried
// whether the rest suffices without it, then what else there is if it goes. The first set that it finds is so the one that
// reprieving from the dearest to the cheapest leaves.
type cover struct {
	h     *hunt
	items []item
	// slot of each candidate: its place in items, and one more.
	slot []int32
	// rest is what all items give together.
	rest amount
	// over counts the steps beyond the bound, found says that a set was seen.
	over  int
	found bool
}

// item is a pod that may go.
type item struct {
	pod   int32
	gives amount
	lone  Cost
}

// clear starts anew.
func (v *cover) clear() {
	for i := range v.items {
		v.slot[v.items[i].pod] = 0
	}
	v.items, v.rest, v.over, v.found = v.items[:0], amount{}, 0, false
}

// offer adds a pod that gives so much, unless it is gone.
func (v *cover) offer(p int32, gives amount) {
	if v.h.picked.gone[p] {
		return
	}
	v.items = append(v.items, item{pod: p, gives: gives, lone: v.h.q.lone(p)})
	for i := range v.rest {
		v.rest[i] = vgpu.Sum(v.rest[i], gives[i])
	}
}

// order puts the dearest first, of equal ones the last by name, and returns the cost of the cheapest.
func (v *cover) order() {
	pods := v.h.q.who.Pods
	slices.SortFunc(v.items, func(a, b item) int {
		return cmp.Or(b.lone.Compare(a.lone), strings.Compare(pods[b.pod].Name, pods[a.pod].Name))
	})
	for i := range v.items {
		v.slot[v.items[i].pod] = int32(i + 1)
	}
}

// solve looks for the cheapest pods that give back what is lacking, beside those that are gone.
func (v *cover) solve(lacks amount) {
	if !lacks.within(&v.rest) {
		return
	}
	v.order()
	v.search(0, lacks, v.rest)
}

// search decides about the items from at on after somebody went. Where enough went and it does not help, since a promise would
// break, more go.
func (v *cover) search(at int, lacks, rest amount) {
	if lacks.met() && v.h.offer() {
		v.found = true
		return
	}
	v.decide(at, lacks, rest)
}

// decide is search where those that go are known not to be enough.
func (v *cover) decide(at int, lacks, rest amount) {
	if v.h.hopeless() || !v.step() {
		return
	}
	for at < len(v.items) && v.h.picked.gone[v.items[at].pod] {
		at++
	}
	if at == len(v.items) {
		return
	}
	it := &v.items[at]
	if without := rest.minus(it.gives); lacks.within(&without) {
		v.decide(at+1, lacks, without)
	}
	m := v.h.picked.mark()
	if v.h.picked.add(it.pod) {
		v.count(m, at, &lacks, &rest)
		v.search(at+1, lacks, rest)
	}
	v.h.picked.undo(m)
}

// count takes what came since a mark off what is lacking, and off what is left to decide from an item on: a gang takes those with
// it that were kept.
func (v *cover) count(m mark, from int, lacks, rest *amount) {
	for _, p := range v.h.picked.trail[m.trail:] {
		at := int(v.slot[p]) - 1
		if at < 0 {
			continue
		}
		*lacks = lacks.minus(v.items[at].gives)
		if at >= from {
			*rest = rest.minus(v.items[at].gives)
		}
	}
}

// step counts a step, and reports whether the search may go on: up to the bound, and then until it has found a first set,
// which takes no more steps than there are items unless gangs are in the way.
func (v *cover) step() bool {
	if v.h.step() {
		return true
	}
	v.over++
	return !v.found && v.over <= len(v.items)+1
}
