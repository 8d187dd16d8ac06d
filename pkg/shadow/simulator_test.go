package shadow_test

import (
	"fmt"
	"math"
	"math/rand/v2"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/tandem-gpu/tandem/internal/simulator/scenario"
	"github.com/tandem-gpu/tandem/pkg/gang"
	"github.com/tandem-gpu/tandem/pkg/placement"
	"github.com/tandem-gpu/tandem/pkg/shadow"
	"github.com/tandem-gpu/tandem/pkg/sim"
	"github.com/tandem-gpu/tandem/pkg/vgpu"
	"github.com/tandem-gpu/tandem/test/must"
)

// zero is when the runs of these tests begin.
var zero = time.Date(2026, 1, 5, 9, 0, 0, 0, time.UTC)

// tolerance is by how much a mean over time may differ from the simulator's, in percent of the capacity: both add the same terms up as
// floating-point numbers, cut at other times. Starts and waits have no tolerance.
const tolerance = 1e-9

func config(policy string) shadow.Config {
	p, err := placement.ByName(policy)
	if err != nil {
		panic(err)
	}
	return shadow.Config{Policy: p, Queue: sim.Skip, Keep: 24 * time.Hour, MaxPods: 10000, MaxExamples: 5}
}

// workload is a kind of work that the shadow is checked with.
type workload struct {
	name   string
	nodes  int
	jobs   int
	slots  []vgpu.Slots
	within time.Duration
	gangs  bool
	drains gang.Drains
	renew  time.Duration
}

var workloads = []workload{
	{name: "whole GPUs", nodes: 3, jobs: 120, slots: []vgpu.Slots{10, 10, 20, 40, 80}, within: 5 * time.Hour},
	{name: "shares", nodes: 2, jobs: 200, slots: []vgpu.Slots{1, 2, 3, 5, 7, 10}, within: 3 * time.Hour, renew: 20 * time.Minute},
	{name: "shares beside whole GPUs, crowded", nodes: 2, jobs: 150, slots: []vgpu.Slots{2, 3, 5, 10, 20, 80}, within: time.Hour},
	{name: "gangs", nodes: 3, jobs: 60, slots: []vgpu.Slots{3, 5, 10, 20}, within: 4 * time.Hour, gangs: true},
	{name: "gangs that room is kept for", nodes: 3, jobs: 60, slots: []vgpu.Slots{3, 5, 10, 20}, within: 2 * time.Hour, gangs: true, drains: gang.AllDrains},
}

// setup returns the work with nodes for it.
func (w *workload) setup(t *testing.T, seed uint64) sim.Setup {
	t.Helper()
	s := w.draw(seed)
	for i := range w.nodes {
		s.Nodes = append(s.Nodes, node(t, fmt.Sprintf("n%d", i), 8))
	}
	return s
}

// draw draws the work. Times are whole seconds, as those of Kubernetes are.
func (w *workload) draw(seed uint64) sim.Setup {
	random := rand.New(rand.NewPCG(seed, 7))
	s := sim.Setup{Seed: int64(seed), RenewMix: w.renew, Gangs: sim.GangConfig{Drains: w.drains, DrainAfter: 30 * time.Second, DrainTimeout: time.Hour}}
	for i := range w.jobs {
		arrive, runs := time.Duration(random.Int64N(int64(w.within/time.Second)))*time.Second, time.Duration(60+random.IntN(5400))*time.Second
		if random.IntN(20) == 0 {
			runs = 0
		}
		members, spec := 1, (*sim.Gang)(nil)
		if w.gangs && random.IntN(3) == 0 {
			members = 2 + random.IntN(5)
			spec = &sim.Gang{Name: fmt.Sprintf("team/g%d", i), MinCount: 1 + random.IntN(members)}
			if random.IntN(2) == 0 {
				spec.Wishes.Required = []string{sim.Hostname}
			}
		}
		slots, priority, cpu := w.slots[random.IntN(len(w.slots))], int32(random.IntN(2)), int64(random.IntN(9))*1000
		for k := range members {
			r := request(fmt.Sprintf("team%d/p%d-%d", i%3, i, k), slots)
			r.Priority, r.Host.MilliCPU = priority, cpu
			s.Jobs = append(s.Jobs, sim.Job{Request: r, Arrive: arrive, Duration: runs, Gang: spec})
		}
	}
	slices.SortStableFunc(s.Jobs, func(a, b sim.Job) int { return int(a.Arrive - b.Arrive) })
	return s
}

