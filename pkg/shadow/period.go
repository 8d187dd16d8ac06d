package shadow

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"github.com/tandem-gpu/tandem/pkg/sim"
	"github.com/tandem-gpu/tandem/pkg/vgpu"
)

// world is one world of a period.
type world struct {
	// waits of the counted pods, in the order of the members: of one that still waits, how long it has.
	waits []time.Duration
	// starts are when the members started, unset for those that did not until the end.
	starts []time.Duration
	still  int // pods that wait at the end, carried ones included
	sums   sums
	// touched are the devices that had a pod, unbooked the pods whose node has no fitting devices.
	touched  map[vgpu.DeviceID]bool
	unbooked int
	// whole counts the gangs of which enough members ran at once. partial is the compute that gangs held before that, or in vain, in
	// thousandths of a GPU times nanoseconds.
	whole   int
	partial float64
}

// period is the figures of a period from its begin to a time.
type period struct {
	from, to      time.Time
	capacity      vgpu.MilliGPU
	devices       int
	pods          int
	counted       int
	gangs         int
	shared        int // pods of which Tandem would have placed a share
	other, tandem world
	leftOut       leftOut
	members       []member // of the present period alone
	unknown       []Unknown
	// pinnedOut counts the pinned pods for which the world of Tandem has no room on their node when they come there.
	pinnedOut int
}

// play returns the figures of the present period until a time.
func (l *Log) play(now time.Time) (*period, error) {
	c := l.cast(now)
	p := &period{
		from: l.began, to: now, pods: len(c.members), capacity: sim.Capacity(l.inventory.Nodes), members: c.members, leftOut: c.leftOut, unknown: l.inventory.Unknown,
	}
	for _, n := range l.inventory.Nodes {
		p.devices += len(n.Devices())
	}
	p.count()
	until := now.Sub(l.began)
	var err error
	if p.other, err = l.measure(c, c.happened(until), until, false); err != nil {
		return nil, fmt.Errorf("measure what happened: %w", err)
	}
	h, err := sim.Run(l.setup(c))
	if err != nil {
		return nil, fmt.Errorf("play what Tandem would have done: %w", err)
	}
	if p.tandem, err = l.measure(c, c.played(h, until), until, true); err != nil {
		return nil, fmt.Errorf("measure what Tandem would have done: %w", err)
	}
	for i := range c.members {
		if c.members[i].pinned && p.tandem.starts[i] != c.members[i].arrive {
			p.pinnedOut++
		}
	}
	return p, nil
}

// count counts the pods and gangs of the period.
func (p *period) count() {
	gangs := map[*sim.Gang]bool{}
	for i := range p.members {
		m := &p.members[i]
		if !m.counted() {
			continue
		}
		p.counted++
		if m.Would != nil && m.Would.PeakSlots() != m.Request.PeakSlots() {
			p.shared++
		}
		if m.gang != nil {
			gangs[m.gang] = true
		}
	}
	p.gangs = len(gangs)
}

// happened returns the stays of the other world until a time.
func (c *cast) happened(until time.Duration) []stay {
	all := make([]stay, 0, len(c.members))
	for i := range c.members {
		m := &c.members[i]
		if m.bound >= until {
			continue
		}
		s := stay{member: i, from: m.bound, to: min(m.ended, until), request: &m.Request, assignment: m.assignment}
		s.assignment.Node, s.assignment.UID, s.assignment.Pod = m.node, m.Request.UID, m.Request.Pod
		all = append(all, s)
	}
	return inOrder(all)
}

// played returns the stays of a run until a time.
func (c *cast) played(h *sim.History, until time.Duration) []stay {
	var all []stay
	for _, x := range h.Holdings() {
		if x.From < until {
			s := stay{member: x.Job, from: x.From, to: until, request: c.members[x.Job].placed(), assignment: x.Assignment}
			if h.Outcomes[x.Job].State == sim.Finished {
				s.to = min(x.To, until)
			}
			all = append(all, s)
		}
	}
	return inOrder(all)
}

// inOrder sorts stays by their begin, then as the members came.
func inOrder(all []stay) []stay {
	slices.SortStableFunc(all, func(a, b stay) int { return cmp.Or(cmp.Compare(a.from, b.from), cmp.Compare(a.member, b.member)) })
	return all
}

// measure returns the figures of a world. The usual requests are those that Tandem would have placed, in both worlds. Strict says that a ledger
// which refuses an assignment is an error: the facts of reality may contradict themselves for a moment.
func (l *Log) measure(c *cast, stays []stay, until time.Duration, strict bool) (world, error) {
	books, err := newLedger(l.inventory.Nodes, &l.cfg)
	if err != nil {
		return world{}, err
	}
	w := world{starts: make([]time.Duration, len(c.members))}
	if w.unbooked, err = books.play(stays, c.arrivals(), until, strict); err != nil {
		return world{}, err
	}
	w.sums, w.touched = books.sums, books.touched
	for i := range w.starts {
		w.starts[i] = unset
	}
	for i := range stays {
		w.starts[stays[i].member] = stays[i].from
	}
	w.wait(c, until)
	w.gangs(c, stays, until)
	return w, nil
}

// arrivals returns the pods as they come in a run: the members of a gang together, at the place of the first one.
func (c *cast) arrivals() []arrival {
	first := map[*sim.Gang]int{}
	all := make([]arrival, 0, len(c.members))
	for i := range c.members {
		m, place := &c.members[i], i
		if m.gang != nil {
			if _, some := first[m.gang]; !some {
				first[m.gang] = i
			}
			place = first[m.gang]
		}
		all = append(all, arrival{m.arrive, place, m.placed()})
	}
	slices.SortStableFunc(all, func(a, b arrival) int { return cmp.Or(cmp.Compare(a.at, b.at), cmp.Compare(a.place, b.place)) })
	return all
}

// wait fills in how long the pods waited.
func (w *world) wait(c *cast, until time.Duration) {
	for i := range c.members {
		m, start := &c.members[i], w.starts[i]
		if m.Foreign {
			continue
		}
		if start == unset {
			w.still++
		}
		if m.counted() {
			w.waits = append(w.waits, min(start, until)-m.created)
		}
	}
}

// gangs fills in how many gangs ran whole, and what they held before that.
func (w *world) gangs(c *cast, stays []stay, until time.Duration) {
	by, order := map[*sim.Gang][]*stay{}, []*sim.Gang{}
	for i := range stays {
		if g := c.members[stays[i].member].gang; g != nil {
			if by[g] == nil {
				order = append(order, g)
			}
			by[g] = append(by[g], &stays[i])
		}
	}
	for _, g := range order {
		held := by[g]
		whole, runs := wholeAt(held, g.MinCount)
		if !runs {
			whole = until
		} else if first := &c.members[held[0].member]; first.counted() { // else it counts in the period in which it came
			w.whole++
		}
		for _, s := range held {
			w.partial += float64(s.taken) * float64(max(0, min(s.to, whole)-s.from))
		}
	}
}

// wholeAt returns when so many of the stays were there at once for the first time. The stays are in the order of their begins.
func wholeAt(stays []*stay, count int) (at time.Duration, ever bool) {
	for i, s := range stays {
		there := 0
		for _, other := range stays[:i+1] {
			if other.to > s.from {
				there++
			}
		}
		if there >= count {
			return s.from, true
		}
	}
	return 0, false
}
