package sim_test

import (
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/tandem-gpu/tandem/internal/testkit"
	"github.com/tandem-gpu/tandem/pkg/elastic"
	"github.com/tandem-gpu/tandem/pkg/sim"
	"github.com/tandem-gpu/tandem/pkg/vgpu"
	"github.com/tandem-gpu/tandem/test/must"
)

// elastic reads a word about an elastic gang.
func (s *story) elastic(g *sim.Gang, key, value string) (err error) {
	if g.Elastic == nil {
		g.Elastic = &sim.Elastic{}
	}
	switch key {
	case "elastic":
		for _, w := range strings.Split(value, ",") {
			g.Elastic.Sizes = append(g.Elastic.Sizes, whole(s.t, w))
		}
	case "resize":
		g.Elastic.ResizeTime, err = time.ParseDuration(value)
	case "rates":
		for _, w := range strings.Split(value, ",") {
			workers, rate, _ := strings.Cut(w, ":")
			p := elastic.Point{Workers: whole(s.t, workers)}
			if p.Rate, err = strconv.ParseFloat(rate, 64); err != nil {
				return err
			}
			g.Elastic.Curve.Points = append(g.Elastic.Curve.Points, p)
		}
	}
	return err
}

// elasticFlag reads an argument of a run about elastic gangs.
func (s *story) elasticFlag(key, value string) (err error) {
	c := &s.setup.Elastic
	switch key {
	case "every":
		c.Every, err = time.ParseDuration(value)
	case "notice":
		c.Notice, err = time.ParseDuration(value)
	case "admit":
		c.AdmitWithin, err = time.ParseDuration(value)
	case "moves":
		c.MaxMoves = whole(s.t, value)
	default:
		err = fmt.Errorf("unknown argument %q", key)
	}
	return err
}

// elasticGang makes the first n jobs an elastic gang.
func elasticGang(s *sim.Setup, sizes ...int) *sim.Elastic {
	g := &sim.Gang{Name: "g", Elastic: &sim.Elastic{Sizes: sizes}}
	for i := range s.Jobs {
		s.Jobs[i].Gang, s.Jobs[i].Arrive = g, 0
	}
	return g.Elastic
}

func TestRunRefusesBrokenElasticGangs(t *testing.T) {
	for _, tc := range []struct {
		name   string
		change func(*sim.Setup, *sim.Elastic)
		err    string
	}{
		{"no sizes", func(_ *sim.Setup, e *sim.Elastic) { e.Sizes = nil }, "gang g: it is elastic and has no legal number of members"},
		{"sizes that fall", func(_ *sim.Setup, e *sim.Elastic) { e.Sizes = []int{2, 1} }, "gang g: its numbers of members are [2 1]: they must ascend from 1"},
		{"no members", func(_ *sim.Setup, e *sim.Elastic) { e.Sizes = []int{0, 1} }, "gang g: its numbers of members are [0 1]: they must ascend from 1"},
		{"too few members", func(_ *sim.Setup, e *sim.Elastic) { e.Sizes = []int{1, 3} }, "gang g: it may run with 3 members and has 2"},
		{"another least number", func(s *sim.Setup, _ *sim.Elastic) { s.Jobs[0].Gang.MinCount = 2 },
			"gang g: it may run with 1 members and its least number of members is 2: they must be the same"},
		{"a change that takes a week", func(_ *sim.Setup, e *sim.Elastic) { e.ResizeTime = 168 * time.Hour },
			"gang g: a change of its size takes 168h0m0s, legal is 0s to 24h"},
		{"no rate", func(_ *sim.Setup, e *sim.Elastic) { e.Curve.Points = []elastic.Point{{Workers: 1, Rate: math.NaN()}} },
			"gang g: curve: the rate of 1 workers is NaN, legal is above 0"},
		{"unlike members", func(s *sim.Setup, _ *sim.Elastic) { s.Jobs[1].Request.Containers[0].Slots = 3 },
			"job 1 (pod b): asks for something else than the first member of its elastic gang"},
		{"a member without GPU", func(s *sim.Setup, _ *sim.Elastic) { s.Jobs[1].Request.Containers = nil },
			"job 1 (pod b): is a member of an elastic gang and has no GPU"},
		{"an end that is not known", func(s *sim.Setup, _ *sim.Elastic) { s.Jobs[0].DeclaresEnd, s.Jobs[1].DeclaresEnd = true, true },
			"job 0 (pod a): declares its end, and an elastic gang does not know it"},
		{"a budget", func(s *sim.Setup, _ *sim.Elastic) { s.Jobs[1].Budget = &sim.Budget{Name: "b"} },
			"job 1 (pod b): is a member of an elastic gang and has a budget, which would count the members that are held back"},
		{"all the time", func(s *sim.Setup, _ *sim.Elastic) { s.Elastic.Every = time.Millisecond },
			"elastic gangs: sizes are decided every 1ms, legal is 1s to 1h0m0s"},
		{"a notice in the past", func(s *sim.Setup, _ *sim.Elastic) { s.Elastic.Notice = -1 },
			"elastic gangs: members leave after a notice of -1ns, legal is 0s to 1h0m0s"},
		{"another policy", func(s *sim.Setup, _ *sim.Elastic) { s.Elastic.Policy = "random" },
			"elastic gangs: unknown policy \"random\", known are [goodput elastic-fifo elastic-srjf ffdl elastic-kubeflow dragon]"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			s := setup(t, 2, 2)
			tc.change(&s, elasticGang(&s, 1, 2))
			h, err := sim.Run(s)
			if want := "run simulation: " + tc.err; err == nil || err.Error() != want || h != nil {
				t.Errorf("Run = %v, %v, want the error %s", h, err, want)
			}
		})
	}
}

