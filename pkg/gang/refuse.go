package gang

import (
	"cmp"
	"math"
	"slices"

	"github.com/tandem-gpu/tandem/pkg/placement"
	"github.com/tandem-gpu/tandem/pkg/vgpu"
)

// refuse returns why there is no place for as many members as must get one.
func (s *search) refuse() *Refusal {
	r := &Refusal{Want: s.need, Of: len(s.g.Members), Placed: len(s.g.Placed), Share: s.share(), Level: s.tightest(), Cut: s.snapshot.stats.Cut}
	t := s.snapshot.topology(slices.Contains(s.g.Wishes.Required, NVLink))
	for _, key := range s.g.Wishes.Required {
		if !s.exists(key) && (key != NVLink || s.impossible()) { // one device needs no NVLink
			r.Reason, r.Level, r.Known = NoLevel, key, s.known()
			return r
		}
		if _, one := t.division(key).onlyDomain(); !one {
			r.Reason, r.Level = PlacedApart, key
			return r
		}
	}
	if s.impossible() {
		r.Reason = NeverFits
		snap := s.emptied()
		s.nearest(r, snap)
		r.Member = nil
		if s.possible(s.ignoringHosts(snap)) {
			r.Hosts = s.hostShortage(snap)
		}
		return r
	}
	r.Reason = NoRoom
	s.nearest(r, s.snapshot)
	if s.possible(s.ignoringHosts(s.snapshot)) {
		r.Hosts, r.Member = s.hostShortage(s.snapshot), nil
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
		return slices.ContainsFunc(s.snapshot.nodes, hasNVLink)
	}
	return slices.ContainsFunc(s.snapshot.c.level(key).Domain, func(d int32) bool { return d >= 0 })
}

// known lists the levels that nodes have.
func (s *search) known() []string {
	var keys []string
	for i := range s.snapshot.c.Levels {
		if key := s.snapshot.c.Levels[i].Key; s.exists(key) {
			keys = append(keys, key)
		}
	}
	if s.exists(NVLink) {
		keys = append(keys, NVLink)
	}
	slices.Sort(keys)
	return keys
}

// tightest returns the required level with the most domains, "" without one.
func (s *search) tightest() string {
	best, most := "", -1
	for _, key := range s.g.Wishes.Required {
		count := len(s.snapshot.nodes) + 1
		if key != NVLink {
			count = len(s.snapshot.c.level(key).Names)
		}
		if count > most {
			best, most = key, count
		}
	}
	return best
}

// ignoringHosts returns the snapshot without the limits of hosts.
func (s *search) ignoringHosts(snap *snapshot) *snapshot {
	other := snap.withNodes(func(_ int, n *vgpu.Node) *vgpu.Node { return n })
	other.hostRule = hostsIgnored
	return other
}

// emptied returns the snapshot with only the placed members, all devices healthy, all hosts empty.
func (s *search) emptied() *snapshot {
	others, c := s.members.isOther(), s.snapshot.c
	snap := s.snapshot.withNodes(func(i int, n *vgpu.Node) *vgpu.Node {
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
	snap.hostRule = hostsIfEmpty
	return snap
}

// problem returns the search for places in a snapshot, for the members that must get one.
func (s *search) problem(snap *snapshot) *problem {
	t := snap.topology(slices.Contains(s.g.Wishes.Required, NVLink))
	return t.problem(s.g.Wishes.Required, nil, true, t.load(s.members.countsOfFirst(s.need)))
}

// possible reports whether the members fit in a snapshot.
func (s *search) possible(snap *snapshot) bool {
	q := s.problem(snap)
	return q.try(q.domainsByBound(q.required)) != nil
}

// impossible reports whether the members would not fit even on the emptied cluster. For like members of one container
// the bounds are exact without a promise; with a promise, impossible tries real placements. For other members only what
// the bounds exclude is certainly impossible, since attempts are greedy.
func (s *search) impossible() bool {
	snap := s.emptied()
	q := s.problem(snap)
	list := q.domainsByBound(q.required)
	if len(list) == 0 {
		return true
	}
	if r := s.members.classes[0].request; len(s.members.classes) > 1 || len(r.Containers) != 1 || r.MaxSlowdown == 0 {
		return false // the bounds are exact, or no exact answer exists
	}
	return q.try(list) == nil && !snap.stats.Cut
}

// helps returns what would make room where the end of other pods does not.
func (s *search) helps() vgpu.Help {
	w := newWaitTimes(s.snapshot)
	healed := w.emptied().withNodes(func(_ int, n *vgpu.Node) *vgpu.Node { return n.Healed() })
	if s.possible(healed) {
		return vgpu.RecoveryHelps
	}
	return vgpu.EvictionHelps
}

// nearest sets the domain that takes the most members, and why the next member has no place there.
func (s *search) nearest(r *Refusal, snap *snapshot) {
	q := s.problem(snap)
	list := q.topology.domains(q.required)
	bound := func(d *domain) (sum int) {
		for k, n := range q.load.counts {
			takes := 0
			for _, i := range d.cells {
				takes += int(q.topology.caps[k][i])
			}
			sum += min(n, takes)
		}
		return sum
	}
	for i := range list {
		list[i].takes = int64(bound(&list[i]))
	}
	slices.SortStableFunc(list, func(a, b domain) int { return cmp.Compare(b.takes, a.takes) })
	var best *attempt
	var at *domain
	for i := range list {
		if best != nil && (list[i].takes <= int64(best.all) || i >= snap.maxDomains) {
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

// name returns the name of a domain of the required levels: that of the level with the most domains.
func (q *problem) name(d *domain) string {
	name, most := "", int32(-1)
	for _, v := range q.required {
		if v.named > most {
			name, most = v.name(v.of[d.cells[0]]), v.named
		}
	}
	return name
}

// miss returns the nearest miss on the cells of the first class that has members without a place.
func (x *attempt) miss(cells []int32, l *load) *vgpu.Refusal {
	for k, n := range l.counts {
		if x.placed[k] == n || len(x.topology.snapshot.members.classes[k].request.Containers) == 0 {
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
