package gangs

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-logr/logr"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/klog/v2"
	fwk "k8s.io/kube-scheduler/framework"
	"k8s.io/kubernetes/pkg/scheduler"
	"k8s.io/kubernetes/pkg/scheduler/framework"

	"github.com/tandem-gpu/tandem/internal/cluster/kube"
	workers "github.com/tandem-gpu/tandem/pkg/elastic"
	"github.com/tandem-gpu/tandem/pkg/gang"
	"github.com/tandem-gpu/tandem/pkg/placement"
	"github.com/tandem-gpu/tandem/pkg/sim"
	"github.com/tandem-gpu/tandem/pkg/vgpu"
	"github.com/tandem-gpu/tandem/test/must"
	"github.com/tandem-gpu/tandem/test/racedetector"
)

// The scheduler and the simulator step the same machine, each with a shell of its own: the one has informers, queues with backoff
// and requests that take time, the other has a list of events. These tests play the same workload through both.

// chapters is a workload that both can play: one gang or pod arrives at each beat.
type chapters struct {
	seed  uint64
	nodes []step
	teams []step
	// beat is the time between two arrivals.
	beat time.Duration
	// elastic: some gangs are elastic, and the controller runs.
	elastic bool
}

// beat is the time between two arrivals. The scheduler tries waiting pods again within it: its longest pause is shorter.
const beat = 100 * time.Second

// compose returns a random workload. Pods run for odd spans, so that they never end at a beat.
func compose(seed uint64, preempting bool) *chapters {
	random := rand.New(rand.NewPCG(seed, 1))
	one := func(words ...string) string { return words[random.IntN(len(words))] }
	c := &chapters{seed: seed, beat: beat}
	gpus := 0
	for i := range 1 + random.IntN(4) {
		count := one("1", "2", "4", "4", "8")
		gpus += map[string]int{"1": 1, "2": 2, "4": 4, "8": 8}[count]
		c.nodes = append(c.nodes, step{verb: "node", name: fmt.Sprintf("n%d", i+1), options: map[string]string{
			"gpus": count, "rack": one("r1", "r2"), "island": one("0", "0", "2"), "cpus": one("64", "64", "8"),
		}})
	}
	for i := range 10 + random.IntN(20) {
		s := step{verb: "pod", name: fmt.Sprintf("t%02d", i), options: map[string]string{
			"slots": one("1", "3", "5", "5", "10", "10", "20"), "cpus": one("0", "0", "2"), one("runs", "ends"): one("35s", "115s", "335s", "935s"), "again": "1",
		}}
		if preempting {
			s.options["priority"] = one("0", "0", "5", "10")
		}
		if random.IntN(2) == 0 {
			s.verb = "gang"
			members := 1 + random.IntN(6)
			s.options["slots"] = one("2", "5", "5", "10", "10", "20")
			if random.IntN(3) == 0 { // more than half of the cluster
				members, s.options["slots"] = gpus/2+1+random.IntN(gpus/2+1), "10"
			}
			s.options["members"], s.options["source"] = fmt.Sprint(members), "label"
			s.options["required"] = one("", "", "", "rack", "hostname", "nvlink")
			if s.options["required"] == "" {
				s.options["preferred"] = one("", "", "rack", "hostname,rack")
			}
		}
		c.teams = append(c.teams, s)
	}
	return c
}

// String returns the workload as a script.
func (c *chapters) String() string { return script(c.nodes) + script(c.teams) }

// host returns the node of a step.
func hostOf(s step) *host {
	return &host{
		name: s.name, gpus: s.number("gpus", 1), island: s.number("island", 0), rack: s.options["rack"], cpus: s.number("cpus", 64),
		sick: map[int]bool{},
	}
}

// arrivalSort orders the queue by priority, then by arrival, as the simulator does. The stock plugin PrioritySort puts a pod that was
// tried in vain behind all that wait.
type arrivalSort struct{}

func newArrivalSort(context.Context, runtime.Object, fwk.Handle) (fwk.Plugin, error) {
	return arrivalSort{}, nil
}

func (arrivalSort) Name() string { return "ArrivalSort" }

func (arrivalSort) Less(a, b fwk.QueuedEntityInfo) bool {
	return cmp.Or(cmp.Compare(b.GetPriority(), a.GetPriority()), arrivalOf(a).Compare(arrivalOf(b)), strings.Compare(nameOf(a), nameOf(b))) < 0
}

func arrivalOf(e fwk.QueuedEntityInfo) time.Time {
	if at := e.GetInitialAttemptTimestamp(); at != nil {
		return *at
	}
	return e.GetTimestamp()
}

func nameOf(e fwk.QueuedEntityInfo) string {
	if named, ok := e.(framework.QueuedEntityInfo); ok {
		return named.GetName()
	}
	return ""
}

// patience is what passes until the scheduler takes the next pod: the clock of a bubble goes on when nothing else can happen.
const patience = 50 * time.Millisecond

