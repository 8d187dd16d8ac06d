package gang

import (
	"cmp"
	"math"
	"slices"

	"github.com/tandem-gpu/tandem/pkg/placement"
	"github.com/tandem-gpu/tandem/pkg/vgpu"
)

// refuse says why there is no place for as many members as must get one.
func (s *search) refuse() *Refusal {
	r := &Refusal{Want: s.need, Of: len(s.g.Members), Placed: len(s.g.Placed), Share: s.share(), Level: s.tightest(), Cut: s.ground.stats.Cut}
	t := s.ground.chart(slices.Contains(s.g.Wishes.Required, NVLink))
	for _, key := range s.g.Wishes.Required {
		if !s.exists(key) {
			r.Reason, r.Level, r.Known = NoLevel, key, s.known()
			return r
		}
		if _, one := t.division(key).whole(); !one {
			r.Reason, r.Level = PlacedApart, key
			return r
		}
	}
	if s.never() {
		r.Reason = NeverFits
		f := s.emptiest()
		s.nearest(r, f)
		r.Member = nil
		if s.possible(s.unhosted(f)) {
			r.Hosts = s.hosts(f)
		}
		return r
	}
	r.Reason = NoRoom
	s.nearest(r, s.ground)
	if s.possible(s.unhosted(s.ground)) {
		r.Hosts, r.Member = s.hosts(s.ground), nil
	}
	if d := s.drain(); d != nil {
		r.Helps, r.After, r.Blockers = vgpu.EvictionHelps, d.name, d.blockers
		return r
	}
	if r.Helps = vgpu.EvictionHelps; r.Hosts == nil {
		r.Helps = s.helps()
	}
	return r
}

// exists reports whether any node has a level.
func (s *search) exists(key string) bool {
	if key == NVLink {
		return slices.ContainsFunc(s.ground.nodes, linked)
	}
	return slices.ContainsFunc(s.ground.c.level(key).Domain, func(d int32) bool { return d >= 0 })
}

// known lists the levels that nodes have.
func (s *search) known() []string {
	var keys []string
	for i := range s.ground.c.Levels {
		if key := s.ground.c.Levels[i].Key; s.exists(key) {
			keys = append(keys, key)
		}
	}
	if s.exists(NVLink) {
		keys = append(keys, NVLink)
	}
	slices.Sort(keys)
	return keys
}

// tightest returns the required level with the most domains, "" where none is required.
func (s *search) tightest() string {
	best, most := "", -1
	for _, key := range s.g.Wishes.Required {
		count := len(s.ground.nodes) + 1
		if key != NVLink {
			count = len(s.ground.c.level(key).Names)
		}
		if count > most {
			best, most = key, count
		}
	}
	return best
}

// unhosted returns the ground as if the hosts had room for everything.
func (s *search) unhosted(f *ground) *ground {
	other := f.on(func(_ int, n *vgpu.Node) *vgpu.Node { return n })
	other.hosting = notAtAll
	return other
}

// emptiest returns the ground with nothing on it but the members with a place, all devices healthy, all hosts empty.
func (s *search) emptiest() *ground {
	others, c := s.crew.others(), s.ground.c
	f := s.ground.on(func(i int, n *vgpu.Node) *vgpu.Node {
		empty := n.Healed()
		if taken, _ := n.Taken(); taken > 0 || n.Held() {
			empty = empty.Without(func(h *vgpu.Hold, _ bool) bool { return others(h.UID) })
		} else if empty == n {
			empty = n.Clone()
		}
		room := vgpu.Room{MilliCPU: math.MaxInt64, Memory: math.MaxInt64}
		if c.Hosts != nil {
			room = c.Hosts(i)
		}
		empty.SetRoom(room)
		return empty
	})
	f.hosting = ifEmpty
	return f
}

// task asks where the members that must get a place fit on a ground.
func (s *search) task(f *ground) *task {
	t := f.chart(slices.Contains(s.g.Wishes.Required, NVLink))
	return t.task(s.g.Wishes.Required, nil, true, t.load(s.crew.first(s.need)))
}

// possible reports whether the members fit on a ground.
func (s *search) possible(f *ground) bool {
	q := s.task(f)
	return q.try(q.candidates(q.required)) != nil
}

// never reports whether the members would not even fit on the emptied cluster. Members that are alike, of one container
// and with a promise are tried; without one the bounds are exact. For others only what the bounds exclude is impossible
// for certain, since trials are greedy.
func (s *search) never() bool {
	f := s.emptiest()
	q := s.task(f)
	list := q.candidates(q.required)
	if len(list) == 0 {
		return true
	}
	if r := s.crew.classes[0].request; len(s.crew.classes) > 1 || len(r.Containers) != 1 || r.MaxSlowdown == 0 {
		return false // the bounds are exact, or nothing is
	}
	return q.try(list) == nil && !f.stats.Cut
}

// helps says what would make room where the pods of others do not.
func (s *search) helps() vgpu.Help {
	w := newWait(s.ground)
	healed := w.emptied().on(func(_ int, n *vgpu.Node) *vgpu.Node { return n.Healed() })
	if s.possible(healed) {
		return vgpu.RecoveryHelps
	}
	return vgpu.EvictionHelps
}

// nearest fills in the domain that takes the most of the members, and why the next one has no place there.
func (s *search) nearest(r *Refusal, f *ground) {
	q := s.task(f)
	list := q.chart.domains(q.required)
	bound := func(d *domain) (sum int) {
		for k, n := range q.load.counts {
			takes := 0
			for _, i := range d.cells {
				takes += int(q.chart.caps[k][i])
			}
			sum += min(n, takes)
		}
		return sum
	}
	for i := range list {
		list[i].takes = int64(bound(&list[i]))
	}
	slices.SortStableFunc(list, func(a, b domain) int { return cmp.Compare(b.takes, a.takes) })
	var best *trial
	var at *domain
	for i := range list {
		if best != nil && (list[i].takes <= int64(best.all) || i >= f.most) {
			break
		}
		x, _ := q.place(list[i].cells)
		if best == nil || x.all > best.all {
			best, at = x, &list[i]
		}
	}
	if best == nil {
		return
	}
	r.Best, r.Nearest = best.all, q.name(at)
	r.Member = best.miss(at.cells, &q.load)
}

// name returns the name of a domain of the required levels: that of the tightest.
func (q *task) name(d *domain) string {
	name, most := "", int32(-1)
	for _, v := range q.required {
		if v.named > most {
			name, most = v.name(v.of[d.cells[0]]), v.named
		}
	}
	return name
}

// miss returns why the first class that has members left has no place on the cells: the nearest miss.
func (x *trial) miss(cells []int32, l *load) *vgpu.Refusal {
	for k, n := range l.counts {
		if x.placed[k] == n || len(x.chart.ground.crew.classes[k].request.Containers) == 0 {
			continue
		}
		var all []vgpu.Refusal
		for _, i := range cells {
			if refusal := x.fits(k, i); refusal != nil {
				all = append(all, *refusal)
			}
		}
		if nearest, some := placement.Nearest(all); some {
			return &nearest
		}
	}
	return nil
}
