package sim_test

import (
	"slices"
	"time"

	"pgregory.net/rapid"

	"github.com/tandem-gpu/tandem/pkg/gang"
	"github.com/tandem-gpu/tandem/pkg/placement"
	"github.com/tandem-gpu/tandem/pkg/sim"
	"github.com/tandem-gpu/tandem/pkg/vgpu"
	"github.com/tandem-gpu/tandem/test/must"
)

// fate is an outcome in brief.
type fate struct {
	Placed         bool
	Started, Ended time.Duration
	Where          vgpu.Assignment
}

func brief(h *sim.History) []fate {
	all := make([]fate, 0, len(h.Outcomes))
	for i := range h.Outcomes {
		o := &h.Outcomes[i]
		all = append(all, fate{o.State.Placed(), o.Started, o.Ended, o.Assignment})
	}
	return all
}

// twin plays a setup second by second. It makes the cluster anew for every decision, from the pods that are there at that
// time, and lets placement.Choose, which the simulator does not use, pick among the nodes whose hosts have room.
func twin(t *rapid.T, s sim.Setup) []fate {
	w := &world{
		t: t, s: s, policy: s.Policy.With(s.Mix, s.Seed), fates: make([]fate, len(s.Jobs)), gone: map[int]bool{},
		here: map[int]bool{}, gangs: map[*sim.Gang]*turn{},
	}
	for i := range s.Jobs {
		if own := s.Jobs[i].Gang; own != nil && w.gangs[own] == nil {
			w.gangs[own] = &turn{failed: map[string]bool{}}
		}
	}
	for now := time.Duration(0); now <= 500*time.Second; now += time.Second {
		if w.someEnd(now) { // those that wait are tried after an end only, or when room is let go: nothing else makes room
			w.again(now)
		}
		w.look(now)
		w.arrivals(now)
	}
	return w.fates
}

type world struct {
	t      *rapid.T
	s      sim.Setup
	policy placement.Policy
	fates  []fate
	gone   map[int]bool
	here   map[int]bool // jobs that have arrived; of a gang the first member
	gangs  map[*sim.Gang]*turn
	// kept is the gang that room is kept for since a time, with the holds, the places and the pods that it waits for.
	kept    *sim.Gang
	since   time.Duration
	holds   []vgpu.Hold
	places  []vgpu.Assignment
	leavers []gang.Blocker
}

// turn is when it is a gang's turn to have room kept. woken says that it is to be tried for that.
type turn struct {
	refused, woken bool
	short, look    time.Duration
	timesDry       int
	failed         map[string]bool
}

// again tries those that wait until no room is let go any more.
func (w *world) again(now time.Duration) {
	for w.earlier(now, nil) {
	}
}

// someEnd reports whether a pod ends now.
func (w *world) someEnd(now time.Duration) bool {
	for i := range w.fates {
		if w.fates[i].Placed && w.s.Jobs[i].Duration > 0 && w.fates[i].Ended == now {
			return true
		}
	}
	return false
}

// earlier tries those that have arrived, or one gang only, those of the highest priority first, then in the order of their arrival,
// until room that was kept is let go: then it returns true.
func (w *world) earlier(now time.Duration, only *sim.Gang) bool {
	kept := w.kept
	var all []int
	for i := range w.s.Jobs {
		if w.here[i] {
			all = append(all, i)
		}
	}
	slices.SortFunc(all, func(a, b int) int {
		if w.precedes(a, b) {
			return -1
		}
		return 1
	})
	for _, i := range all {
		if only == nil || w.s.Jobs[i].Gang == only {
			w.try(i, now)
		}
		if kept != nil && w.kept != kept {
			return true
		}
	}
	return false
}

// precedes reports whether job a is tried before job b.
func (w *world) precedes(a, b int) bool {
	x, y := &w.s.Jobs[a], &w.s.Jobs[b]
	if x.Request.Priority != y.Request.Priority {
		return x.Request.Priority > y.Request.Priority
	}
	return x.Arrive < y.Arrive || x.Arrive == y.Arrive && a < b
}

