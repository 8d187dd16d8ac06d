package gang

import (
	"github.com/tandem-gpu/tandem/pkg/placement"
	"github.com/tandem-gpu/tandem/pkg/vgpu"
)

// fillByPolicy puts the load on the cells one member after the other, in the order of ranks, each where the policy puts
// a single pod. The policy puts it on the node with the highest score, the first by name among equals. A member for
// which the first `used` cells have no room goes to one of the other cells. The result says whether all members have a
// place.
func (x *attempt) fillByPolicy(order []int32, used int, l *load) bool {
	known := make([][]int64, len(l.counts))
	for at := range x.topology.snapshot.members.order[:int(members(l))] {
		k := x.topology.snapshot.members.classOf[at]
		if !x.placeBest(k, order[:used], known) && !x.placeBest(k, order[used:], known) {
			return false
		}
	}
	return true
}

// unknown marks a missing score: scores are −1 or more.
const unknown = -2

// placeBest puts one member of a class on the best of the cells. The scores are in a cache by class and cell.
func (x *attempt) placeBest(k int, cells []int32, known [][]int64) bool {
	if known[k] == nil {
		known[k] = make([]int64, len(x.topology.cells))
		for i := range known[k] {
			known[k][i] = unknown
		}
	}
	best, top := int32(-1), int64(-1)
	for _, i := range cells {
		if x.topology.caps[k][i] == 0 {
			continue
		}
		if known[k][i] == unknown {
			known[k][i] = x.score(k, i)
		}
		if s := known[k][i]; s > top || s == top && best > i {
			best, top = i, s
		}
	}
	if best < 0 {
		return false
	}
	at := &x.topology.cells[best]
	a, score, refusal := x.choose(k, at.restrict(x.peek(at.node)))
	if refusal != nil {
		return false
	}
	x.book(k, at.node, a)
	x.addScore(score, 1)
	x.parts = append(x.parts, part{k, best, []vgpu.Assignment{a}})
	for _, scores := range known { // the member changed the node
		for i := range scores {
			if x.topology.cells[i].node == at.node {
				scores[i] = unknown
			}
		}
	}
	return true
}

// score returns the policy's score of a cell for the next member of a class, −1 where the member does not fit.
func (x *attempt) score(k int, i int32) int64 {
	at := &x.topology.cells[i]
	if x.allowed(k, at.node) == 0 {
		return -1
	}
	n := at.restrict(x.peek(at.node))
	x.topology.snapshot.stats.Fits++
	return placement.Score(n, x.request(k), x.topology.snapshot.policy)
}