func node(t testing.TB, name string, gpus int) *vgpu.Node {
	t.Helper()
	var devices []vgpu.Device
	for i := range gpus {
		devices = append(devices, vgpu.Device{
			ID: vgpu.DeviceID(fmt.Sprintf("%s/g%d", name, i)), Index: i, Model: "A100", Slots: 10, Memory: 40 * vgpu.GiB, Healthy: true,
		})
	}
	n, err := vgpu.NewNode(name, devices)
	must.OK(t, err)
	n.SetRoom(vgpu.Room{MilliCPU: 64000, Memory: 512 * vgpu.GiB})
	return n
}

func request(pod string, slots vgpu.Slots) vgpu.Request {
	return vgpu.Request{UID: vgpu.UID(pod), Pod: pod, Containers: []vgpu.ContainerRequest{{Name: "main", Slots: slots}}}
}

// run plays a workload under a policy.
func run(t testing.TB, s sim.Setup, policy string, queue sim.Queue) *sim.History {
	t.Helper()
	p, err := placement.ByName(policy)
	must.OK(t, err)
	s.Policy, s.Queue = p, queue
	h, err := sim.Run(s)
	must.OK(t, err)
	return h
}

// facts tells a log what a run did until a time.
func facts(t testing.TB, l *shadow.Log, s *sim.Setup, h *sim.History, until time.Duration) {
	t.Helper()
	gangs := map[*sim.Gang]*shadow.Gang{}
	for i := range s.Jobs {
		j := &s.Jobs[i]
		p := shadow.Pod{Request: j.Request, Created: zero.Add(j.Arrive)}
		if g := j.Gang; g != nil {
			if gangs[g] == nil {
				gangs[g] = &shadow.Gang{Name: g.Name, MinCount: g.MinCount, Wishes: g.Wishes}
			}
			p.Gang = gangs[g]
		}
		if j.Arrive > until {
			continue
		}
		must.OK(t, l.Created(p))
		o := &h.Outcomes[i]
		if o.State.Placed() && o.Started <= until {
			l.Bound(o.UID, o.Assignment.Node, o.Assignment, zero.Add(o.Started))
		}
		if o.State == sim.Finished && o.Ended <= until {
			l.Ended(o.UID, zero.Add(o.Ended))
		}
	}
}

// begun returns a log whose first period has begun.
func begun(t testing.TB, cfg shadow.Config, nodes []*vgpu.Node) *shadow.Log {
	t.Helper()
	l, err := shadow.New(cfg)
	must.OK(t, err)
	must.OK(t, l.Begin(zero, shadow.Inventory{Nodes: nodes}))
	return l
}

// TestAgreesWithSimulator: fed with the events of a run of the simulator under another policy, the world of Tandem is the simulator's own
// run under tandem of the same workload, and the other world is the run that it was fed with.
func TestAgreesWithSimulator(t *testing.T) {
	unlike := 0
	for i := range workloads {
		w := &workloads[i]
		for _, policy := range []string{"spread", "random", "tandem"} {
			for _, queue := range []sim.Queue{sim.FIFO, sim.Skip} {
				for seed := uint64(1); seed <= 2; seed++ {
					t.Run(fmt.Sprintf("%s/%s/%v/%d", w.name, policy, queue, seed), func(t *testing.T) {
						unlike += agrees(t, w, policy, queue, seed)
					})
				}
			}
		}
	}
	if unlike == 0 {
		t.Error("both worlds were always the same, so that the test says nothing")
	}
}

// agrees checks one run at its end and in the middle of it, and returns how many pods start at unlike times in the two worlds.
func agrees(t *testing.T, w *workload, policy string, queue sim.Queue, seed uint64) (unlike int) {
	t.Helper()
	s := w.setup(t, seed)
	other := run(t, s, policy, queue)
	_, last := other.Span()
	for _, until := range []time.Duration{w.within/2 + time.Second/2, last + 100*time.Hour + time.Second/2} { // nothing happens at half a second
		unlike += agreesAt(t, &s, other, until)
	}
	return unlike
}