// arrivals tries those that arrive now.
func (w *world) arrivals(now time.Duration) {
	for i := range w.s.Jobs {
		if w.s.Jobs[i].Arrive != now || w.first(i) != i {
			continue
		}
		w.here[i] = true
		if !w.try(i, now) && w.s.Queue == sim.Drop {
			for k := range w.s.Jobs {
				w.gone[k] = w.gone[k] || w.first(k) == i
			}
		}
		w.look(now)
	}
}

// first returns the first member of a job's gang, the job itself where it has none.
func (w *world) first(i int) int {
	for k := range w.s.Jobs {
		if g := w.s.Jobs[i].Gang; g != nil && w.s.Jobs[k].Gang == g {
			return k
		}
	}
	return i
}

// try places a job, or a gang at its first member, unless others are before it.
func (w *world) try(i int, now time.Duration) bool {
	if w.first(i) != i || w.fates[i].Placed || w.gone[i] || w.s.Queue == sim.FIFO && w.somebodyBefore(i) {
		return false
	}
	if w.s.Jobs[i].Gang != nil {
		return w.placeGang(i, now)
	}
	return w.place(i, now)
}

// somebodyBefore reports whether a pod, or a gang, waits that is tried before job i.
func (w *world) somebodyBefore(i int) bool {
	for k := range w.s.Jobs {
		f := w.first(k)
		if w.here[f] && f != i && w.precedes(f, i) && !w.fates[k].Placed && !w.gone[k] {
			return true
		}
	}
	return false
}

// present makes the nodes as they are now, by name.
func (w *world) present(now time.Duration) []*vgpu.Node {
	var nodes []*vgpu.Node
	for _, n := range w.s.Nodes {
		n = n.Clone()
		for k := range w.fates {
			f := &w.fates[k]
			if f.Placed && f.Where.Node == n.Name() && (w.s.Jobs[k].Duration == 0 || now < f.Ended) {
				w.book(n, k)
			}
		}
		for _, hold := range w.holds {
			if hold.Node != n.Name() {
				continue
			}
			must.OK(w.t, n.Hold(hold))
		}
		nodes = append(nodes, n)
	}
	return byName(nodes)
}

// request is that of a job that starts now.
func (w *world) request(i int, now time.Duration) vgpu.Request {
	r := w.s.Jobs[i].Request
	if w.s.Jobs[i].DeclaresEnd {
		r.Ends = int64((now+w.s.Jobs[i].Duration)/time.Second) + 1
	}
	return r
}

func (w *world) place(i int, now time.Duration) bool {
	r := w.request(i, now)
	nodes := slices.DeleteFunc(w.present(now), func(n *vgpu.Node) bool { return !r.Host.Within(n.Room()) })
	c, err := vgpu.NewCluster(nodes...)
	must.OK(w.t, err)
	a := w.choose(c, &r)
	if a == nil {
		return false
	}
	w.begin(i, now, *a)
	return true
}

func (w *world) begin(i int, now time.Duration, a vgpu.Assignment) {
	w.fates[i] = fate{Placed: true, Started: now, Where: a}
	if w.s.Jobs[i].Duration > 0 {
		w.fates[i].Ended = now + w.s.Jobs[i].Duration
	}
}