// patient returns a way to take the next pod that lets everything settle first. When a gang ends, the scheduler hears of one member
// after the other, and may place a pod before it has heard of all. The simulator knows all at once.
func patient(ctx context.Context, s *scheduler.Scheduler, take next) next {
	return func(logger klog.Logger) (framework.QueuedEntityInfo, error) {
		wait := func() bool {
			select {
			case <-ctx.Done():
				return false
			case <-time.After(patience):
				return true
			}
		}
		for len(s.SchedulingQueue.PodsInActiveQ()) == 0 && wait() {
		}
		wait()
		return take(logger)
	}
}

// picture is where all pods with GPUs are at the end of a beat, by name, and who was evicted in it, in order.
type picture struct {
	places  map[string]string
	evicted []string
}

func (p picture) String() string {
	var words []string
	for _, name := range slices.Sorted(maps.Keys(p.places)) {
		words = append(words, name+"@"+p.places[name])
	}
	return fmt.Sprintf("%s, evicted: %s", strings.Join(words, " "), strings.Join(p.evicted, " "))
}

// scheduled plays the workload through the scheduler and returns the pictures of its beats, with what happened.
func (c *chapters) scheduled(t *testing.T) (pictures []picture, log []string) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(klog.NewContext(t.Context(), logr.Discard()))
		defer cancel()
		k := production(false)
		k.simulated, k.elastic = true, c.elastic
		w := newWorld(ctx, k)
		must.OK(t, w.start())
		defer func() { w.sched.stop() }()
		must.OK(t, w.startController())
		for _, s := range c.nodes {
			must.OK(t, w.node(s))
		}
		w.rest(pause)
		w.api.begin = time.Now()
		for _, s := range c.teams {
			w.api.say("> %s", s)
			must.OK(t, verbs[s.verb](w, s))
			w.rest(pause)
			w.rest(c.beat - 2*pause)
			pictures = append(pictures, w.picture())
			w.rest(pause)
		}
		if w.violation != "" {
			t.Errorf("the scheduler: %s", w.violation)
		}
		log = w.api.log
	})
	return pictures, log
}

// picture returns what there is now, and who was evicted since the last beat began.
func (w *world) picture() picture {
	seen := picture{places: map[string]string{}}
	for _, p := range w.pods() {
		if a, err := kube.AssignmentOf(p); err == nil && p.Spec.NodeName != "" && len(a.Containers) > 0 {
			seen.places[p.Name] = placeOf(p)
		}
	}
	for _, line := range w.api.log {
		switch words := strings.Fields(line); words[1] {
		case ">":
			seen.evicted = nil
		case "ending":
			seen.evicted = append(seen.evicted, words[2])
		}
	}
	slices.Sort(seen.evicted)
	return seen
}

// simulated plays the workload through the simulator and returns the pictures of its beats.
func (c *chapters) simulated(t *testing.T) (pictures []picture, h *sim.History) {
	t.Helper()
	policy, err := placement.ByName("tandem")
	must.OK(t, err)
	s := sim.Setup{
		Policy: policy, Queue: sim.Skip, Labels: map[string]map[string]string{},
		Gangs:      sim.GangConfig{MaxDomains: 32, Drains: gang.AllDrains, DrainAfter: drainAfter, DrainTimeout: drainTimeout},
		Preemption: sim.PreemptionConfig{Policy: sim.PreemptTandem, Grace: grace, MaxSteps: 4096},
		Elastic:    sim.ElasticConfig{Every: passEvery, Notice: notice, AdmitWithin: admitWithin},
	}
	for _, at := range c.nodes {
		h := hostOf(at)
		devices, err := kube.Devices(h.gpuNode())
		must.OK(t, err)
		n, err := vgpu.NewNode(h.name, devices)
		must.OK(t, err)
		n.SetRoom(vgpu.Room{MilliCPU: int64(h.cpus) * 1000, Memory: 1 << 40})
		s.Nodes = append(s.Nodes, n)
		s.Labels[h.name] = h.node().Labels
	}
	for i, at := range c.teams {
		s.Jobs = append(s.Jobs, jobsOf(t, at, time.Duration(i)*c.beat)...)
	}
	h, err = sim.Run(s)
	must.OK(t, err)
	for i := range c.teams {
		m, err := h.MapAt(time.Duration(i+1)*c.beat - 2*pause)
		must.OK(t, err)
		seen := picture{places: placesOn(&m)}
		for _, x := range h.Preemptions {
			if x.At < time.Duration(i)*c.beat || x.At >= time.Duration(i+1)*c.beat {
				continue
			}
			for _, job := range slices.Concat(x.Evicted...) {
				seen.evicted = append(seen.evicted, string(h.Outcomes[job].UID))
			}
		}
		slices.Sort(seen.evicted)
		pictures = append(pictures, seen)
	}
	return pictures, h
}

