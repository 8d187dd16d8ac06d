package preemption_test

import (
	"fmt"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/tandem-gpu/tandem/internal/testkit"
	"github.com/tandem-gpu/tandem/pkg/gang"
	"github.com/tandem-gpu/tandem/pkg/preemption"
	"github.com/tandem-gpu/tandem/pkg/vgpu"
)

// wholeSite draws a pod that wants several whole devices on nodes where nearly all are taken, by shares of one device and of
// several, in gangs and not, at few different costs, so that many sets cost the same.
func wholeSite(tb testing.TB, t *rapid.T) *site {
	s := &site{want: &gang.Group{Name: "new", MinCount: 1}}
	r := *testkit.Request("new", vgpu.Slots(10*number(t, "devices wanted", 2, 3)))
	r.Priority, r.Host.MilliCPU = 2, int64(number(t, "cores", 0, 3))*1000
	s.want.Members = []gang.Member{{Request: r}}
	s.cfg.KeepBudgets = oneIn(t, "keep budgets", 3)
	s.who.Budgets = []preemption.Budget{{Name: "web", Allowed: number(t, "allowed", 0, 2)}}
	s.who.Gangs = []preemption.Gang{{Name: "job", MinCount: number(t, "min", 1, 4)}, {Name: "run", MinCount: number(t, "min", 1, 4)}}
	var nodes []*vgpu.Node
	for i := range number(t, "nodes", 1, 2) {
		n := testkit.Node(tb, fmt.Sprint("n", i), pick(t, "model", testkit.A100, testkit.V100), 4)
		n.SetRoom(vgpu.Room{MilliCPU: int64(number(t, "cores left", 0, 2)) * 1000})
		nodes = append(nodes, n)
	}
	s.cluster = testkit.Cluster(tb, nodes...)
	s.Nodes = s.cluster.Nodes()
	for i := range number(t, "pods", 4, 11) {
		s.addWhole(tb, t, fmt.Sprintf("%c%d", pick(t, "letter", 'a', 'b', 'c', 'd'), i))
	}
	return s
}

// addWhole books a pod with a half or the whole of devices that are next to each other, if they are free.
func (s *site) addWhole(tb testing.TB, t *rapid.T, name string) {
	n := pick(t, "node", s.Nodes...)
	g, count, slots := number(t, "first device", 0, 3), pick(t, "devices", 1, 1, 1, 2), pick(t, "slots", vgpu.Slots(10), 10, 5)
	a := testkit.Assignment(tb, n, g, name, slots)
	if g+count <= 4 && slots == 10 {
		a.Containers[0].Share.Devices = count
		for d := 1; d < count; d++ {
			a.Containers[0].Devices = append(a.Containers[0].Devices, n.Devices()[g+d].ID)
		}
	}
	if s.cluster.Add(a) != nil {
		return
	}
	p := preemption.Pod{
		UID: vgpu.UID(name), Name: name, Node: n.Name(), Gang: pick(t, "gang", -1, -1, 0, 1), Lost: int64(number(t, "lost", 0, 2)),
		Priority: int32(number(t, "priority", 0, 1)), Host: vgpu.Room{MilliCPU: int64(number(t, "its cores", 0, 1)) * 1000},
	}
	if oneIn(t, "under a budget", 3) {
		p.Budgets = []int{0}
	}
	if oneIn(t, "stays", 10) {
		p.Priority = 2
	}
	s.who.Pods = append(s.who.Pods, p)
}

// TestWholeTwinProperty is TestPodTwinProperty for whole devices.
func TestWholeTwinProperty(t *testing.T) {
	met, tb := tally{}, t
	rapid.Check(t, func(t *rapid.T) {
		s := wholeSite(tb, t)
		plan := mustPlan(t, s)
		want := s.cheapest(t, false, s.cfg.KeepBudgets)
		switch {
		case want == nil && plan.Refused == nil:
			t.Fatalf("evicts %v, the twin finds no victims:\n%s", names(plan.Evict), testkit.Draw(s.cluster))
		case want == nil:
			met["refused"]++
			return
		case plan.Refused != nil:
			t.Fatalf("refused %+v, the twin evicts %v:\n%s", *plan.Refused, names(want.units), testkit.Draw(s.cluster))
		}
		if got := names(plan.Evict); !slices.Equal(got, names(want.units)) || plan.Cost != want.cost || plan.Stats.Cut {
			t.Fatalf("evicts %v at %+v, the twin %v at %+v:\n%s", got, plan.Cost, names(want.units), want.cost, testkit.Draw(s.cluster))
		}
		met.note(&plan)
	})
	met.require(t, 1, "refused", "several", "Single")
}