// wanted is a gang that starts now, and the cluster as it sees it.
func (w *world) wanted(first int, now time.Duration) (*gang.Cluster, *gang.Group, []int) {
	own := w.s.Jobs[first].Gang
	c := &gang.Cluster{Nodes: w.present(now), Ends: func(uid vgpu.UID, _ string) int64 {
		for i := range w.s.Jobs {
			switch {
			case w.s.Jobs[i].Request.UID != uid:
			case w.s.Jobs[i].DeclaresEnd:
				return int64(w.fates[i].Ended/time.Second) + 1
			case w.s.Jobs[i].Duration > 0:
				return 0
			}
		}
		return gang.Never
	}}
	c.Host = func(uid vgpu.UID, _ string) vgpu.Room {
		for i := range w.s.Jobs {
			if w.s.Jobs[i].Request.UID == uid {
				return w.s.Jobs[i].Request.Host
			}
		}
		return vgpu.Room{}
	}
	empty := byName(slices.Clone(w.s.Nodes))
	c.Hosts = func(node int) vgpu.Room { return empty[node].Room() }
	g := &gang.Group{Name: own.Name, MinCount: own.MinCount, Wishes: own.Wishes}
	var jobs []int
	for i := range w.s.Jobs {
		if w.s.Jobs[i].Gang == own {
			g.Members = append(g.Members, gang.Member{Request: w.request(i, now), Rank: len(jobs)})
			jobs = append(jobs, i)
		}
	}
	if g.MinCount == 0 {
		g.MinCount = len(jobs)
	}
	for _, key := range slices.Concat(own.Wishes.Required, own.Wishes.Preferred) {
		if key == gang.NVLink {
			continue
		}
		l := gang.Level{Key: key}
		for _, n := range c.Nodes {
			if domain := domainOf(&w.s, key, n.Name()); domain[0] != '!' && !slices.Contains(l.Names, domain) {
				l.Names = append(l.Names, domain)
			}
		}
		slices.Sort(l.Names)
		for _, n := range c.Nodes {
			l.Domain = append(l.Domain, int32(slices.Index(l.Names, domainOf(&w.s, key, n.Name()))))
		}
		c.Levels = append(c.Levels, l)
	}
	return c, g, jobs
}

func (w *world) placeGang(first int, now time.Duration) bool {
	own := w.s.Jobs[first].Gang
	c, g, jobs := w.wanted(first, now)
	plan, err := gang.Place(c, g, gang.Config{Policy: w.policy})
	must.OK(w.t, err)
	if plan.Places == nil {
		if turn := w.gangs[own]; !turn.refused {
			turn.refused, turn.short, turn.look = true, now, now+w.s.Gangs.DrainAfter
		}
		w.refuse(first, now)
		return false
	}
	if w.kept == own {
		w.kept, w.holds = nil, nil
	}
	for i, job := range jobs {
		if plan.Places[i].Node == "" {
			w.gone[job] = true
			continue
		}
		w.begin(job, now, plan.Places[i])
	}
	return true
}

func (w *world) started(own *sim.Gang) bool {
	for i := range w.s.Jobs {
		if w.s.Jobs[i].Gang == own && w.fates[i].Placed {
			return true
		}
	}
	return false
}

func (w *world) book(n *vgpu.Node, k int) {
	if len(w.fates[k].Where.Containers) > 0 {
		must.OK(w.t, n.Add(w.fates[k].Where))
	}
	n.SetRoom(n.Room().Minus(w.s.Jobs[k].Request.Host))
}

func (w *world) choose(c *vgpu.Cluster, r *vgpu.Request) *vgpu.Assignment {
	if len(r.Containers) > 0 {
		plan, err := placement.Choose(c, r, placement.Config{Policy: w.policy})
		must.OK(w.t, err)
		return plan.Place
	}
	var best *vgpu.Assignment // Choose refuses pods without GPUs
	top := int64(0)
	nodes := c.Nodes()
	if plain := slices.DeleteFunc(slices.Clone(nodes), func(n *vgpu.Node) bool { return len(n.Devices()) > 0 }); len(plain) > 0 {
		nodes = plain
	}
	for _, n := range nodes {
		if s := placement.Score(n, r, w.policy); best == nil || s > top {
			best, top = &vgpu.Assignment{UID: r.UID, Pod: r.Pod, Node: n.Name(), Tenancy: r.Tenancy}, s
		}
	}
	return best
}