// randomElastic draws whole-GPU nodes, elastic gangs, fleets among them, and other pods of several priorities.
func randomElastic(t *rapid.T) sim.Setup {
	number := func(label string, low, high int) int { return rapid.IntRange(low, high).Draw(t, label) }
	s := sim.Setup{Queue: rapid.SampledFrom([]sim.Queue{sim.FIFO, sim.Skip}).Draw(t, "queue"), Mix: usual(t)}
	for i := range number("nodes", 1, 3) {
		s.Nodes = append(s.Nodes, wholeNode(t, fmt.Sprintf("n%d", i), number("devices", 1, 4)))
	}
	s.Elastic = sim.ElasticConfig{
		Config: elastic.Config{Policy: rapid.SampledFrom(elastic.Policies()).Draw(t, "policy"), Horizon: 600, MaxMoves: number("moves", 1, 30)},
		Every:  10 * time.Second, Notice: time.Duration(number("notice", 0, 2)) * 7 * time.Second, AdmitWithin: time.Minute,
	}
	if rapid.Bool().Draw(t, "preempts") {
		s.Preemption = sim.PreemptionConfig{
			Policy: rapid.SampledFrom([]sim.PreemptionPolicy{sim.PreemptTandem, sim.PreemptInTree}).Draw(t, "preemption"),
			Grace:  time.Duration(number("grace", 0, 2)) * 9 * time.Second,
		}
	}
	for i := range number("jobs", 1, 6) {
		name := fmt.Sprintf("p%d", i)
		job := sim.Job{
			Arrive: time.Duration(number("arrive", 0, 40)) * 7 * time.Second, Duration: time.Duration(number("duration", 1, 40)) * 13 * time.Second,
			Checkpoint: time.Duration(number("checkpoint", 0, 2)) * 50 * time.Second,
		}
		members := 1
		if rapid.Bool().Draw(t, "elastic") {
			least := number("least", 1, 3)
			sizes, err := elastic.Steps(least, number("most", least, 6), number("step", 1, 2))
			must.OK(t, err)
			members = sizes[len(sizes)-1]
			job.Gang = &sim.Gang{Name: name, Elastic: &sim.Elastic{
				Sizes: sizes, ResizeTime: time.Duration(number("resize", 0, 3)) * 5 * time.Second,
				Curve: elastic.Curve{Growth: float64(number("growth", 1, 10)) / 10, Apart: .7},
			}}
		}
		if job.Gang != nil && rapid.Bool().Draw(t, "fleet") {
			e := job.Gang.Elastic
			e.ResizeTime, e.Fleet = 0, &sim.Fleet{Size: randomSizes(t, e.Sizes)}
		}
		priority, slots := int32(number("priority", 0, 2)), vgpu.Slots(rapid.SampledFrom([]int{5, 10}).Draw(t, "slots"))
		for k := range members {
			job.Request = *testkit.Request(fmt.Sprintf("%s-%d", name, k), slots)
			job.Request.Priority = priority
			s.Jobs = append(s.Jobs, job)
		}
	}
	return s
}

// randomSizes returns a fleet's wishes: other legal numbers of replicas every minute, and more of them later.
func randomSizes(t *rapid.T, sizes []int) func(time.Duration, int) (int, []sim.Need) {
	wants := rapid.SliceOfN(rapid.SampledFrom(sizes), 1, 6).Draw(t, "wants")
	in := time.Duration(rapid.IntRange(0, 10).Draw(t, "in")) * time.Minute
	return func(at time.Duration, _ int) (int, []sim.Need) {
		return wants[int(at/time.Minute)%len(wants)], []sim.Need{{In: in, Replicas: slices.Max(wants)}}
	}
}

// wholeNode returns a node of so many A100.
func wholeNode(t *rapid.T, name string, count int) *vgpu.Node {
	devices := make([]vgpu.Device, 0, count)
	for i := range count {
		devices = append(devices, testkit.A100.Device(name, i))
	}
	n, err := vgpu.NewNode(name, devices)
	must.OK(t, err)
	n.SetRoom(plenty)
	return n
}

