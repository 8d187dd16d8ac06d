package shadow

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/tandem-gpu/tandem/pkg/fragmentation"
	"github.com/tandem-gpu/tandem/pkg/placement"
	"github.com/tandem-gpu/tandem/pkg/vgpu"
)

const (
	// halfLife is the time after which a pod that came counts half among the usual requests: the default of the scheduler.
	halfLife = 24 * time.Hour
	// typicalPercent is the part of the pods whose kinds count in the measure of fragmentation: that of the simulator.
	typicalPercent = 95
)

// stay is the time for which a pod has a place in a world. A stay of a world that does not know the pod's devices has an
// assignment without containers; the ledger chooses some, fullest first.
type stay struct {
	member     int
	from, to   time.Duration
	assignment vgpu.Assignment
	request    *vgpu.Request
	taken      vgpu.MilliGPU // that the ledger booked
	booked     bool
}

// arrival is a pod that comes, for the usual requests.
type arrival struct {
	at      time.Duration
	place   int // among the arrivals of one time
	request *vgpu.Request
}

// sums are figures of a world, each times the nanoseconds for which it stood.
type sums struct {
	allocated, fragmented, devices float64
	// known and slowed are devices with a pod and a predicted slowdown, and the slowdowns of these; unknown are the other devices with
	// a pod, once for each pod on them.
	known, slowed, unknown float64
}

// plus returns the sums of two times.
func (s sums) plus(o sums) sums {
	return sums{
		s.allocated + o.allocated, s.fragmented + o.fragmented, s.devices + o.devices, s.known + o.known, s.slowed + o.slowed, s.unknown + o.unknown,
	}
}

// state is the figures of one node at a moment.
type state struct {
	lost                            int64 // weight × milli-GPU
	allocated                       vgpu.MilliGPU
	devices, known, slowed, unknown float64
}

// ledger books the stays of a world one after the other, and sums the figures up.
type ledger struct {
	cluster    *vgpu.Cluster
	index      map[string]int
	neighbours *placement.Neighbours
	learner    *fragmentation.Learner
	learned    *fragmentation.Mix // all usual requests
	usual      *fragmentation.Mix // the part that the measure goes by
	states     []state
	dirty      map[int]bool
	touched    map[vgpu.DeviceID]bool
	sums       sums
	at         time.Duration
}

func newLedger(nodes []*vgpu.Node, cfg *Config) (*ledger, error) {
	own := make([]*vgpu.Node, 0, len(nodes))
	for _, n := range nodes {
		own = append(own, n.Clone())
	}
	c, err := vgpu.NewCluster(own...)
	if err != nil {
		return nil, err
	}
	l := &ledger{
		cluster: c, index: map[string]int{}, neighbours: cfg.Neighbours, learner: fragmentation.NewLearner(int64(halfLife / time.Second)),
		states: make([]state, len(own)), dirty: map[int]bool{}, touched: map[vgpu.DeviceID]bool{},
	}
	for i, n := range c.Nodes() {
		l.index[n.Name()] = i
	}
	if cfg.RenewMix > 0 {
		l.learner.RenewEvery(int64(cfg.RenewMix / time.Second))
	}
	l.use(l.learner.Usual(0))
	return l, nil
}

// use makes the measure go by other usual requests.
func (l *ledger) use(all *fragmentation.Mix) {
	l.learned, l.usual = all, all.WithoutMemory().Typical(typicalPercent)
	for i := range l.states {
		l.dirty[i] = true
	}
}

// learn notes a pod that comes.
func (l *ledger) learn(a *arrival) {
	now := int64(a.at / time.Second)
	namespace := a.request.Pod[:max(0, strings.IndexByte(a.request.Pod, '/'))]
	l.learner.Observe(namespace, fragmentation.KindOf(a.request), now)
	if all := l.learner.Usual(now); all != l.learned {
		l.use(all)
	}
}

// add books a stay. The error is a ledger that refuses devices which the stay names.
func (l *ledger) add(s *stay) error {
	n := l.cluster.Node(s.assignment.Node)
	i := l.index[n.Name()]
	l.dirty[i] = true
	before := allocatedOn(n)
	if len(s.request.Containers) > 0 {
		if len(s.assignment.Containers) == 0 {
			a, refusal := placement.Assign(n, s.request, placement.Policy{})
			if refusal != nil {
				return fmt.Errorf("book pod %s: %v", s.request.Pod, *refusal)
			}
			s.assignment = a
		}
		if err := n.Add(s.assignment); err != nil {
			return err
		}
	}
	n.SetRoom(n.Room().Less(s.request.Host))
	s.booked, s.taken = true, allocatedOn(n)-before
	for c := range s.assignment.Containers {
		for _, id := range s.assignment.Containers[c].Devices {
			l.touched[id] = true
		}
	}
	return nil
}