// placesOn returns where the pods are on a map, by name.
func placesOn(m *vgpu.Map) map[string]string {
	seen := map[string]string{}
	for i := range m.Nodes {
		for k := range m.Nodes[i].Devices {
			d := &m.Nodes[i].Devices[k]
			for _, slice := range d.Slices {
				if slice.Held || slice.Pod == "" {
					continue
				}
				name := strings.TrimPrefix(slice.Pod, namespace+"/")
				place := strings.TrimPrefix(string(d.ID), "GPU-")
				if seen[name] != "" {
					place = seen[name] + "+" + place
				}
				seen[name] = place
			}
		}
	}
	return seen
}

// jobsOf returns the pods of a step as the simulator has them.
func jobsOf(t *testing.T, s step, at time.Duration) []sim.Job {
	t.Helper()
	members := s.number("members", 1)
	all := make([]sim.Job, members)
	var group *sim.Gang
	if s.verb == "gang" {
		wishes := gang.Wishes{Required: levels(s.list("required")), Preferred: levels(s.list("preferred"))}
		if s.options["required"] == "" && s.options["preferred"] == "" {
			wishes.Preferred = []string{v1.LabelHostname} // as in gangArgs
		}
		group = &sim.Gang{Name: namespace + "/" + s.name, Wishes: wishes}
		if sizes := s.options["elastic"]; sizes != "" {
			numbers, legal := workers.ParseSizes(sizes, members)
			if !legal {
				t.Fatalf("the sizes %q are not legal", sizes)
			}
			group.Elastic = &sim.Elastic{Sizes: numbers}
		}
	}
	for i := range all {
		name := s.name
		if group != nil {
			name = fmt.Sprintf("%s-%d", s.name, i)
		}
		r := vgpu.Request{
			UID: vgpu.UID(name), Pod: namespace + "/" + name, Priority: int32(s.number("priority", 0)),
			Host:       vgpu.Room{MilliCPU: int64(s.number("cpus", 0)) * 1000},
			Containers: []vgpu.ContainerRequest{{Name: "main", Slots: vgpu.Slots(s.number("slots", 0))}},
		}
		all[i] = sim.Job{Request: r, Arrive: at, Duration: s.span("runs") + s.span("ends"), DeclaresEnd: s.span("ends") > 0, Gang: group}
	}
	return all
}

// TestSimulatorPlacesAlike plays random workloads of pods and gangs of one priority through both. At the end of each beat the same
// pods are at the same devices.
func TestSimulatorPlacesAlike(t *testing.T) {
	all := compare(t, false)
	if all.drains == 0 {
		t.Errorf("room was kept for no gang in %d workloads", all.workloads)
	}
}

// TestSimulatorPreemptsAlike is the same with priorities, and compares who was evicted in each beat too.
func TestSimulatorPreemptsAlike(t *testing.T) {
	all := compare(t, true)
	if all.evictions == 0 {
		t.Errorf("no pod was evicted in %d workloads", all.workloads)
	}
}

// historiesPerWorkload is how much longer a workload takes than a random history.
const historiesPerWorkload = 6

// raceWorkloads is how many workloads a test plays under the race detector, which makes them ten times as slow.
const raceWorkloads = 3

// comparison counts what was compared.
type comparison struct {
	workloads, beats, unlike int
	drains, evictions        int
}

// mostUnlike is the part of the workloads, one in so many, that may come out otherwise. The scheduler looks at what it keeps room for
// once in half a second, and the simulator at once: which of two gangs is due first can depend on that.
const mostUnlike = 5

// workloadCount returns how many workloads a test plays.
func workloadCount() int {
	count := (min(*histories, perProcess) + historiesPerWorkload - 1) / historiesPerWorkload
	if racedetector.On {
		count = min(count, raceWorkloads)
	}
	return count
}

// compare plays random workloads through both, each until they differ.
func compare(t *testing.T, preempting bool) (all comparison) {
	t.Helper()
	t.Parallel()
	for i := range workloadCount() {
		c := compose(*seed+uint64(i), preempting)
		want, h := c.simulated(t)
		got, log := c.scheduled(t)
		all.workloads++
		for g := range h.Gangs {
			all.drains += h.Gangs[g].Drains
		}
		for k := range want {
			all.evictions += len(want[k].evicted)
			all.beats++
			if want[k].String() == got[k].String() {
				continue
			}
			all.unlike++
			t.Logf("workload of seed %d, beat %d at %v:\nsimulator: %v\nscheduler: %v\n%s%s", c.seed, k, time.Duration(k)*c.beat, want[k], got[k], c, strings.Join(log, "\n"))
			break
		}
	}
	t.Logf("%+v", all)
	if all.unlike > 1+all.workloads/mostUnlike {
		t.Errorf("%d of %d workloads come out otherwise in the simulator than by the scheduler", all.unlike, all.workloads)
	}
	return all
}
