package gangs

import (
	"iter"
	"math"
	"math/rand/v2"
	"time"

	"github.com/tandem-gpu/tandem/evaluation/inference"
	"github.com/tandem-gpu/tandem/pkg/elastic"
	"github.com/tandem-gpu/tandem/pkg/traffic"
	"github.com/tandem-gpu/tandem/pkg/vgpu"
)

// sizer decides how many replicas a fleet of one variant should have.
type sizer interface {
	// size returns what there should be now, and what will be needed later. The field Wanted of the variant is what the sizer wanted before.
	size(f *traffic.Fleet, seen traffic.Seen, busy []float64) (replicas int, later []elastic.Need)
}

// fixedSize wants the same number always.
type fixedSize int

func (n fixedSize) size(*traffic.Fleet, traffic.Seen, []float64) (int, []elastic.Need) {
	return int(n), nil
}

// autoscaled wants what Kubernetes' HorizontalPodAutoscaler does.
type autoscaled struct{ inference.HPA }

func (h *autoscaled) size(f *traffic.Fleet, seen traffic.Seen, busy []float64) (int, []elastic.Need) {
	n, _ := h.Decide(f, seen, busy)
	return n[0], nil
}

// decided wants what the controller does. The needs are those of the status that it writes.
type decided struct{ inference.Tandem }

func (d *decided) size(f *traffic.Fleet, seen traffic.Seen, busy []float64) (int, []elastic.Need) {
	n, _ := d.Decide(f, seen, busy)
	later := make([]elastic.Need, 0, len(d.Plan.Later))
	for _, need := range d.Plan.Later {
		later = append(later, elastic.Need{Replicas: need.Replicas[0], From: seen.At.Add(need.In).Truncate(time.Minute).Unix()})
	}
	return n[0], later
}

// lendingStart is when the rates that are played begin: package inference counts from a year after 1970.
const lendingStart = 365 * 24 * 3600

// taught lets a sizer see rates minute by minute, the last of which ends at a time. Numbers of requests are random.
func taught(s sizer, f *traffic.Fleet, before inference.Load, ends int64, random *rand.Rand) {
	span := before.Span.Seconds()
	for i, rate := range before.Rates {
		at := float64(ends) - span*float64(len(before.Rates)-1-i)
		counted := max(0, rate+math.Sqrt(rate/span)*random.NormFloat64())
		v := &f.Variants[0]
		v.Wanted, _ = s.size(f, traffic.Seen{At: time.Unix(int64(at), 0), Rate: counted}, []float64{rate / (v.Replica.Rate * float64(max(1, v.Wanted)))})
		v.Ready, v.Warm, v.Part = v.Wanted, float64(v.Wanted), 1
	}
}

// ask is what a fleet saw in the last interval; replicas answers it.
type ask struct {
	fleet    *traffic.Fleet
	seen     traffic.Seen
	busy     []float64
	replicas int
}

// servedFleet is a fleet in a cluster. Its requests are played in a coroutine that stops at each decision.
type servedFleet struct {
	traffic.Fleet
	sizer  sizer
	slots  vgpu.Slots
	next   func() (*ask, bool)
	stop   func()
	result *inference.Result
	// wanted is what the sizer wants, placed are the replicas that have devices.
	wanted int
	placed []vgpu.Assignment
	later  []elastic.Need
	// since are the times since which replicas wait for a device, the first first.
	since []float64
	last  *ask
}

// asking is the policy of a fleet as package inference sees it: it hands each decision to the cluster.
type asking struct {
	yield   func(*ask) bool
	stopped bool
}

func (a *asking) Decide(f *traffic.Fleet, seen traffic.Seen, busy []float64) (replicas []int, parts []float64) {
	q := &ask{fleet: f, seen: seen, busy: busy, replicas: f.Variants[0].Wanted}
	if !a.stopped {
		a.stopped = !a.yield(q)
	}
	return []int{q.replicas}, []float64{1}
}

// serve begins to play the requests of a fleet, which has its replicas.
func (s *servedFleet) serve(truth inference.Truth, load inference.Load, seed uint64) {
	v := &s.Variants[0]
	v.Wanted, v.Ready, v.Part = len(s.placed), len(s.placed), 1
	s.next, s.stop = iter.Pull(func(yield func(*ask) bool) {
		r := inference.Run(s.Fleet, truth, load, 0, &asking{yield: yield}, seed)
		s.result = &r
	})
}

// decide plays the requests until the next decision, and takes it. It reports whether there was one.
func (s *servedFleet) decide() bool {
	if s.last != nil {
		s.last.replicas = len(s.placed)
	}
	q, more := s.next()
	s.last = q
	if !more {
		return false
	}
	q.fleet.Variants[0].Wanted = s.wanted
	s.wanted, s.later = s.sizer.size(q.fleet, q.seen, q.busy)
	return true
}

// missing returns how many replicas wait for a device.
func (s *servedFleet) missing() int { return max(0, s.wanted-len(s.placed)) }
