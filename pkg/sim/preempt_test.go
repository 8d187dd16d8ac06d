package sim_test

import (
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/tandem-gpu/tandem/pkg/preemption"
	"github.com/tandem-gpu/tandem/pkg/sim"
	"github.com/tandem-gpu/tandem/pkg/vgpu"
	"github.com/tandem-gpu/tandem/test/must"
)

// randomEvictions lets a random setup have preemption: more priorities, checkpoints, budgets and times of grace. One setup in
// two has pods of one container that are alike, so that many fit.
func randomEvictions(t *rapid.T, policies ...sim.PreemptionPolicy) sim.Setup {
	s := randomSetup(t, sim.FIFO, sim.Skip)
	if rapid.Bool().Draw(t, "alike") {
		for i := range s.Jobs {
			r := &s.Jobs[i].Request
			*r = vgpu.Request{UID: r.UID, Pod: r.Pod, Containers: []vgpu.ContainerRequest{{Name: "c", Slots: vgpu.Slots(rapid.IntRange(1, 2).Draw(t, "half") * 5)}}}
		}
	}
	s.Preemption = sim.PreemptionConfig{
		Policy: rapid.SampledFrom(policies).Draw(t, "preemption"),
		Grace:  time.Duration(rapid.SampledFrom([]int{0, 0, 1, 2, 3}).Draw(t, "grace")) * time.Second,
		Prices: rapid.SampledFrom([]*preemption.Prices{nil, {}, {Step: 500, Violation: 700, Broken: 300}}).Draw(t, "prices"), Compare: rapid.Bool().Draw(t, "compare"),
	}
	budgets := []*sim.Budget{nil, nil, {Name: "b0"}, {Name: "b1", MaxUnavailable: 1}}
	like := map[*sim.Gang]*sim.Job{}
	for i := range s.Jobs {
		j := &s.Jobs[i]
		j.Request.Priority = int32(rapid.IntRange(0, 3).Draw(t, "rank"))
		j.Checkpoint = time.Duration(rapid.SampledFrom([]int{0, 0, 1, 2}).Draw(t, "checkpoint")) * time.Second
		j.Budget = rapid.SampledFrom(budgets).Draw(t, "budget")
		if first := like[j.Gang]; j.Gang != nil && first != nil {
			j.Request.Priority, j.Checkpoint = first.Request.Priority, first.Checkpoint
		} else if j.Gang != nil {
			like[j.Gang] = j
		}
	}
	return s
}

// stay is one time that a job had its place.
type stay struct {
	from, to time.Duration
	evicted  bool
}

// stays returns the times that each job had places, by what happened, and how long each waited for them.
func stays(h *sim.History) (all map[int][]stay, waited map[int]time.Duration) {
	all, waited = map[int][]stay{}, map[int]time.Duration{}
	since := map[int]time.Duration{}
	for i := range h.Outcomes {
		since[i] = h.Outcomes[i].Arrived
	}
	of := func(job int) []int {
		for _, g := range h.Gangs {
			if slices.Contains(g.Members, job) {
				return g.Members
			}
		}
		return []int{job}
	}
	for _, e := range h.Events() {
		switch e.What {
		case "starts":
			waited[e.Job] += e.At - since[e.Job]
			all[e.Job] = append(all[e.Job], stay{from: e.At, to: -1})
		case "ends", "leaves":
			last := &all[e.Job][len(all[e.Job])-1]
			last.to, last.evicted = e.At, e.What == "leaves"
		case "returns":
			for _, job := range of(e.Job) {
				since[job] = e.At
			}
		}
	}
	return all, waited
}

// TestEvictionsProperty: each victim is of a lower priority, leaves after its grace, comes back and does the rest of its work;
// waits and lost work add up; hosts are never overbooked; and the picture of any moment can be drawn.
func TestEvictionsProperty(t *testing.T) {
	seen := map[string]int{}
	rapid.Check(t, func(t *rapid.T) {
		s := randomEvictions(t, sim.PreemptInTree, sim.PreemptTandem)
		h := play(t, s)
		all, waited := stays(h)
		for i := range h.Outcomes {
			checkStays(t, &s, i, &h.Outcomes[i], all[i])
			if h.Outcomes[i].State.Placed() && h.Outcomes[i].Wait() != waited[i] {
				t.Fatalf("job %d waited for %v, not %v", i, waited[i], h.Outcomes[i].Wait())
			}
		}
		checkGangWaits(t, &s, h)
		checkSamples(t, h)
		checkHosts(t, &s, all, h)
		checkDecisions(t, &s, h, seen)
		for _, sample := range h.Samples {
			if _, err := h.MapAt(sample.At); err != nil {
				t.Fatal(err)
			}
		}
	})
	if seen["preemptions"] == 0 {
		t.Error("nobody is evicted in any history")
	}
	t.Logf("evicted: %v", seen)
}

