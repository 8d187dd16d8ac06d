package preemption

import (
	"cmp"
	"slices"
	"strings"

	"github.com/tandem-gpu/tandem/pkg/vgpu"
)

// amount is what a pod lacks, or what another pod gives back: slots, bytes and contexts of one device, thousandths of a
// core and bytes of the host.
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

// cover looks for the cheapest pods of a node that give back what is lacking. For each pod, the dearest first, it first
// tries whether the rest suffices without it, and then evicts it. Its first set is therefore the one that a reprieve
// from the dearest to the cheapest pod leaves.
type cover struct {
	search *nodeSearch
	items  []item
	// slot of each candidate: its index in items plus one, 0 for none.
	slot []int32
	// rest is what all items give together.
	rest amount
	// over counts the steps beyond the bound. found says that the search has a set.
	over  int
	found bool
}

// item is a possible victim.
type item struct {
	pod   int32
	gives amount
	lone  Cost
}

// reset removes all items.
func (v *cover) reset() {
	for i := range v.items {
		v.slot[v.items[i].pod] = 0
	}
	v.items, v.rest, v.over, v.found = v.items[:0], amount{}, 0, false
}

// addItem adds a pod that gives back an amount, unless it is a victim already.
func (v *cover) addItem(p int32, gives amount) {
	if v.search.victims.evicted[p] {
		return
	}
	v.items = append(v.items, item{pod: p, gives: gives, lone: v.search.q.costAlone(p)})
	for i := range v.rest {
		v.rest[i] = vgpu.Sum(v.rest[i], gives[i])
	}
}

// order sorts the items: the dearest first, of equal ones the last name first.
func (v *cover) order() {
	pods := v.search.q.candidates.Pods
	slices.SortFunc(v.items, func(a, b item) int {
		return cmp.Or(b.lone.Compare(a.lone), strings.Compare(pods[b.pod].Name, pods[a.pod].Name))
	})
	for i := range v.items {
		v.slot[v.items[i].pod] = int32(i + 1)
	}
}

// solve looks for the cheapest pods that give back what is lacking, beside the victims so far.
func (v *cover) solve(lacks amount) {
	if !lacks.within(&v.rest) {
		return
	}
	v.order()
	v.searchFrom(0, lacks, v.rest)
}

// searchFrom decides about the items from at on, after each new victim. If the victims give back enough and the pod
// still does not fit, since a promise would break, it evicts more.
func (v *cover) searchFrom(at int, lacks, rest amount) {
	if lacks.met() && v.search.offer() {
		v.found = true
		return
	}
	v.decide(at, lacks, rest)
}

// decide is searchFrom where the victims are not enough.
func (v *cover) decide(at int, lacks, rest amount) {
	if v.search.notCheaper() || !v.step() {
		return
	}
	for at < len(v.items) && v.search.victims.evicted[v.items[at].pod] {
		at++
	}
	if at == len(v.items) {
		return
	}
	it := &v.items[at]
	if without := rest.minus(it.gives); lacks.within(&without) {
		v.decide(at+1, lacks, without)
	}
	m := v.search.victims.mark()
	if v.search.victims.add(it.pod) {
		v.count(m, at, &lacks, &rest)
		v.searchFrom(at+1, lacks, rest)
	}
	v.search.victims.undo(m)
}

// count subtracts the victims since a mark from what is lacking, and from what the items from an index on give. A gang
// that ends as a whole also evicts members that the search had kept.
func (v *cover) count(m mark, from int, lacks, rest *amount) {
	for _, p := range v.search.victims.trail[m.trail:] {
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

// step counts a step, and reports whether the search may go on: up to the bound, and beyond it only until it has a
// first set. The search for a first set takes no more steps than there are items, unless gangs end as a whole.
func (v *cover) step() bool {
	if v.search.step() {
		return true
	}
	v.over++
	return !v.found && v.over <= len(v.items)+1
}
