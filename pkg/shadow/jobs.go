package shadow

import (
	"cmp"
	"math"
	"slices"
	"time"

	"github.com/tandem-gpu/tandem/pkg/sim"
	"github.com/tandem-gpu/tandem/pkg/vgpu"
)

// member is a pod of a period as both worlds have it. Times are from the begin of the period.
type member struct {
	*fact
	// arrive is when it arrives in the world of Tandem, created when it was created: before 0 for a carried pod.
	arrive, created time.Duration
	// bound and ended are those of the other world, unset before they happen. The bound of a pod that ran when the period began is 0.
	bound, ended time.Duration
	// runs is how long it runs, 0 where that is not known yet.
	runs   time.Duration
	pinned bool
	// carried says that the pod was there when the period began.
	carried bool
	gang    *sim.Gang
}

// unset stands for a time that has not come.
const unset = time.Duration(math.MaxInt64)

// counted reports whether the pod's waiting is in the figures.
func (m *member) counted() bool { return !m.carried && m.created >= 0 && !m.Foreign }

// placed returns the request that the world of Tandem places: of a pinned pod what it has in reality.
func (m *member) placed() *vgpu.Request {
	if m.pinned {
		return &m.Request
	}
	return m.would()
}

// cast is the pods of a period, in the order of the jobs of the run.
type cast struct {
	members []member
	leftOut
}

// leftOut counts the pods and gangs that are in neither world, or otherwise than their owners see them.
type leftOut struct {
	cancelled int // pods that were gone before they ran
	outside   int // pods on nodes whose devices are not known
	gangs     int // gangs that never ran whole and are gone, or had too few members
	late      int // pods that came after their gang had gathered
}

// cast returns the pods of the present period, without those that come later.
func (l *Log) cast(now time.Time) *cast {
	known := map[string]bool{}
	for _, n := range l.inventory.Nodes {
		known[n.Name()] = true
	}
	all := &cast{}
	for i, f := range l.facts {
		switch {
		case f.Foreign && f.node == "", f.Created.After(now):
			continue
		case f.cancelled():
			all.cancelled++
			continue
		case f.node != "" && !known[f.node]:
			all.outside++
			continue
		}
		all.members = append(all.members, l.member(f, i < l.carried))
	}
	slices.SortStableFunc(all.members, func(a, b member) int {
		if pinnedFirst := cmp.Compare(rank(&a), rank(&b)); pinnedFirst != 0 {
			return pinnedFirst
		}
		return cmp.Compare(a.created, b.created)
	})
	l.gather(all)
	return all
}

// rank orders the pods of one instant: those that run already come first.
func rank(m *member) int {
	if m.pinned {
		return 0
	}
	return 1
}

// member returns a pod with its times from the begin of the period.
func (l *Log) member(f *fact, carried bool) member {
	m := member{fact: f, carried: carried, created: f.Created.Sub(l.began), bound: unset, ended: unset}
	m.arrive = max(0, m.created)
	if f.node != "" {
		before := f.bound.Before(l.began)
		m.bound, m.pinned = max(0, f.bound.Sub(l.began)), before || f.Foreign
		if m.pinned {
			m.arrive = m.bound
		}
	}
	if !f.ended.IsZero() {
		m.ended = max(0, f.ended.Sub(l.began))
		m.runs = max(1, m.ended-m.bound) // a length of 0 would stand for ever
	}
	return m
}

// setup returns the run that makes the world of Tandem.
func (l *Log) setup(c *cast) sim.Setup {
	s := sim.Setup{
		Nodes: l.inventory.Nodes, Labels: l.inventory.Labels, Policy: l.cfg.Policy, Queue: l.cfg.Queue, Gangs: l.cfg.Gangs,
		RenewMix: l.cfg.RenewMix,
		Jobs:     make([]sim.Job, 0, len(c.members)), Admits: l.admits(),
	}
	if l.cfg.Neighbours != nil {
		s.Policy = s.Policy.Among(l.cfg.Neighbours)
	}
	for i := range c.members {
		m := &c.members[i]
		j := sim.Job{Request: *m.placed(), Arrive: m.arrive, Duration: m.runs, Class: m.Class, Gang: m.gang}
		if m.pinned {
			j.Class, j.Request.Priority = l.pin(m.node), math.MaxInt32
		}
		s.Jobs = append(s.Jobs, j)
	}
	return s
}

// pin returns the class of the pods that go to one node only: below 0, by the place of the node.
func (l *Log) pin(node string) int {
	return -1 - slices.IndexFunc(l.inventory.Nodes, func(n *vgpu.Node) bool { return n.Name() == node })
}

// admits returns which nodes take the pods of a class.
func (l *Log) admits() func(class int, node string) bool {
	by := map[int]map[string]bool{}
	for class, nodes := range l.inventory.Admits {
		by[class] = map[string]bool{}
		for _, name := range nodes {
			by[class][name] = true
		}
	}
	nodes := l.inventory.Nodes
	return func(class int, node string) bool {
		if class < 0 {
			return nodes[-1-class].Name() == node
		}
		admitted, some := by[class]
		return !some || admitted[node]
	}
}