// remove undoes add.
func (l *ledger) remove(s *stay) {
	if !s.booked {
		return
	}
	n := l.cluster.Node(s.assignment.Node)
	n.Remove(s.request.UID)
	n.SetRoom(n.Room().Plus(s.request.Host))
	l.dirty[l.index[n.Name()]] = true
}

// advance adds the present figures for the time until then.
func (l *ledger) advance(to time.Duration) {
	for i := range l.dirty {
		l.states[i] = l.look(l.cluster.Nodes()[i])
	}
	clear(l.dirty)
	lost, allocated, now := int64(0), vgpu.MilliGPU(0), sums{}
	for i := range l.states {
		s := &l.states[i]
		lost, allocated = lost+s.lost, allocated+s.allocated
		now.devices, now.known, now.slowed, now.unknown = now.devices+s.devices, now.known+s.known, now.slowed+s.slowed, now.unknown+s.unknown
	}
	if w := l.usual.Weight(); w > 0 {
		now.fragmented = float64(lost / w)
	}
	now.allocated = float64(allocated)
	for _, f := range []*float64{&now.allocated, &now.fragmented, &now.devices, &now.known, &now.slowed, &now.unknown} {
		*f *= float64(to - l.at)
	}
	l.sums, l.at = l.sums.plus(now), to
}

// look returns the figures of a node.
func (l *ledger) look(n *vgpu.Node) state {
	s := state{lost: l.usual.Lost(n), allocated: allocatedOn(n)}
	var here []vgpu.Resident
	for i := range n.Devices() {
		here = n.Residents(i, here[:0])
		if len(here) == 0 {
			continue
		}
		s.devices++
		known, slowed := l.slowdowns(&n.Devices()[i], here)
		s.known, s.slowed, s.unknown = s.known+known, s.slowed+slowed, s.unknown+float64(len(here))-known
	}
	return s
}

// allocatedOn returns the compute that pods have of a node, rounded down for each device.
func allocatedOn(n *vgpu.Node) vgpu.MilliGPU {
	sum := vgpu.MilliGPU(0)
	for i := range n.Devices() {
		sum += vgpu.MilliGPU(int64(n.Used(i).Slots) * int64(vgpu.WholeGPU) / int64(n.Devices()[i].Slots))
	}
	return sum
}

// event is the begin or the end of a stay, or an arrival.
type event struct {
	at    time.Duration
	what  int // of the list below
	which int // stay or arrival
}

// Events of one time happen in this order, as in the simulator.
const (
	ends = iota
	arrives
	begins
)

// play books all stays until a time. It returns the pods that no devices of their node fit: where the devices are not known, and where they are
// and others have them, which is an error if strict.
func (l *ledger) play(stays []stay, arrivals []arrival, until time.Duration, strict bool) (unbooked int, err error) {
	for _, e := range eventsOf(stays, arrivals) {
		if e.at >= until {
			break
		}
		if e.at > l.at {
			l.advance(e.at)
		}
		switch e.what {
		case ends:
			l.remove(&stays[e.which])
		case arrives:
			l.learn(&arrivals[e.which])
		case begins:
			if err := l.add(&stays[e.which]); err != nil && strict {
				return unbooked, err
			} else if err != nil {
				unbooked++
			}
		}
	}
	l.advance(until)
	return unbooked, nil
}

// eventsOf returns what happens, in order. Stays of no time are left out.
func eventsOf(stays []stay, arrivals []arrival) []event {
	all := make([]event, 0, 2*len(stays)+len(arrivals))
	for i := range stays {
		if stays[i].from < stays[i].to {
			all = append(all, event{stays[i].from, begins, i}, event{stays[i].to, ends, i})
		}
	}
	for i := range arrivals {
		all = append(all, event{arrivals[i].at, arrives, i})
	}
	slices.SortFunc(all, func(a, b event) int {
		return cmp.Or(cmp.Compare(a.at, b.at), cmp.Compare(a.what, b.what), cmp.Compare(a.which, b.which))
	})
	return all
}