// checkGangWaits adds up how long each gang waited, and counts the members that run: enough of them, whenever it starts.
func checkGangWaits(t *rapid.T, s *sim.Setup, h *sim.History) {
	for i := range h.Gangs {
		g := &h.Gangs[i]
		since, waits, waited, started := g.Arrived, true, time.Duration(0), 0
		for _, e := range h.Events() {
			switch {
			case !slices.Contains(g.Members, e.Job):
			case e.What == "returns":
				since, waits, started = e.At, true, 0
			case e.What == "starts":
				if started++; waits {
					waited, waits = waited+e.At-since, false
				}
			}
		}
		least := s.Jobs[g.Members[0]].Gang.MinCount
		if least == 0 {
			least = len(g.Members)
		}
		if g.State.Placed() && (g.Wait() != waited || started < least) {
			t.Fatalf("gang %s waited for %v and started with %d of %d: %+v", g.Name, waited, started, least, g)
		}
	}
}

// checkStays adds up the work of a job over the times that it had a place. A gang keeps what its members saved when they went.
func checkStays(t *rapid.T, s *sim.Setup, i int, o *sim.Outcome, all []stay) {
	job, evictions := &s.Jobs[i], 0
	left := job.Duration
	for _, x := range all {
		switch {
		case x.evicted:
			evictions++
			worked := x.to - s.Preemption.Grace - x.from
			if worked < 0 {
				t.Fatalf("job %d had less time than its grace: %v", i, all)
			}
			if job.Checkpoint > 0 && job.Gang == nil {
				left = job.Duration - (job.Duration-left+worked)/job.Checkpoint*job.Checkpoint
			}
		case x.to >= 0 && job.Gang == nil && x.to-x.from != left:
			t.Fatalf("job %d had %v to do and ran for %v: %v", i, left, x.to-x.from, all)
		}
	}
	if evictions != o.Evictions || evictions == 0 && o.Lost != 0 {
		t.Fatalf("job %d was evicted %d times: %+v", i, evictions, o)
	}
	if o.State == sim.Finished && (len(all) == 0 || all[len(all)-1].to != o.Ended || all[len(all)-1].evicted) {
		t.Fatalf("job %d ended and did not: %+v, %v", i, o, all)
	}
}

// checkHosts adds up, at every start, what the pods that are there ask of each node, wherever the events say that they are.
func checkHosts(t *rapid.T, s *sim.Setup, all map[int][]stay, h *sim.History) {
	for at := time.Duration(0); at <= 100*time.Second; at += time.Second {
		m, err := h.MapAt(at)
		must.OK(t, err)
		running := 0
		for i := range h.Outcomes {
			for _, x := range all[i] {
				if x.from <= at && (x.to < 0 || at < x.to) {
					running++
				}
			}
		}
		shown := map[string]bool{}
		for _, n := range m.Nodes {
			for _, d := range n.Devices {
				for _, slice := range d.Slices {
					if !slice.Held {
						shown[string(slice.UID)] = true
					}
				}
			}
		}
		for i := range s.Jobs {
			there := slices.ContainsFunc(all[i], func(x stay) bool { return x.from <= at && (x.to < 0 || at < x.to) })
			if len(s.Jobs[i].Request.Containers) > 0 && shown[string(s.Jobs[i].Request.UID)] != there {
				t.Fatalf("at %v job %d is on a device (%v), by the events %v", at, i, !there, all[i])
			}
		}
		if sample := sampleAt(h, at); sample != nil && sample.Running != running {
			t.Fatalf("at %v %d pods run, the sample says %+v", at, running, sample)
		}
	}
}

// sampleAt returns the last sample up to a time.
func sampleAt(h *sim.History, at time.Duration) *sim.Sample {
	var last *sim.Sample
	for i := range h.Samples {
		if h.Samples[i].At <= at {
			last = &h.Samples[i]
		}
	}
	return last
}

