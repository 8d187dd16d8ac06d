package sim_test

import (
	"encoding/json"
	"fmt"
	"reflect"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/tandem-gpu/tandem/internal/testkit"
	"github.com/tandem-gpu/tandem/pkg/fragmentation"
	"github.com/tandem-gpu/tandem/pkg/placement"
	"github.com/tandem-gpu/tandem/pkg/sim"
	"github.com/tandem-gpu/tandem/pkg/vgpu"
	"github.com/tandem-gpu/tandem/test/must"
)

// randomSetup draws a small cluster with few cores and a workload of pods and gangs whose times often coincide. One workload in two
// lasts for several times the pause between two looks whether room is kept for a gang.
func randomSetup(t *rapid.T, queues ...sim.Queue) sim.Setup {
	var s sim.Setup
	unit := time.Duration(rapid.SampledFrom([]int{1, 7}).Draw(t, "unit")) * time.Second
	for i := range rapid.IntRange(1, 4).Draw(t, "nodes") {
		n := testkit.RandomNode(t, fmt.Sprintf("n%d", i), 3)
		n.SetRoom(randomRoom(t))
		s.Nodes = append(s.Nodes, n)
	}
	for i := range rapid.IntRange(0, 14).Draw(t, "jobs") {
		pod := fmt.Sprintf("p%d", i)
		r := *testkit.RandomRequest(t, pod, 2)
		if rapid.IntRange(0, 3).Draw(t, "without GPUs") == 0 {
			r.Containers = nil
		}
		if rapid.Bool().Draw(t, "asks its host") {
			r.Host = randomRoom(t)
		}
		s.Jobs = append(s.Jobs, sim.Job{
			Request: r, Arrive: time.Duration(rapid.IntRange(0, 6).Draw(t, "arrive")) * unit,
			Duration: time.Duration(rapid.IntRange(0, 4).Draw(t, "duration")) * unit,
		})
		j := &s.Jobs[i]
		j.DeclaresEnd = j.Duration > 0 && rapid.Bool().Draw(t, "declares its end")
	}
	randomGangs(t, &s)
	s.Queue = rapid.SampledFrom(queues).Draw(t, "queue")
	name := rapid.SampledFrom(placement.Policies()).Draw(t, "policy")
	s.Policy, _ = placement.ByName(name)
	s.Seed = int64(rapid.IntRange(0, 3).Draw(t, "seed"))
	if rapid.Bool().Draw(t, "mix given") {
		s.Mix = usual(t)
	}
	return s
}

func usual(t *rapid.T) *fragmentation.Mix {
	mix, err := fragmentation.NewMix([]fragmentation.Kind{{Slots: 3, Weight: 2}, {Slots: 10, Weight: 1}, {MilliCPU: 2000, Weight: 1}})
	must.OK(t, err)
	return mix
}

func randomRoom(t *rapid.T) vgpu.Room {
	return vgpu.Room{
		MilliCPU: int64(rapid.IntRange(0, 8).Draw(t, "cores")) * 1000, Memory: vgpu.Bytes(rapid.IntRange(0, 8).Draw(t, "memory")),
	}
}

func play(t *rapid.T, s sim.Setup) *sim.History {
	t.Helper()
	h, err := sim.Run(s)
	must.OK(t, err)
	return h
}

var allQueues = []sim.Queue{sim.Drop, sim.FIFO, sim.Skip}

// TestAgreesWithTwinProperty: the history is that of a twin that knows nothing of ledgers, caches and queues (see twin),
// whatever the queue and the policy.
func TestAgreesWithTwinProperty(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := randomSetup(t, allQueues...)
		s.Mix = usual(t) // a learned one changes the policies as pods arrive
		if diff := cmp.Diff(twin(t, s), brief(play(t, s))); diff != "" {
			t.Fatalf("the twin says otherwise (-twin +sim):\n%s", diff)
		}
	})
}