// TestElasticProperty: no gang runs with fewer members than the least legal number, or with more than the largest. Its
// work is done: the sum of speed × time since its last start, with what a checkpoint kept, is its duration. No device has
// two owners, all that could start did, and members that are held back count nowhere else.
func TestElasticProperty(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := randomElastic(t)
		h := play(t, s)
		for i := range h.Gangs {
			checkSizes(t, &s, &h.Gangs[i])
		}
		for _, at := range samplesOf(h) {
			checkOwners(t, h, at)
		}
		last := h.Samples[len(h.Samples)-1]
		if last.Running != h.Count(sim.Running) || last.Waiting != h.Count(sim.Waiting) || last.Dropped != h.Count(sim.Dropped) {
			t.Fatalf("the last sample %+v counts other pods than the outcomes", last)
		}
		if last.Running > 0 || last.Allocated > 0 {
			t.Fatalf("all pods end, and the last sample is %+v", last)
		}
		if h.Preempts() {
			if a, err := h.Audit(); err != nil || a.Unlawful > 0 {
				t.Fatalf("the audit says %+v, %v", a, err)
			}
		}
	})
}

// checkSizes looks at the sizes of a gang over time.
func checkSizes(t *rapid.T, s *sim.Setup, g *sim.GangOutcome) {
	job := &s.Jobs[g.Members[0]]
	if job.Gang.Elastic == nil {
		return
	}
	sizes := job.Gang.Elastic.Sizes
	work, rounding := 0.0, 2.0
	for i, size := range g.Sizes {
		if size.Workers != 0 && (size.Workers < sizes[0] || size.Workers > sizes[len(sizes)-1]) {
			t.Fatalf("gang %s has %d members, legal is 0, or %d to %d", g.Name, size.Workers, sizes[0], sizes[len(sizes)-1])
		}
		if i+1 < len(g.Sizes) {
			work += size.Speed * float64(max(0, g.Sizes[i+1].At-max(size.At, size.Works)))
			rounding += size.Speed
		}
		if size.Workers == 0 && i+1 < len(g.Sizes) { // it was evicted
			kept := 0.0
			if every := float64(job.Checkpoint); every > 0 {
				kept = math.Floor((work+rounding)/every) * every
			}
			work = min(work, kept)
		}
	}
	if g.State == sim.Finished && math.Abs(work-float64(job.Duration)) > rounding {
		t.Fatalf("gang %s did %v of work of %v: %+v", g.Name, time.Duration(work), job.Duration, g.Sizes)
	}
}

// samplesOf returns the times at which something happens, each once.
func samplesOf(h *sim.History) []time.Duration {
	var times []time.Duration
	for i := range h.Samples {
		times = append(times, h.Samples[i].At)
	}
	return slices.Compact(times)
}

// checkOwners looks at the devices at a time: nobody has a slot that somebody else has.
func checkOwners(t *rapid.T, h *sim.History, at time.Duration) {
	m, err := h.MapAt(at)
	must.OK(t, err)
	for _, n := range m.Nodes {
		for _, d := range n.Devices {
			used := vgpu.Slots(0)
			for _, slice := range d.Slices {
				if !slice.Held {
					used += slice.To - slice.From
				}
			}
			if used > d.Slots {
				t.Fatalf("at %v %d of %d slots of %s have owners", at, used, d.Slots, d.ID)
			}
		}
	}
}

// TestOneSizeProperty: an elastic gang with one legal size is like a gang that is not elastic.
func TestOneSizeProperty(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := randomElastic(t)
		for i := range s.Jobs {
			s.Jobs[i].Checkpoint = 0
			if g := s.Jobs[i].Gang; g != nil && g.Elastic != nil {
				g.Elastic.Sizes, g.Elastic.Curve.Apart = g.Elastic.Sizes[len(g.Elastic.Sizes)-1:], 1
			}
		}
		s.Preemption = sim.PreemptionConfig{} // it prefers other victims among elastic gangs
		for i := range s.Jobs {
			if g := s.Jobs[i].Gang; g != nil {
				g.Elastic.ResizeTime, g.Elastic.Fleet = 0, nil
				members := 0
				for k := range s.Jobs {
					if s.Jobs[k].Gang == g {
						members++
					}
				}
				g.Elastic.Sizes = []int{members}
			}
		}
		want := play(t, rigid(s))
		got := play(t, s)
		if diff := cmp.Diff(want.Outcomes, got.Outcomes); diff != "" {
			t.Fatalf("outcomes (-rigid +one size):\n%s", diff)
		}
		if diff := cmp.Diff(want.Samples, got.Samples); diff != "" {
			t.Fatalf("samples (-rigid +one size):\n%s", diff)
		}
	})
}

// rigid returns a setup whose gangs are not elastic.
func rigid(s sim.Setup) sim.Setup {
	s.Jobs = slices.Clone(s.Jobs)
	plain := map[*sim.Gang]*sim.Gang{}
	for i := range s.Jobs {
		if g := s.Jobs[i].Gang; g != nil {
			if plain[g] == nil {
				plain[g] = &sim.Gang{Name: g.Name}
			}
			s.Jobs[i].Gang = plain[g]
		}
	}
	return s
}