// checkDecisions looks at each preemption, and counts what kinds there are.
func checkDecisions(t *rapid.T, s *sim.Setup, h *sim.History, seen map[string]int) {
	audit, err := h.Audit()
	must.OK(t, err)
	if audit.Unlawful > 0 || audit.Preemptions != len(h.Preemptions) {
		t.Fatalf("%+v of %+v", audit, h.Preemptions)
	}
	if plain(s) && (audit.Void > 0 || s.Preemption.Policy == sim.PreemptTandem && audit.Needless > 0) {
		t.Fatalf("somebody goes in vain: %+v of %+v", audit, h.Preemptions)
	}
	lost := int64(0)
	for i := range h.Preemptions {
		x := &h.Preemptions[i]
		lost += x.Lost
		seen["preemptions"] += x.Victims()
		seen["waits"] += len(x.Waits)
		seen["fallen"] += len(x.Fallen)
		seen["violations"] += x.Violations
		if x.LeastLost > 0 {
			seen["least"]++
		}
		if plain(s) && (x.LeastLost > x.Lost || x.InTreeLost > 0 && x.LeastLost > x.InTreeLost) {
			t.Fatalf("%+v: the least lost work is more than the lost work", *x)
		}
		for _, unit := range x.Evicted {
			own := s.Jobs[unit[0]].Gang
			switch {
			case own == nil || s.Preemption.Policy != sim.PreemptTandem:
			case len(unit) > 1:
				seen["gangs"]++
			default:
				seen["surplus"]++
			}
		}
		checkStart(t, s, h, x)
	}
	for i := range h.Outcomes {
		lost -= h.Outcomes[i].Lost
	}
	if lost != 0 {
		t.Fatalf("decisions and jobs disagree by %d about what is lost", lost)
	}
}

// plain reports whether the members of each gang are alike with one container each: of other gangs Place may find the places, or
// not, by what it tries first.
func plain(s *sim.Setup) bool {
	return !slices.ContainsFunc(s.Jobs, func(j sim.Job) bool { return j.Gang != nil && !uniform(s, j.Gang.Name) })
}

// checkStart: where nobody is of a higher priority, whoever others are evicted for has started when their grace is over.
func checkStart(t *rapid.T, s *sim.Setup, h *sim.History, x *sim.Preemption) {
	for i := range s.Jobs {
		if s.Jobs[i].Request.Priority > s.Jobs[x.Job].Request.Priority {
			return
		}
	}
	due := x.At + s.Preemption.Grace
	for _, e := range h.Events() {
		if e.What == "starts" && e.Job == x.Job && x.At <= e.At && e.At <= due {
			return
		}
	}
	if o := &h.Outcomes[x.Job]; o.State != sim.Dropped && len(x.Waits) == 0 {
		t.Fatalf("others are evicted for job %d at %v, and it does not start by %v: %+v", x.Job, x.At, due, o)
	}
}

// TestOrderOfNodesWithEvictionsProperty: the order in which the nodes are given changes no decision.
func TestOrderOfNodesWithEvictionsProperty(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := randomEvictions(t, sim.PreemptInTree, sim.PreemptTandem)
		want := play(t, s)
		s.Nodes = rapid.Permutation(s.Nodes).Draw(t, "order")
		got := play(t, s)
		if diff := cmp.Diff(want.Outcomes, got.Outcomes); diff != "" {
			t.Fatalf("outcomes changed with the order of the nodes:\n%s", diff)
		}
		if diff := cmp.Diff(want.Preemptions, got.Preemptions); diff != "" {
			t.Fatalf("preemptions changed with the order of the nodes:\n%s", diff)
		}
	})
}

// TestHelplessProperty: a pod that nobody could be evicted for is asked for again only where something changed, which changes
// no decision.
func TestHelplessProperty(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := randomEvictions(t, sim.PreemptInTree, sim.PreemptTandem)
		got := play(t, s)
		want, err := sim.RunForgetful(s)
		must.OK(t, err)
		if diff := cmp.Diff(want.Events(), got.Events()); diff != "" {
			t.Fatalf("what happens (-want +got):\n%s", diff)
		}
	})
}

// TestNoPodIsEvictedProperty: with one priority for all, and with the policy none, the history is the same whatever the policy.
func TestNoPodIsEvictedProperty(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := randomEvictions(t, sim.PreemptInTree, sim.PreemptTandem)
		for i := range s.Jobs {
			s.Jobs[i].Request.Priority = 2
		}
		some := play(t, s)
		s.Preemption.Policy = sim.PreemptNobody
		if diff := cmp.Diff(play(t, s).Outcomes, some.Outcomes); diff != "" || len(some.Preemptions) > 0 {
			t.Fatalf("%v\n%s", some.Preemptions, diff)
		}
	})
}