// TestOrderOfNodesProperty: the order in which the nodes are given changes nothing, and neither does another run.
func TestOrderOfNodesProperty(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := randomSetup(t, allQueues...)
		want := play(t, s)
		s.Nodes = rapid.Permutation(s.Nodes).Draw(t, "order")
		got := play(t, s)
		if diff := cmp.Diff(want.Outcomes, got.Outcomes); diff != "" {
			t.Fatalf("outcomes changed with the order of the nodes:\n%s", diff)
		}
		if diff := cmp.Diff(want.Samples, got.Samples); diff != "" {
			t.Fatalf("samples changed with the order of the nodes:\n%s", diff)
		}
	})
}

// TestOutcomesProperty: every job has one outcome, in the order of the jobs, with times that go together; room and devices
// are never overbooked, and are what they were once all have ended.
func TestOutcomesProperty(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := randomSetup(t, allQueues...)
		before := text(t, vgpu.MapOf(s.Nodes))
		h := play(t, s)
		if len(h.Outcomes) != len(s.Jobs) {
			t.Fatalf("%d outcomes of %d jobs", len(h.Outcomes), len(s.Jobs))
		}
		for i := range h.Outcomes {
			checkOutcome(t, &s, i, &h.Outcomes[i])
		}
		checkGangs(t, &s, h)
		checkSamples(t, h)
		checkRoom(t, &s, h)
		checkMoments(t, &s, h)
		if now := text(t, vgpu.MapOf(s.Nodes)); now != before {
			t.Fatalf("the run changed the nodes that it was given:\n%s", cmp.Diff(before, now))
		}
	})
}

func checkOutcome(t *rapid.T, s *sim.Setup, i int, o *sim.Outcome) {
	job := &s.Jobs[i]
	switch {
	case o.UID != job.Request.UID || o.Arrived != job.Arrive:
		t.Fatalf("outcome %d is %+v, of another job", i, o)
	case o.State.Placed() && (o.Started < o.Arrived || o.Assignment.Node == ""):
		t.Fatalf("job %d was placed before it came, or nowhere: %+v", i, o)
	case o.State == sim.Finished && o.Ended != o.Started+job.Duration:
		t.Fatalf("job %d ran for %v: %+v", i, job.Duration, o)
	case o.State == sim.Running && job.Duration != 0:
		t.Fatalf("job %d has not ended: %+v", i, o)
	case !o.State.Placed() && (o.Assignment.Node != "" || o.Allocated != 0 || o.Ended != 0):
		t.Fatalf("job %d has a place and was not placed: %+v", i, o)
	case o.State == sim.Dropped && s.Queue != sim.Drop && job.Gang == nil, o.State == sim.Waiting && s.Queue == sim.Drop:
		t.Fatalf("job %d is %v in the queue %v", i, o.State, s.Queue)
	}
}

func checkSamples(t *rapid.T, h *sim.History) {
	for i := 1; i < len(h.Samples); i++ {
		if h.Samples[i].At < h.Samples[i-1].At || h.Samples[i].Arrived < h.Samples[i-1].Arrived {
			t.Fatalf("samples go back: %+v", h.Samples[i-1:i+1])
		}
	}
	if len(h.Samples) == 0 {
		return
	}
	last := h.Samples[len(h.Samples)-1]
	if last.Running != h.Count(sim.Running) || last.Waiting != h.Count(sim.Waiting) || last.Dropped != h.Count(sim.Dropped) {
		t.Fatalf("the last sample %+v counts other pods than the outcomes", last)
	}
}