// agreesAt checks a report at one time of a run.
func agreesAt(t *testing.T, s *sim.Setup, other *sim.History, until time.Duration) (unlike int) {
	t.Helper()
	known := *s
	known.Jobs = knownBy(s, other, until)
	tandem := run(t, known, "tandem", sim.Skip)
	cfg := config("tandem")
	cfg.Gangs, cfg.RenewMix = s.Gangs, s.RenewMix
	l, err := shadow.New(cfg)
	must.OK(t, err)
	must.OK(t, l.Begin(zero, shadow.Inventory{Nodes: s.Nodes, Labels: s.Labels}))
	facts(t, l, s, other, until)
	r, err := l.Report(zero.Add(until))
	must.OK(t, err)
	others, tandems, err := l.Starts(zero.Add(until))
	must.OK(t, err)
	drainless := s.Gangs.Drains == gang.NoDrains
	sameWorld(t, "the other world", other, until, others, r.Other, drainless)
	sameWorld(t, "the world of Tandem", tandem, until, tandems, r.Tandem, drainless)
	for uid, at := range others {
		if tandems[uid] != at {
			unlike++
		}
	}
	return unlike
}

// TestAgreesOnScenarios: the same for scenarios of the simulator, on racks and on GPUs of unlike models.
func TestAgreesOnScenarios(t *testing.T) {
	for _, name := range []string{"gangs", "gang-under-load", "unlike-gpus", "mixed"} {
		t.Run(name, func(t *testing.T) {
			sc, err := scenario.Read(filepath.Join("..", "..", "examples", name+".yaml"))
			must.OK(t, err)
			for _, seed := range sc.Seeds[:1] {
				jobs, err := sc.Jobs(seed)
				must.OK(t, err)
				for i := range jobs {
					jobs[i].DeclaresEnd = false // shadow mode does not read it
				}
				s := sim.Setup{Nodes: sc.Nodes, Labels: sc.Labels, Gangs: sc.Gangs, Jobs: jobs, Seed: seed}
				other := run(t, s, "spread", sim.FIFO)
				_, last := other.Span()
				agreesAt(t, &s, other, last/2+1)
				agreesAt(t, &s, other, last+100*time.Hour)
			}
		})
	}
}

// knownBy returns the jobs that have arrived by a time, with the lengths that are known from a run: of those that have ended.
func knownBy(s *sim.Setup, h *sim.History, until time.Duration) []sim.Job {
	var all []sim.Job
	for i := range s.Jobs {
		j := s.Jobs[i]
		if j.Arrive > until {
			continue
		}
		ended := h.Outcomes[i].State == sim.Finished && h.Outcomes[i].Ended <= until
		for k := range h.Gangs {
			if slices.Contains(h.Gangs[k].Members, i) {
				ended = h.Gangs[k].State == sim.Finished && h.Gangs[k].Ended <= until
			}
		}
		if !ended {
			j.Duration = 0
		}
		all = append(all, j)
	}
	return all
}

// sameWorld compares a world with a run. The simulator does not count kept room as idle, and the shadow does, so that the fragmentation
// is the same without drains only.
func sameWorld(t *testing.T, name string, h *sim.History, until time.Duration, starts map[vgpu.UID]time.Duration, f shadow.Figures, drainless bool) {
	t.Helper()
	want := map[vgpu.UID]time.Duration{}
	var waits []time.Duration
	still := 0
	for i := range h.Outcomes {
		o := &h.Outcomes[i]
		if o.Arrived > until {
			continue
		}
		if o.State.Placed() && o.Started < until {
			want[o.UID] = o.Started
			waits = append(waits, o.Wait())
			continue
		}
		still++
		waits = append(waits, until-o.Arrived)
	}
	if diff := cmp.Diff(want, starts); diff != "" {
		t.Errorf("%s starts pods at other times (-simulator +shadow):\n%s", name, diff)
	}
	mean, _ := sim.Mean(waits)
	half, _ := sim.Quantile(waits, .5)
	most, _ := sim.Quantile(waits, .99)
	wantWaits := shadow.Waits{Pods: len(waits), MeanMillis: mean.Milliseconds(), P50Millis: half.Milliseconds(), P99Millis: most.Milliseconds(), Still: still}
	if diff := cmp.Diff(wantWaits, f.Waiting); diff != "" {
		t.Errorf("%s waits otherwise (-simulator +shadow):\n%s", name, diff)
	}
	used, _ := h.Utilisation(0, until)
	lost, _ := h.Fragmented(0, until)
	if math.Abs(100*used-f.Allocated) > tolerance {
		t.Errorf("%s has %v %% allocated, the simulator %v", name, f.Allocated, 100*used)
	}
	if drainless && math.Abs(100*lost-f.Fragmented) > tolerance {
		t.Errorf("%s has %v %% fragmented, the simulator %v", name, f.Fragmented, 100*lost)
	}
}
