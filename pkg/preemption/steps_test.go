package preemption_test

import (
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/tandem-gpu/tandem/internal/testkit"
	"github.com/tandem-gpu/tandem/pkg/gang"
	"github.com/tandem-gpu/tandem/pkg/preemption"
	"github.com/tandem-gpu/tandem/pkg/vgpu"
	"github.com/tandem-gpu/tandem/test/must"
)

// row is nodes that are drawn, with a candidate for each pod.
type row struct {
	tb   testing.TB
	c    *vgpu.Cluster
	who  preemption.Candidates
	slot []vgpu.Slots
	// memory that the first container asks for, and cores of the host.
	memory vgpu.Bytes
	cores  int64
	cfg    preemption.Config
}

func newRow(tb testing.TB, drawing string, slots ...vgpu.Slots) *row {
	tb.Helper()
	c, err := testkit.Parse(drawing)
	must.OK(tb, err)
	r := &row{tb: tb, c: c, slot: slots}
	for _, n := range c.Nodes() {
		n.Each(func(a *vgpu.Assignment) {
			r.who.Pods = append(r.who.Pods, preemption.Pod{UID: a.UID, Name: a.Pod, Node: n.Name(), Gang: -1})
		})
	}
	return r
}

// lose sets the work that is lost with the pods, in the order of nodes and UIDs.
func (r *row) lose(lost func(i int) int64) *row {
	for i := range r.who.Pods {
		r.who.Pods[i].Lost = lost(i)
	}
	return r
}

func (r *row) plan() preemption.Plan {
	r.tb.Helper()
	q := testkit.Request("new", r.slot...)
	q.Priority, q.Containers[0].Memory, q.Host.MilliCPU = 5, r.memory, r.cores*1000
	want := &gang.Group{Name: "new", Members: []gang.Member{{Request: *q}}, MinCount: 1}
	plan, err := preemption.Victims(&gang.Cluster{Nodes: r.c.Nodes()}, want, &r.who, r.cfg)
	must.OK(r.tb, err)
	return plan
}

// times repeats a part of a drawing, with its number for "%d".
func times(n int, part string) (drawing string) {
	for i := range n {
		drawing += fmt.Sprintf(part, i)
	}
	return drawing
}

// TestCutKeepsTheDearest: a search that may try one set only keeps the dearest pods, of equal ones the last by name.
func TestCutKeepsTheDearest(t *testing.T) {
	for _, c := range []struct {
		name, drawing string
		lost          []int64
		slots         vgpu.Slots
		want          []string
	}{
		// There are five pods of two slots, and two must be evicted: the search keeps the three dearest first.
		{"the cheapest go", "n1: g0 A100 [a:2 b:2 c:2 d:2 e:2]", []int64{30, 10, 50, 20, 40}, 4, []string{"b", "d"}},
		{"the first go", "n1: g0 A100 [a:2 b:2 c:2 d:2 e:2]", []int64{10, 10, 10, 10, 10}, 4, []string{"a", "b"}},
		// The search clears the two cheapest of three devices.
		{"the cheapest devices", "n1: g0 A100 [a:10] | g1 A100 [b:10] | g2 A100 [c:10]", []int64{30, 10, 20}, 20, []string{"b", "c"}},
		// p is the cheapest, and once w has gone for the second device its two are enough.
		{"no pod is evicted in vain", "n1: g0 A100 [p:10] | g1 A100 [w:10] | g2 A100 [w:10]", []int64{1, 10}, 20, []string{"w"}},
		{"the first devices", "n1: g0 A100 [a:10] | g1 A100 [b:10] | g2 A100 [c:10]", []int64{10, 10, 10}, 20, []string{"a", "b"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := newRow(t, c.drawing, c.slots).lose(func(i int) int64 { return c.lost[i] })
			r.cfg.MaxSteps = 1
			plan := r.plan()
			if diff := cmp.Diff(c.want, names(plan.Evict)); diff != "" {
				t.Errorf("evicts (-want +got):\n%s", diff)
			}
			r.cfg.MaxSteps = 0
			if plan = r.plan(); plan.Stats.Cut {
				t.Errorf("a small search is cut: %+v", plan.Stats)
			}
		})
	}
}

