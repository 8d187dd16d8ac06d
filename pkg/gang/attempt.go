package gang

import (
	"cmp"
	"slices"

	"github.com/tandem-gpu/tandem/pkg/vgpu"
)

// attempt is a placement on copies of the nodes that it uses.
type attempt struct {
	topology *topology
	scratch  map[int32]*vgpu.Node
	admitted map[[2]int]int
	parts    []part
	// placed counts the placed members by class, all counts them all.
	placed []int
	all    int
	// scoreSum is the sum of the policy's scores, in two parts, since it needs more than 64 bits. gain is the same in
	// milli-GPU.
	scoreSum [2]int64
	gain     int64
}

// part is members of one class on one cell, in the order of their ranks.
type part struct {
	class  int
	cell   int32
	places []vgpu.Assignment
}

func (t *topology) attempt() *attempt {
	return &attempt{
		topology: t, scratch: map[int32]*vgpu.Node{}, admitted: map[[2]int]int{}, placed: make([]int, len(t.caps)),
	}
}

// node returns the attempt's copy of a node, to write.
func (x *attempt) node(i int32) *vgpu.Node {
	n := x.scratch[i]
	if n == nil {
		n = x.topology.snapshot.nodes[i].Clone()
		x.scratch[i] = n
	}
	return n
}

// peek returns the node as the attempt has it, to read.
func (x *attempt) peek(i int32) *vgpu.Node {
	if n := x.scratch[i]; n != nil {
		return n
	}
	return x.topology.snapshot.nodes[i]
}

// fill puts the load on the cells in their order, class by class: each cell takes as many as it can. The result says
// whether all members have a place.
//
// The search is greedy for unlike members: no member moves after its placement. See docs/decisions/0014 for what that
// misses.
func (x *attempt) fill(order []int32, classes []int, l *load) bool {
	for _, k := range classes {
		left := l.counts[k]
		for _, i := range order {
			if left == 0 {
				break
			}
			if x.topology.caps[k][i] > 0 {
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

// bySize orders the classes of a load by the size of their members' requests, the largest first, then by rank.
func (t *topology) bySize(l *load) []int {
	order := make([]int, len(l.counts))
	for k := range order {
		order[k] = k
	}
	slices.SortStableFunc(order, func(a, b int) int { return cmp.Compare(t.weight(b), t.weight(a)) })
	return order
}

// scarcest orders the classes of a load by the part of their capacity on the cells that they need. The largest part
// comes first, then the larger members, then the lower rank.
func (t *topology) scarcest(cells []int32, l *load) []int {
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

// allowed returns how many more members of a class the host of a node takes.
func (x *attempt) allowed(k int, node int32) int {
	snap := x.topology.snapshot
	if snap.hostRule == hostsIgnored {
		return unlimited
	}
	c := &snap.members.classes[k]
	most := timesRoom(x.peek(node).Room(), c.request.Host)
	if snap.hostRule == hostsIfEmpty && snap.barredBy(c.kind, int(node)) != "" {
		return 0
	}
	if snap.hostRule == hostsAsTheyAre && snap.c.Admits != nil {
		most = min(most, snap.c.Admits(c.kind, int(node))-x.admitted[[2]int{c.kind, int(node)}])
	}
	return max(0, most)
}

// request returns the request of the next member of a class.
func (x *attempt) request(k int) *vgpu.Request {
	mc := x.topology.snapshot.members
	return &mc.g.Members[mc.classes[k].members[x.placed[k]]].Request
}

// put places up to `most` members of a class on a cell, and returns how many it placed.
func (x *attempt) put(k int, i int32, most int) int {
	at := &x.topology.cells[i]
	most = min(most, x.allowed(k, at.node))
	p := part{class: k, cell: i}
	for most > len(p.places) {
		a, score, refusal := x.choose(k, at.restrict(x.peek(at.node)))
		if refusal != nil {
			break
		}
		before := len(p.places)
		if x.takesWholeDevices(&a, most-before) {
			p.places = append(p.places, x.putLinked(k, i, &a, most-before)...)
		} else {
			x.book(k, at.node, a)
			p.places = append(p.places, a)
		}
		x.addScore(score, len(p.places)-before)
	}
	if len(p.places) > 0 {
		x.parts = append(x.parts, p)
	}
	return len(p.places)
}

// choose lets the policy choose devices of a node for the next member of a class.
func (x *attempt) choose(k int, n *vgpu.Node) (vgpu.Assignment, int64, *vgpu.Refusal) {
	x.topology.snapshot.stats.Fits++
	return x.topology.snapshot.policy.AssignScored(n, x.request(k))
}

// addScore adds the score of as many members.
func (x *attempt) addScore(score int64, members int) {
	const low = 10_000_000_000
	x.scoreSum[0] += score / low * int64(members)
	x.scoreSum[1] += score % low * int64(members)
	x.gain += x.topology.snapshot.policy.Gain(score) * int64(members)
}

// book adds a member to the attempt's copy of a node.
func (x *attempt) book(k int, node int32, a vgpu.Assignment) {
	n := x.node(node)
	c := &x.topology.snapshot.members.classes[k]
	if len(a.Containers) > 0 {
		if err := n.Add(a); err != nil {
			panic(err) // placement has checked that the assignment fits
		}
	}
	n.SetRoom(n.Room().Minus(c.request.Host))
	x.admitted[[2]int{c.kind, int(node)}]++
	x.placed[k]++
	x.all++
}

// takesWholeDevices reports whether up to `most` members of one container, placed as a is, take several whole devices
// together.
func (x *attempt) takesWholeDevices(a *vgpu.Assignment, most int) bool {
	if len(a.Containers) != 1 {
		return false
	}
	node, _ := x.topology.snapshot.find(a.Node)
	n := x.topology.snapshot.nodes[node]
	s := a.Containers[0].Share
	return s.Whole(n.Devices()[n.Index(a.Containers[0].Devices[0])].Slots) && most*s.Devices > 1
}

// better orders attempts of equal spreads: the higher sum of scores is better.
func (x *attempt) better(o *attempt) bool {
	return cmp.Or(cmp.Compare(x.scoreSum[0], o.scoreSum[0]), cmp.Compare(x.scoreSum[1], o.scoreSum[1])) > 0
}

// fits returns why a member of a class does not fit on a cell in the attempt, nil where it fits.
func (x *attempt) fits(k int, i int32) *vgpu.Refusal {
	at := &x.topology.cells[i]
	return x.topology.snapshot.policy.Fit(at.restrict(x.peek(at.node)), x.topology.snapshot.members.classes[k].request)
}