// checkRoom adds up, at every start, what the pods on each node ask of the host, and looks at the cluster after the end.
func checkRoom(t *rapid.T, s *sim.Setup, h *sim.History) {
	for _, n := range s.Nodes {
		for i := range h.Outcomes {
			at, used := h.Outcomes[i].Started, vgpu.Room{}
			for k := range h.Outcomes {
				o := &h.Outcomes[k]
				if o.State.Placed() && o.Assignment.Node == n.Name() && o.Started <= at && (o.State == sim.Running || at < o.Ended) {
					used = used.Plus(s.Jobs[k].Request.Host)
				}
			}
			if !used.Within(n.Room()) {
				t.Fatalf("at %v the pods on node %s ask for %v of %v", at, n.Name(), used, n.Room())
			}
		}
	}
	end, err := h.MapAt(time.Hour)
	must.OK(t, err)
	if h.Count(sim.Running) > 0 {
		return
	}
	want := vgpu.MapOf(byName(s.Nodes))
	want.AtSeconds, want.Pending = end.AtSeconds, end.Pending
	for _, n := range end.Nodes { // what is kept for a gang that waits for ever stays
		for i := range n.Devices {
			d := &n.Devices[i]
			d.Slices = slices.DeleteFunc(d.Slices, func(slice vgpu.MapSlice) bool {
				return slice.Held && slices.ContainsFunc(s.Jobs, func(j sim.Job) bool { return j.Request.UID == slice.UID })
			})
		}
	}
	if diff := cmp.Diff(text(t, want), text(t, end)); diff != "" {
		t.Fatalf("all pods have ended and the cluster is not as it was:\n%s", diff)
	}
}

func byName(nodes []*vgpu.Node) []*vgpu.Node {
	return slices.SortedFunc(slices.Values(nodes), func(a, b *vgpu.Node) int { return cmpNames(a.Name(), b.Name()) })
}

func cmpNames(a, b string) int {
	if a < b {
		return -1
	}
	return 1
}

func text(t *rapid.T, m vgpu.Map) string {
	out, err := json.Marshal(m)
	must.OK(t, err)
	return string(out)
}

// TestFIFOProperty: in a FIFO no pod starts before one that came earlier and is of no lower priority.
func TestFIFOProperty(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := randomSetup(t, sim.FIFO)
		h := play(t, s)
		for i := range h.Outcomes {
			for k := range h.Outcomes {
				a, b := &h.Outcomes[i], &h.Outcomes[k]
				earlier := a.Arrived < b.Arrived || a.Arrived == b.Arrived && order(&s, i) < order(&s, k)
				if a.State == sim.Dropped {
					continue // its gang started without it
				}
				earlier = earlier && s.Jobs[i].Request.Priority >= s.Jobs[k].Request.Priority
				if earlier && b.State.Placed() && (!a.State.Placed() || b.Started < a.Started) {
					t.Fatalf("job %d overtook job %d: %+v %+v", k, i, b, a)
				}
			}
		}
	})
}

// order returns where a job stands in the order of arrival: a member of a gang where the first one does.
func order(s *sim.Setup, job int) int {
	if own := s.Jobs[job].Gang; own != nil {
		return slices.IndexFunc(s.Jobs, func(j sim.Job) bool { return j.Gang == own })
	}
	return job
}

// uniform reports whether the members of a gang are alike, with at most one container each.
func uniform(s *sim.Setup, name string) bool {
	var first *vgpu.Request
	for i := range s.Jobs {
		if own := s.Jobs[i].Gang; own == nil || own.Name != name {
			continue
		}
		r := s.Jobs[i].Request
		r.UID, r.Pod = "", ""
		if first == nil {
			first = &r
		}
		if len(r.Containers) > 1 || !reflect.DeepEqual(*first, r) {
			return false
		}
	}
	return true
}

// TestSkipWastesNothingProperty: where pods may overtake, one that waits fits nowhere, and neither does a gang of pods that
// are alike with one container each. Place may find the places of other gangs, or not, by what it tries first.
func TestSkipWastesNothingProperty(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := randomSetup(t, sim.Skip)
		h := play(t, s)
		for _, sample := range h.Samples {
			m, err := h.MapAt(sample.At)
			must.OK(t, err)
			for _, p := range m.Pending {
				if p.Reason == "" && (p.Members == 0 || uniform(&s, p.Pod)) {
					t.Fatalf("at %v pod %s waits and fits", sample.At, p.Pod)
				}
			}
		}
	})
}