// TestSteps: the search skips sets that cannot be better. The bounds are measured values; fewer steps are welcome.
func TestSteps(t *testing.T) {
	rising := func(i int) int64 { return 100 + int64(i) }
	for _, c := range []struct {
		name          string
		row           *row
		places, steps int
	}{
		{"a gang on one device", newRow(t, "n1: g0 A100 ["+times(10, "m%d:1 ")+"]", 5).inGang(10), 1, 6},
		{"ten on one device", newRow(t, "n1: g0 A100 ["+times(10, "m%d:1 ")+"]", 5).lose(rising), 1, 461},
		{"slots", newRow(t, "n1: g0 A100 ["+times(10, "m%d:1/1Gi ")+"]", 5).asks(vgpu.GiB, 0).lose(rising), 1, 461},
		{"memory", newRow(t, "n1: g0 A100 ["+times(5, "m%d:1/8Gi ")+"]", 1).asks(20*vgpu.GiB, 0).lose(rising), 1, 19},
		{"contexts", newRow(t, "model P slots=10 memory=40Gi contexts=3\nn1: g0 P [m0:1 m1:1 m2:1]", 1).lose(rising), 1, 3},
		{"cores", newRow(t, "n1 cpu=1 memory=64Gi: g0 A100 ["+times(10, "m%d:1 ")+"]", 1).asks(0, 6).lose(rising), 1, 461},
		{"devices and cores", newRow(t, "n1 cpu=1 memory=64Gi: "+times(8, "g%[1]d A100 [p%[1]d:10] | ")+"g8 A100 sick", 40).asks(0, 7).lose(rising), 1, 755},
		{"eight of sixteen devices", newRow(t, "n1: "+times(16, "g%[1]d A100 [p%[1]d:10] | ")+"g16 A100 sick", 80).lose(rising), 1, 16},
		{"eight of sixteen devices of a gang", newRow(t, "n1: "+times(16, "g%[1]d A100 [p%[1]d:10] | ")+"g16 A100 sick", 80).inGang(12), 1, 2001},
		{"eight of sixteen devices with two pods", newRow(t, "n1: "+times(16, "g%[1]d A100 [p%[1]d:5 q%[1]d:5] | ")+"g16 A100 sick", 80).lose(rising), 1, 16},
		{"the cheapest node", newRow(t, times(50, "n%[1]d: g0 A100 [p%[1]d:10]\n"), 10).lose(rising), 1, 1},
		{"two containers on one node", newRow(t, "n1: g0 A100 ["+times(5, "p%d:2 ")+"] | g1 A100 ["+times(5, "q%d:2 ")+"]", 5, 6).lose(rising), 1, 263},
		{"two containers on fifty nodes", newRow(t, times(50, "n%[1]d: g0 A100 [p%[1]d:5 q%[1]d:5] | g1 A100 [r%[1]d:10]\n"), 6, 5).lose(rising), 35, 269},
	} {
		t.Run(c.name, func(t *testing.T) {
			if plan := c.row.plan(); plan.Refused != nil || plan.Stats.Places > c.places || plan.Stats.Steps > c.steps {
				t.Errorf("looked at %+v, refused %v; the bounds are %d places and %d steps", plan.Stats, plan.Refused, c.places, c.steps)
			}
		})
	}
}

