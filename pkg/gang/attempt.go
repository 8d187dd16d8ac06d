package gang

import (
	"cmp"
	"slices"

	"github.com/tandem-gpu/tandem/pkg/vgpu"
)

// trial is a placement that is tried on copies of the nodes that it touches.
type trial struct {
	chart    *chart
	scratch  map[int32]*vgpu.Node
	admitted map[[2]int]int
	parts    []part
	// placed members by class, and of all.
	placed []int
	all    int
	// worth is the sum of the policy's scores, in two parts, since it is larger than 64 bits; gain that in milli-GPU.
	worth [2]int64
	gain  int64
}

// part is members of one class on one cell, in the order of their ranks.
type part struct {
	class  int
	cell   int32
	places []vgpu.Assignment
}

func (t *chart) trial() *trial {
	return &trial{
		chart: t, scratch: map[int32]*vgpu.Node{}, admitted: map[[2]int]int{}, placed: make([]int, len(t.caps)),
	}
}

// node returns the copy of a node.
func (x *trial) node(i int32) *vgpu.Node {
	n := x.scratch[i]
	if n == nil {
		n = x.chart.ground.nodes[i].Clone()
		x.scratch[i] = n
	}
	return n
}

// peek returns the node as it is in the trial, to read.
func (x *trial) peek(i int32) *vgpu.Node {
	if n := x.scratch[i]; n != nil {
		return n
	}
	return x.chart.ground.nodes[i]
}

// fill puts the load on the cells in their order, class by class: each cell takes as many as it can. It reports whether
// all have a place.
//
// Greedy for unlike members: none moves once it is placed. See docs/decisions/0014 for what that misses.
func (x *trial) fill(order []int32, classes []int, l *load) bool {
	for _, k := range classes {
		left := l.counts[k]
		for _, i := range order {
			if left == 0 {
				break
			}
			if x.chart.caps[k][i] > 0 {
				left -= x.put(k, i, left)
			}
		}
	}
	return int64(x.all) == members(l)
}

func members(l *load) (all int64) {
	for _, n := range l.counts {
		all += int64(n)
	}
	return all
}

// bySize orders the classes of a load by what their members ask for, the largest first, then by rank.
func (t *chart) bySize(l *load) []int {
	order := make([]int, len(l.counts))
	for k := range order {
		order[k] = k
	}
	slices.SortStableFunc(order, func(a, b int) int { return cmp.Compare(t.weight(b), t.weight(a)) })
	return order
}

// scarcest orders the classes of a load by the part of the room for them that they need, the largest first, then by
// size, then by rank.
func (t *chart) scarcest(cells []int32, l *load) []int {
	order, part := t.bySize(l), make([]float64, len(l.counts))
	for k := range part {
		sum := 0
		for _, i := range cells {
			sum += min(int(t.caps[k][i]), l.counts[k])
		}
		part[k] = float64(l.counts[k]) / float64(max(1, sum))
	}
	slices.SortStableFunc(order, func(a, b int) int { return cmp.Compare(part[b], part[a]) })
	return order
}

// allowed returns how many more of a class the host of a node takes.
func (x *trial) allowed(k int, node int32) int {
	f := x.chart.ground
	if f.hosting == notAtAll {
		return enough
	}
	c := &f.crew.classes[k]
	most := timesRoom(x.peek(node).Room(), c.request.Host)
	if f.hosting == ifEmpty && f.bar(c.kind, int(node)) != "" {
		return 0
	}
	if f.hosting == asTheyAre && f.c.Admits != nil {
		most = min(most, f.c.Admits(c.kind, int(node))-x.admitted[[2]int{c.kind, int(node)}])
	}
	return max(0, most)
}

// request returns that of the next member of a class.
func (x *trial) request(k int) *vgpu.Request {
	w := x.chart.ground.crew
	return &w.g.Members[w.classes[k].members[x.placed[k]]].Request
}

// put puts up to so many members of a class on a cell, and returns how many have a place there.
func (x *trial) put(k int, i int32, most int) int {
	at := &x.chart.cells[i]
	most = min(most, x.allowed(k, at.node))
	p := part{class: k, cell: i}
	for most > len(p.places) {
		a, score, refusal := x.choose(k, at.restrict(x.peek(at.node)))
		if refusal != nil {
			break
		}
		before := len(p.places)
		if x.set(&a, most-before) {
			p.places = append(p.places, x.linked(k, i, &a, most-before)...)
		} else {
			x.book(k, at.node, a)
			p.places = append(p.places, a)
		}
		x.count(score, len(p.places)-before)
	}
	if len(p.places) > 0 {
		x.parts = append(x.parts, p)
	}
	return len(p.places)
}

// choose asks the policy for devices of a node for the next member of a class.
func (x *trial) choose(k int, n *vgpu.Node) (vgpu.Assignment, int64, *vgpu.Refusal) {
	x.chart.ground.stats.Fits++
	return x.chart.ground.policy.AssignScored(n, x.request(k))
}

// count adds the scores of members that are placed.
func (x *trial) count(score int64, members int) {
	const low = 10_000_000_000
	x.worth[0] += score / low * int64(members)
	x.worth[1] += score % low * int64(members)
	x.gain += x.chart.ground.policy.Gain(score) * int64(members)
}

// book notes a member in the trial.
func (x *trial) book(k int, node int32, a vgpu.Assignment) {
	n := x.node(node)
	c := &x.chart.ground.crew.classes[k]
	if len(a.Containers) > 0 {
		if err := n.Add(a); err != nil {
			panic(err) // what placement chose fits
		}
	}
	n.SetRoom(n.Room().Minus(c.request.Host))
	x.admitted[[2]int{c.kind, int(node)}]++
	x.placed[k]++
	x.all++
}

// set reports whether up to so many members of one container, placed as a is, take several whole devices together.
func (x *trial) set(a *vgpu.Assignment, most int) bool {
	if len(a.Containers) != 1 {
		return false
	}
	node, _ := x.chart.ground.find(a.Node)
	n := x.chart.ground.nodes[node]
	s := a.Containers[0].Share
	return s.Whole(n.Devices()[n.Index(a.Containers[0].Devices[0])].Slots) && most*s.Devices > 1
}

// better orders trials of equal shape: the higher sum of scores is better.
func (x *trial) better(o *trial) bool {
	return cmp.Or(cmp.Compare(x.worth[0], o.worth[0]), cmp.Compare(x.worth[1], o.worth[1])) > 0
}

// fits reports whether a member of a class fits on a cell as the trial has it, and why not.
func (x *trial) fits(k int, i int32) *vgpu.Refusal {
	at := &x.chart.cells[i]
	return x.chart.ground.policy.Fit(at.restrict(x.peek(at.node)), x.chart.ground.crew.classes[k].request)
}
