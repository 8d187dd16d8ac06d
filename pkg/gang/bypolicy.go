package gang

import (
	"github.com/tandem-gpu/tandem/pkg/placement"
	"github.com/tandem-gpu/tandem/pkg/vgpu"
)

// scatter puts the load on the cells one member after the other, in the order of ranks, each where the policy puts a
// single pod: on the node with the highest score, the first by name among equals. Members for whom the cells that come
// first have no room go to the others. It reports whether all have a place.
func (x *trial) scatter(order []int32, used int, l *load) bool {
	known := make([][]int64, len(l.counts))
	for at := range x.chart.ground.crew.order[:int(members(l))] {
		k := x.chart.ground.crew.classOf[at]
		if !x.settle(k, order[:used], known) && !x.settle(k, order[used:], known) {
			return false
		}
	}
	return true
}

// unknown stands where there is no score yet: scores are −1 or more.
const unknown = -2

// settle puts one member of a class on the best of the cells. Scores are remembered by class and cell.
func (x *trial) settle(k int, cells []int32, known [][]int64) bool {
	if known[k] == nil {
		known[k] = make([]int64, len(x.chart.cells))
		for i := range known[k] {
			known[k][i] = unknown
		}
	}
	best, top := int32(-1), int64(-1)
	for _, i := range cells {
		if x.chart.caps[k][i] == 0 {
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
	at := &x.chart.cells[best]
	a, score, refusal := x.choose(k, at.restrict(x.peek(at.node)))
	if refusal != nil {
		return false
	}
	x.book(k, at.node, a)
	x.count(score, 1)
	x.parts = append(x.parts, part{k, best, []vgpu.Assignment{a}})
	for _, scores := range known { // the node is not what it was
		for i := range scores {
			if x.chart.cells[i].node == at.node {
				scores[i] = unknown
			}
		}
	}
	return true
}

// score returns the policy's score of a cell for the next member of a class, −1 where it does not fit.
func (x *trial) score(k int, i int32) int64 {
	at := &x.chart.cells[i]
	if x.allowed(k, at.node) == 0 {
		return -1
	}
	n := at.restrict(x.peek(at.node))
	x.chart.ground.stats.Fits++
	return placement.Score(n, x.request(k), x.chart.ground.policy)
}