// TestCutEnds: a search ends soon after its bound, once it has a first set.
func TestCutEnds(t *testing.T) {
	for _, c := range []struct {
		name        string
		row         *row
		most, steps int
	}{
		{"ten on one device", newRow(t, "n1: g0 A100 ["+times(10, "m%d:1 ")+"]", 5), 20, 20 + 11},
		{"no set yet", newRow(t, "n1: g0 A100 ["+times(10, "m%d:1 ")+"]", 5), 2, 2 + 13},
		{"sixteen devices", newRow(t, "n1: "+times(16, "g%[1]d A100 [p%[1]d:10] | ")+"g16 A100 sick", 80).inGang(12), 100, 100 + 17},
	} {
		t.Run(c.name, func(t *testing.T) {
			c.row.lose(func(i int) int64 { return 100 + int64(i) }).cfg.MaxSteps = c.most
			if plan := c.row.plan(); plan.Refused != nil || !plan.Stats.Cut || plan.Stats.Steps > c.steps {
				t.Errorf("looked at %+v, refused %v; the bound is %d steps", plan.Stats, plan.Refused, c.steps)
			}
		})
	}
}

// asks says what is asked for beside slots: memory of the device, and cores of the host, of which each pod has one.
func (r *row) asks(memory vgpu.Bytes, cores int64) *row {
	r.memory, r.cores = memory, cores
	for i := range r.who.Pods {
		r.who.Pods[i].Host.MilliCPU = 1000
	}
	return r
}

// inGang puts all pods into one gang.
func (r *row) inGang(least int) *row {
	r.who.Gangs = []preemption.Gang{{Name: "job", MinCount: least}}
	for i := range r.who.Pods {
		r.who.Pods[i].Gang = 0
	}
	return r
}

// TestOvercommittedHost: a host with more use than capacity takes a pod that asks for none of its CPU and memory. For
// one core, victims must also give back the excess.
func TestOvercommittedHost(t *testing.T) {
	for cores, want := range [][]string{{}, {"a", "b"}} {
		r := newRow(t, "n1: g0 A100 [a:4 b:2]", 2).asks(0, int64(cores))
		r.c.Nodes()[0].SetRoom(vgpu.Room{MilliCPU: -1000, Memory: -1})
		plan := r.plan()
		if diff := cmp.Diff(want, names(plan.Evict)); diff != "" || plan.Refused != nil {
			t.Errorf("%d cores: refused %v, evicts (-want +got):\n%s", cores, plan.Refused, diff)
		}
	}
}

// A pod of many unlike containers takes a bounded number of steps on all nodes together, and gets a plan where there is one: the search goes to no
// further node when its steps are used up.
func TestManyNodesShareSteps(t *testing.T) {
	plan := unlikeRow(t, 200, 7).plan()
	if plan.Refused != nil || !plan.Stats.Cut {
		t.Errorf("refused %v, cut %v", plan.Refused, plan.Stats.Cut)
	}
	if most := 40_000; plan.Stats.Steps > most {
		t.Errorf("%d steps, want at most %d", plan.Stats.Steps, most)
	}
}

// unlikeRow has nodes whose devices are full of pods of unlike costs, and a preemptor of so many unlike containers.
func unlikeRow(tb testing.TB, nodes, containers int) *row {
	drawing := ""
	for i := range nodes {
		drawing += fmt.Sprintf("n%04d:", i)
		for g := range 4 {
			drawing += fmt.Sprintf(" %s g%d A100 [p%d.%d.a:1 p%d.%d.b:2 p%d.%d.c:3 p%d.%d.d:4]", []string{"", "|"}[min(g, 1)], g, i, g, i, g, i, g, i, g)
		}
		drawing += "\n"
	}
	slots := []vgpu.Slots{9, 7, 6, 5, 4, 3, 2, 1, 1, 1, 1}[:containers]
	r := newRow(tb, drawing, slots...).lose(func(i int) int64 { return int64(7*i%13 + 1) })
	if containers > 1 {
		r.memory = 30 * vgpu.GiB
	}
	return r
}

// BenchmarkExtremes is one plan on full nodes for a pod of many unlike containers, and for one of one container.
func BenchmarkExtremes(b *testing.B) {
	for _, nodes := range []int{60, 1000} {
		for _, containers := range []int{1, 7, 11} {
			b.Run(fmt.Sprintf("preemptor/%d-containers/%d-nodes", containers, nodes), func(b *testing.B) {
				r := unlikeRow(b, nodes, containers)
				for b.Loop() {
					r.plan()
				}
			})
		}
	}
}
