package placement

import (
	"slices"

	"github.com/tandem-gpu/tandem/pkg/fragmentation"
	"github.com/tandem-gpu/tandem/pkg/vgpu"
)

// outline is what a rough score of a node in one state needs. The zero value stands for a node that has none.
type outline struct {
	// shape numbers the shape of the devices.
	shape int32
	// places are the devices that differ, by what is free and whether they have tenants.
	places []outlined
	free   []vgpu.Slots
	room   vgpu.Room
	// sketched is by the sketch with the number.
	sketched fragmentation.Sketched
	sketch   int
}

// outlined is like devices of a node.
type outlined struct {
	free  vgpu.Use
	taken bool
	count int
}

// outlineOf returns the outline of a node for a request: the same for all where the node has no holds.
func (k *Ranking) outlineOf(n *vgpu.Node, r *vgpu.Request) outline {
	var o outline
	devices := n.Devices()
	if len(devices) == 0 || len(devices) > maxOnStack || slices.ContainsFunc(devices, func(d vgpu.Device) bool { return d.Slots > maxSketched }) {
		return o
	}
	for i := range devices {
		if n.Shape(i) != n.Shape(0) {
			return outline{}
		}
		next := outlined{free: n.FreeFor(i, r), taken: n.Used(i).Slots > 0, count: 1}
		o.free = append(o.free, next.free.Slots)
		at := slices.IndexFunc(o.places, func(p outlined) bool { return p.free == next.free && p.taken == next.taken })
		if at < 0 {
			o.places = append(o.places, next)
		} else {
			o.places[at].count++
		}
	}
	o.room = n.Room()
	shape, known := k.shapes[devices[0].Shape()]
	if !known {
		shape = int32(len(k.shapes) + 1)
		k.shapes[devices[0].Shape()] = shape
	}
	o.shape = shape
	return o
}

// maxSketched is the number of slots up to which devices have a sketch.
const maxSketched = 128

// taking is what a kind of request takes of devices of one shape.
type taking struct {
	known, legal bool
	use          vgpu.Use
	devices      int
	dearer       int
	table        *fragmentation.SketchTable
	take         fragmentation.Taking
	// lost is the milli-GPU × percent that the request loses on the model.
	lost int64
}

// takingOf returns what the request takes of devices like the node's.
func (s *Scores) takingOf(n *vgpu.Node, shape int32, r *vgpu.Request) *taking {
	for int(shape) >= len(s.takings) {
		s.takings = append(s.takings, taking{})
	}
	t := &s.takings[shape]
	if t.known {
		return t
	}
	p, d := &s.ranking.policy, &n.Devices()[0]
	t.known, t.devices, t.table = true, 1, s.ranking.sketch.On(d.Model, d.Slots)
	if len(r.Containers) > 0 {
		var share vgpu.Share
		share, t.legal = r.ShareOn(0, d)
		t.use, t.devices, t.dearer = share.Use(), share.Devices, r.CostRank(d.Model)
	} else {
		t.legal = true
	}
	if p.neighbours != nil {
		of := int64(t.devices) * int64(vgpu.ComputeOf(t.use.Slots, d.Slots))
		t.lost = p.neighbours.Weights.Heterogeneity * of * int64(r.Loss(d.Model)) / int64(vgpu.WholeGPU)
	}
	if t.table != nil {
		t.take = t.table.Take(t.use.Slots, t.devices, r.Host)
	}
	return t
}

// rough returns a rough score of the node in the state, −1 where the request does not fit. Larger is better. A node that
// has no outline gets the largest.
func (s *Scores) rough(n *vgpu.Node, at State, r *vgpu.Request) int32 {
	k := s.ranking
	s.renew()
	if at.era != k.era {
		o := k.outlineOf(n, r)
		return s.roughOf(n, &o, r)
	}
	if count := len(s.roughs); at.number >= count {
		s.roughs = append(s.roughs, make([]int32, len(k.states)-count)...)
		for i := count; i < len(s.roughs); i++ {
			s.roughs[i] = unscored
		}
	}
	if s.roughs[at.number] == unscored {
		s.roughs[at.number] = s.roughOf(n, &k.outlines[at.number], r)
	}
	return s.roughs[at.number]
}

func (s *Scores) roughOf(n *vgpu.Node, o *outline, r *vgpu.Request) int32 {
	k := s.ranking
	if o.shape == 0 {
		return roughMax
	}
	t := s.takingOf(n, o.shape, r)
	if !t.legal {
		return -1
	}
	if t.table == nil {
		return roughMax
	}
	if o.sketch != k.sketches {
		o.sketched, o.sketch = t.table.Node(o.free, o.room), k.sketches
	}
	fit := 0
	for i := range o.places {
		if t.use.Within(o.places[i].free) {
			fit += o.places[i].count
		}
	}
	switch {
	case fit < t.devices:
		return -1
	case !r.Host.Within(o.room):
		return 0 // other plugins will refuse the node
	}
	best := int32(0)
	for i := range o.places {
		if p := &o.places[i]; t.use.Within(p.free) {
			best = max(best, k.roughly(o, p, t, r))
		}
	}
	return best
}

// The parts of a rough score: 24 bits for the gain, one for a place without neighbours, and above them the rank of the
// cost.
const (
	roughGain  = 1 << 24
	roughAlone = 1 << 24
	roughCost  = 1 << 25
	roughMax   = 1<<31 - 1
)

func (k *Ranking) roughly(o *outline, p *outlined, t *taking, r *vgpu.Request) int32 {
	lost, unfilled := o.sketched.Gain(&t.take, p.free.Slots)
	gain := (starvedPart*lost + unfilledPart*unfilled) / ((starvedPart + unfilledPart) * k.policy.mix.Weight())
	score := int64(maxBehind-min(maxBehind, t.dearer)) * roughCost
	if among := k.policy.neighbours; among != nil {
		gain = (gain*among.Weights.Fragmentation - t.lost) / 100
		if !among.Scarce && !p.taken && among.known(r.Workload) != 0 {
			score += roughAlone
		}
	}
	return int32(score + max(0, min(roughGain-2, gain+roughGain/2)))
}
