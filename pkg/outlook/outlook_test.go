package outlook_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/tandem-gpu/tandem/internal/testkit"
	"github.com/tandem-gpu/tandem/pkg/outlook"
	"github.com/tandem-gpu/tandem/pkg/placement"
	"github.com/tandem-gpu/tandem/pkg/sim"
	"github.com/tandem-gpu/tandem/pkg/snapshot"
	"github.com/tandem-gpu/tandem/pkg/vgpu"
	"github.com/tandem-gpu/tandem/test/must"
)

var noon = time.Date(2026, 3, 4, 12, 0, 0, 0, time.UTC)

// drawn returns the snapshot of a drawn cluster.
func drawn(t *testing.T, drawing string, change func(s *snapshot.Snapshot)) *snapshot.Snapshot {
	t.Helper()
	c, err := testkit.Parse(drawing)
	must.OK(t, err)
	s := &snapshot.Snapshot{Source: snapshot.FromScheduler, At: noon}
	for _, n := range c.Nodes() {
		s.Nodes = append(s.Nodes, snapshot.NodeOf(n))
	}
	change(s)
	s.Sort()
	must.OK(t, s.Check())
	return s
}

// waiting returns a pod that waits for slots, since so many minutes, as a member of a gang unless that is "".
func waiting(path string, slots vgpu.Slots, minutes int, gang string) snapshot.Pending {
	p := snapshot.Pending{
		Name: snapshot.NameOf(path, vgpu.UID(path)), Since: noon.Add(-time.Duration(minutes) * time.Minute),
		Request: &snapshot.Request{Containers: []snapshot.ContainerRequest{{Name: "main", Kind: "app", Slots: slots}}},
	}
	if gang != "" {
		p.Gang = &snapshot.GangName{Source: "label", Namespace: "a", Name: gang}
	}
	return p
}

func gangOf(name string, least int) snapshot.Gang {
	return snapshot.Gang{GangName: snapshot.GangName{Source: "label", Namespace: "a", Name: name}, MinCount: least}
}

// played plays a snapshot for an hour, and says which pods get which node and when.
func played(t *testing.T, s *snapshot.Snapshot, r outlook.Rules) (string, *outlook.Outlook) {
	t.Helper()
	o, err := outlook.Play(s, r, time.Hour)
	must.OK(t, err)
	all := make([]string, 0, len(o.Pods))
	for _, p := range o.Pods {
		all = append(all, strings.TrimSpace(fmt.Sprintf("%s %s", p.Path(), strings.TrimSpace(fmt.Sprintf("%s %d", p.Node, p.AfterSeconds)))))
	}
	return strings.Join(all, ", "), o
}

// Pods are tried by priority, then by age; a pod that ends makes room, and its declared end counts.
func TestOrder(t *testing.T) {
	s := drawn(t, "n1: g0 A100 [a/train:10]", func(s *snapshot.Snapshot) {
		s.Nodes[0].Pods[0].EndsBy = noon.Add(5 * time.Minute)
		s.Pending = []snapshot.Pending{waiting("a/young", 10, 1, ""), waiting("a/old", 10, 9, ""), waiting("a/first", 10, 0, "")}
		s.Pending[2].Request.Priority, s.Pending[2].Request.EndsAfterSeconds = 1, 60
	})
	got, o := played(t, s, outlook.Rules{})
	if want := "a/first n1 300, a/old n1 360, a/young 0"; got != want {
		t.Errorf("%s, want %s", got, want)
	}
	if o.Pods[1].WaitedSeconds != 9*60+360 || o.Pods[2].WaitedSeconds != 60+3600 {
		t.Errorf("waited %d and %d, want 900 and 3660 s", o.Pods[1].WaitedSeconds, o.Pods[2].WaitedSeconds)
	}
	if left := o.After.Pending; len(left) != 1 || !left[0].Since.Equal(noon.Add(-time.Minute)) || !o.After.At.Equal(noon.Add(time.Hour)) {
		t.Errorf("at the end, %v, there wait %+v", o.After.At, left)
	}
	if diff := cmp.Diff(map[outlook.Gap]int{outlook.HostUse: 1}, o.Gaps); diff != "" {
		t.Errorf("gaps (-want +got):\n%s", diff)
	}
}

// Nodes that take no pods, or whose free slots are not known, take none; the pods on them count.
func TestClosedNodes(t *testing.T) {
	s := drawn(t, "n1: g0 A100 [a/x:3]\nn2: g0 A100\nn3: g0 A100 sick", func(s *snapshot.Snapshot) {
		s.Nodes[0].Problem, s.Nodes[1].StraySlots = "cordoned", 1
		s.Pending = []snapshot.Pending{waiting("a/p", 1, 1, "")}
	})
	got, o := played(t, s, outlook.Rules{})
	if f := o.Figures; got != "a/p 0" || o.Gaps[outlook.ClosedNodes] != 2 || f.GPUs != 3 || f.GPUsInUse != 1 || f.FreeSlots != 0 || f.LargestGang != 0 {
		t.Errorf("%s, gaps %v, figures %+v", got, o.Gaps, f)
	}
	if n := o.After.Nodes[0]; n.Problem != "cordoned" || !n.Devices[0].Healthy || len(n.Pods) != 1 {
		t.Errorf("the node at the end is %+v", n)
	}
}

// Members that wait for a gang that runs are alone; those of one that lacks some start together; those of one that lacks too many wait on.
func TestGangs(t *testing.T) {
	s := drawn(t, "n1: g0 A100 [a/r-0:1 a/h-0:1] | g1 A100 [b/train:10] | g2 A100", func(s *snapshot.Snapshot) {
		for i := range s.Nodes[0].Pods {
			p := &s.Nodes[0].Pods[i]
			switch p.Name.Name {
			case "r-0":
				p.Gang = &snapshot.GangName{Source: "label", Namespace: "a", Name: "runs"}
			case "h-0":
				p.Gang = &snapshot.GangName{Source: "label", Namespace: "a", Name: "half"}
			default:
				p.EndsBy = noon.Add(time.Minute)
			}
		}
		s.Gangs = []snapshot.Gang{gangOf("runs", 1), gangOf("half", 3), gangOf("lacks", 3)}
		s.Pending = []snapshot.Pending{
			waiting("a/r-1", 2, 9, "runs"), waiting("a/h-1", 10, 8, "half"), waiting("a/h-2", 10, 8, "half"),
			waiting("a/l-0", 1, 7, "lacks"), waiting("a/l-1", 1, 7, "lacks"),
		}
	})
	got, o := played(t, s, outlook.Rules{})
	if want := "a/r-1 n1 0, a/h-1 n1 60, a/h-2 n1 60, a/l-0 0, a/l-1 0"; got != want {
		t.Errorf("%s, want %s", got, want)
	}
	if o.Gaps[outlook.Incomplete] != 2 || o.Gaps[outlook.Topology] != 1 {
		t.Errorf("gaps %v, want 2 members that lack others, and one gang", o.Gaps)
	}
}

// A pod that is being evicted is gone, and waits again; the preemptor gets its kept room, which nobody else of its priority gets.
func TestLeaving(t *testing.T) {
	s := drawn(t, "n1: g0 A100 [a/victim:10]", func(s *snapshot.Snapshot) {
		hold := snapshot.Hold{Pod: snapshot.Pod{Name: snapshot.NameOf("a/urgent", "a/urgent"), Containers: s.Nodes[0].Pods[0].Containers, Priority: 5}}
		s.Nodes[0].Holds = []snapshot.Hold{hold}
		s.Pending = []snapshot.Pending{waiting("a/older", 10, 9, ""), waiting("a/urgent", 10, 1, "")}
		for i := range s.Pending {
			s.Pending[i].Request.Priority = 5
		}
		s.Preemptions = []snapshot.Preemption{{Pod: &hold.Name, Phase: "Leaving", Victims: []snapshot.Place{{Name: s.Nodes[0].Pods[0].Name, Node: "n1"}}}}
	})
	got, o := played(t, s, outlook.Rules{Preemption: sim.PreemptionConfig{Policy: sim.PreemptTandem}})
	if want := "a/older 0, a/urgent n1 0, a/victim 0"; got != want || o.Gaps[outlook.Leaving] != 1 || len(o.Preempted) != 0 {
		t.Errorf("%s, want %s; gaps %v, preempted %v", got, want, o.Gaps, o.Preempted)
	}
}

// The outlook names the preempted pod, the preemptor, the time, and the node to which the preempted pod comes back.
func TestPreempted(t *testing.T) {
	s := drawn(t, "n1: g0 A100 [a/victim:10]\nn2: g0 A100 [a/train:10]", func(s *snapshot.Snapshot) {
		s.Nodes[1].Pods[0].EndsBy, s.Nodes[1].Pods[0].Priority = noon.Add(10*time.Minute), 9
		s.Pending = []snapshot.Pending{waiting("a/urgent", 10, 1, "")}
		s.Pending[0].Request.Priority = 5
	})
	_, o := played(t, s, outlook.Rules{Preemption: sim.PreemptionConfig{Policy: sim.PreemptTandem, Grace: 30 * time.Second}})
	want := []outlook.Preempted{{Name: snapshot.NameOf("a/victim", "a/victim"), Node: "n1", For: "a/urgent", Back: "n2"}}
	if diff := cmp.Diff(want, o.Preempted); diff != "" || o.Pods[0].AfterSeconds != 30 {
		t.Errorf("the preemptor starts after %d s; preempted (-want +got):\n%s", o.Pods[0].AfterSeconds, diff)
	}
}

// A victim on two GPUs asks for two again. A preemption after the time is not told.
func TestPreemptedOnTwoGPUs(t *testing.T) {
	s := drawn(t, "n1: g0 A100 [a/low:10] | g1 A100\nn2: g0 A100 [b/low:10] | g1 A100 [a/vip:10]", func(s *snapshot.Snapshot) {
		low := &s.Nodes[0].Pods[0]
		low.Containers[0].Devices = []vgpu.DeviceID{s.Nodes[0].Devices[0].ID, s.Nodes[0].Devices[1].ID}
		vip := &s.Nodes[1].Pods[0]
		vip.Priority, vip.EndsBy = 9, noon.Add(time.Minute)
		s.Pending = []snapshot.Pending{waiting("a/urgent", 20, 1, ""), waiting("a/next", 20, 1, "")}
		s.Pending[0].Request.Priority, s.Pending[1].Request.Priority = 5, 5
		s.Pending[0].Request.EndsAfterSeconds = 600
	})
	rules := outlook.Rules{Preemption: sim.PreemptionConfig{Policy: sim.PreemptTandem}}
	got, o := played(t, s, rules)
	if want := "a/next n1 0, a/urgent n2 60"; got != want || len(o.Preempted) != 2 || o.Preempted[0].Back != "n2" || o.Figures.GPUsInUse != 4 {
		t.Errorf("%s, want %s; preempted %+v", got, want, o.Preempted)
	}
	short, err := outlook.Play(s, rules, 30*time.Second)
	if err != nil || len(short.Preempted) != 1 || short.Pods[1].Node != "" {
		t.Errorf("within 30 s: %+v, %v", short, err)
	}
}

// A pod that starts, is preempted and starts again counts from its first start.
func TestStartsTwice(t *testing.T) {
	s := drawn(t, "n1: g0 A100 [a/vip:10] | g1 A100", func(s *snapshot.Snapshot) {
		s.Nodes[0].Pods[0].Priority, s.Nodes[0].Pods[0].EndsBy = 9, noon.Add(time.Minute)
		s.Pending = []snapshot.Pending{waiting("a/p", 10, 1, ""), waiting("a/urgent", 20, 1, "")}
		s.Pending[1].Request.Priority, s.Pending[1].Request.EndsAfterSeconds = 5, 60
	})
	got, o := played(t, s, outlook.Rules{Preemption: sim.PreemptionConfig{Policy: sim.PreemptTandem}})
	if want := "a/urgent n1 60, a/p n1 0"; got != want || len(o.Preempted) != 1 || o.Preempted[0].Back != "n1" {
		t.Errorf("%s, want %s; preempted %+v", got, want, o.Preempted)
	}
}

// A pod that ends before the kept room is needed uses it meanwhile; one that ends later does not.
func TestKeptRoom(t *testing.T) {
	s := drawn(t, "n1: g0 A100 [a/train:5]", func(s *snapshot.Snapshot) {
		train := &s.Nodes[0].Pods[0]
		train.EndsBy = noon.Add(20 * time.Minute)
		whole := snapshot.Container{Name: "main", Kind: "app", Devices: train.Containers[0].Devices, Slots: 10, MemoryBytes: s.Nodes[0].Devices[0].MemoryBytes, ComputeLimit: 1000, MemoryLimitBytes: s.Nodes[0].Devices[0].MemoryBytes}
		s.Nodes[0].Holds = []snapshot.Hold{{Pod: snapshot.Pod{Name: snapshot.NameOf("a/big", "a/big"), Containers: []snapshot.Container{whole}}, Until: noon.Add(20 * time.Minute)}}
		s.Pending = []snapshot.Pending{waiting("a/long", 5, 9, ""), waiting("a/short", 5, 8, ""), waiting("a/big", 10, 7, "")}
		s.Pending[0].Request.EndsAfterSeconds, s.Pending[1].Request.EndsAfterSeconds = 3600, 600
	})
	if got, _ := played(t, s, outlook.Rules{}); got != "a/long 0, a/short n1 0, a/big n1 1200" {
		t.Errorf("%s", got)
	}
}

// The members of a gang end together, with the last of them, and rank by the numbers in their names.
func TestMembers(t *testing.T) {
	s := drawn(t, "n1: g0 A100 [a/m-0:10]\nn2: g0 A100 [a/m-1:10]", func(s *snapshot.Snapshot) {
		for i := range s.Nodes {
			p := &s.Nodes[i].Pods[0]
			p.Gang, p.EndsBy = &snapshot.GangName{Source: "label", Namespace: "a", Name: "m"}, noon.Add(time.Duration(i+1)*10*time.Minute)
		}
		s.Nodes[1].Problem = "cordoned"
		s.Gangs = []snapshot.Gang{gangOf("m", 2), gangOf("w", 1)}
		s.Pending = []snapshot.Pending{waiting("a/w-10", 10, 1, "w"), waiting("a/w-2", 10, 1, "w")}
	})
	if got, _ := played(t, s, outlook.Rules{}); got != "a/w-10 0, a/w-2 n1 1200" {
		t.Errorf("%s, want the member of the lower rank, when both members of the other gang have ended", got)
	}
}

// The seed makes a difference to a policy that draws.
func TestSeed(t *testing.T) {
	s := drawn(t, "n1: g0 A100\nn2: g0 A100", func(s *snapshot.Snapshot) { s.Pending = []snapshot.Pending{waiting("a/p", 1, 1, "")} })
	random, err := placement.ByName("random")
	must.OK(t, err)
	seen := map[string]bool{}
	for seed := range int64(20) {
		got, _ := played(t, s, outlook.Rules{Policy: random, Seed: seed})
		seen[got] = true
	}
	if len(seen) != 2 {
		t.Errorf("20 seeds give %v, want both nodes", seen)
	}
}

// Two gangs of one name are two. A preemptor that is the rest of a gang has the gang's name.
func TestNamesOfGangs(t *testing.T) {
	s := drawn(t, "n1: g0 A100 [a/g-0:1] | g1 A100 [b/low:10]\nn2: g0 A100", func(s *snapshot.Snapshot) {
		s.Nodes[0].Pods[0].Gang = &snapshot.GangName{Source: "label", Namespace: "a", Name: "g"}
		s.Pending = []snapshot.Pending{waiting("a/g-1", 10, 9, "g"), waiting("a/g-2", 10, 9, "g"), waiting("a/x-0", 1, 1, "g"), waiting("a/x-1", 9, 1, "g")}
		other := gangOf("g", 2)
		other.Source = "scheduling.x-k8s.io"
		for i := range s.Pending {
			if s.Pending[i].Request.Priority = 5; i > 1 {
				s.Pending[i].Request.Priority, s.Pending[i].Gang = 0, &other.GangName
			}
		}
		s.Gangs = []snapshot.Gang{gangOf("g", 3), other}
	})
	got, o := played(t, s, outlook.Rules{Preemption: sim.PreemptionConfig{Policy: sim.PreemptTandem}})
	if want := "a/g-1 n1 0, a/g-2 n2 0, a/x-0 0, a/x-1 0"; got != want || len(o.Preempted) != 1 || o.Preempted[0].For != "gang a/g" {
		t.Errorf("%s, want %s; preempted %+v", got, want, o.Preempted)
	}
}

// Pods that cannot be played are counted.
func TestGaps(t *testing.T) {
	s := drawn(t, "n1: g0 A100", func(s *snapshot.Snapshot) {
		s.Redacted, s.PendingLeftOut = true, 4
		s.Pending = []snapshot.Pending{waiting("a/bad", 0, 1, ""), waiting("a/none", 1, 1, ""), waiting("a/kept", 1, 1, ""), waiting("a/gated", 1, 1, "")}
		s.Pending[1].Request, s.Pending[3].Gates = nil, []string{"example.com/gate"}
		s.Pending[2].Refused = &snapshot.Refused{Nodes: []snapshot.RefusedNodes{{Reason: "NodeAffinity", Nodes: 1}, {Reason: string(vgpu.NoShareFits), Nodes: 1}}}
	})
	got, o := played(t, s, outlook.Rules{})
	want := map[outlook.Gap]int{outlook.Names: 1, outlook.Gated: 1, outlook.LeftOut: 4, outlook.Malformed: 2, outlook.OtherPlugins: 1}
	if diff := cmp.Diff(want, o.Gaps); got != "a/bad 0, a/gated 0, a/kept n1 0, a/none 0" || diff != "" {
		t.Errorf("%s; gaps (-want +got):\n%s", got, diff)
	}
}

// The figures of a cluster with a shared GPU, an idle one, and room that is kept.
func TestFigures(t *testing.T) {
	s := drawn(t, "n1: g0 A100 40G [a/x:4 a/y:2] | g1 A100 40G\nn2: g0 A100 40G | g1 A100 40G | g2 A100 40G [a/z:5]", func(s *snapshot.Snapshot) {
		d := s.Nodes[0].Devices[0].ID
		for i := range s.Nodes[0].Pods {
			s.Nodes[0].Pods[i].On = []snapshot.On{{Device: d, SlowdownMilli: 1300}}
		}
		s.Pending = []snapshot.Pending{waiting("a/whole", 10, 1, "")}
	})
	a, err := outlook.Compare(s, outlook.Rules{}, &outlook.Change{Pods: []snapshot.Pending{waiting("a/beside", 4, 0, "")}}, time.Minute)
	must.OK(t, err)
	// Mean slowdown: 1.3, 1.3, and 1.0 of the pod that is alone.
	want := outlook.Figures{
		GPUs: 5, GPUsInUse: 2, Slots: 50, FreeSlots: 39, MemoryBytes: 200 << 30, FreeMemoryBytes: 156 << 30,
		FragmentationMilliGPU: a.Now.FragmentationMilliGPU, LargestGang: 3, LargestOnNode: 2, SlowdownMilli: 1200,
	}
	if diff := cmp.Diff(want, a.Now); diff != "" || a.Now.FragmentationMilliGPU == 0 {
		t.Errorf("fragmentation %d; now (-want +got):\n%s", a.Now.FragmentationMilliGPU, diff)
	}
	if f := a.Changed.Figures; a.AsIs.Figures.LargestGang != 2 || f.LargestGang != 2 || f.UnknownSlowdowns != 3 || f.SlowdownMilli != 1000 || a.AsIs.Figures.UnknownSlowdowns != 0 {
		t.Errorf("as things stand %+v, with the change %+v", a.AsIs.Figures, a.Changed.Figures)
	}
}

// A change is compared pod by pod, and the snapshot stays as it is.
func TestCompare(t *testing.T) {
	s := drawn(t, "n1: g0 A100 [a/train:10]", func(s *snapshot.Snapshot) {
		s.Nodes[0].Pods[0].EndsBy = noon.Add(5 * time.Minute)
		s.Pending = []snapshot.Pending{waiting("a/p", 10, 1, "")}
	})
	first := waiting("a/first", 10, 0, "")
	first.Request.Priority, first.Request.EndsAfterSeconds = 1, 60
	for _, test := range []struct {
		minutes      time.Duration
		sooner, late bool
		node         string
	}{{10, false, true, "n1"}, {6, false, true, "n1"}, {5, false, true, ""}} {
		a, err := outlook.Compare(s, outlook.Rules{}, &outlook.Change{Pods: []snapshot.Pending{first}}, test.minutes*time.Minute)
		must.OK(t, err)
		if len(a.Differ) != 1 || a.Differ[0].Sooner() != test.sooner || a.Differ[0].Later() != test.late || a.Differ[0].Changed.Node != test.node || len(a.Changed.Pods) != 2 {
			t.Errorf("within %v: %+v", test.minutes*time.Minute, a.Differ)
		}
	}
	if len(s.Pending) != 1 {
		t.Errorf("the snapshot has %d pods that wait, had one", len(s.Pending))
	}
	if a, err := outlook.Compare(s, outlook.Rules{}, &outlook.Change{}, time.Minute); err != nil || a.Changed != nil {
		t.Errorf("no change gives %v, %v", a.Changed, err)
	}
	_, err := outlook.Compare(s, outlook.Rules{}, &outlook.Change{Pods: []snapshot.Pending{s.Pending[0]}}, time.Minute)
	if err == nil || !strings.Contains(err.Error(), "add pods: pending[1]") {
		t.Errorf("a pod that is there already gives the error %v", err)
	}
}

// Each play is announced: one as things stand, and one with a change.
func TestCompareSaysHowFarItIs(t *testing.T) {
	s := drawn(t, "n1: g0 A100", func(*snapshot.Snapshot) {})
	for _, test := range []struct {
		pods []snapshot.Pending
		want [][2]int
	}{
		{nil, [][2]int{{0, 1}}},
		{[]snapshot.Pending{waiting("a/p", 10, 1, "")}, [][2]int{{0, 2}, {1, 2}}},
	} {
		var got [][2]int
		change := &outlook.Change{Pods: test.pods, Progress: func(done, of int) { got = append(got, [2]int{done, of}) }}
		if _, err := outlook.Compare(s, outlook.Rules{}, change, time.Minute); err != nil || !slices.Equal(got, test.want) {
			t.Errorf("told %v, %v", got, err)
		}
	}
}

// Other rules place a pod elsewhere, at the same time. A pod in addition that waits changes no figure: they are measured against the usual
// requests of the snapshot.
func TestCompareRules(t *testing.T) {
	s := drawn(t, "n1: g0 A100 [a/x:3]\nn2: g0 A100", func(s *snapshot.Snapshot) { s.Pending = []snapshot.Pending{waiting("a/p", 3, 1, "")} })
	spread, err := placement.ByName("spread")
	must.OK(t, err)
	a, err := outlook.Compare(s, outlook.Rules{}, &outlook.Change{Rules: &outlook.Rules{Policy: spread}}, time.Minute)
	if err != nil || len(a.Differ) != 1 || a.Differ[0].AsIs.Node != "n1" || a.Differ[0].Changed.Node != "n2" || a.Differ[0].Sooner() || a.Differ[0].Later() {
		t.Errorf("%+v, %v", a, err)
	}
	a, err = outlook.Compare(s, outlook.Rules{}, &outlook.Change{Pods: []snapshot.Pending{waiting("a/huge", 30, 1, "")}}, time.Minute)
	must.OK(t, err)
	if diff := cmp.Diff(a.AsIs.Figures, a.Changed.Figures); diff != "" {
		t.Errorf("figures (-as things stand +with a pod that waits):\n%s", diff)
	}
}

func TestPlayRefuses(t *testing.T) {
	s := drawn(t, "n1: g0 A100", func(*snapshot.Snapshot) {})
	for _, length := range []time.Duration{0, -1, outlook.Longest + 1} {
		if _, err := outlook.Play(s, outlook.Rules{}, length); err == nil || !strings.Contains(err.Error(), "legal is more than 0s") {
			t.Errorf("%v gives the error %v", length, err)
		}
	}
	s.Nodes[0].Devices[0].Slots = 0
	if _, err := outlook.Play(s, outlook.Rules{}, time.Hour); err == nil || !strings.Contains(err.Error(), "nodes[0].devices") {
		t.Errorf("a broken snapshot gives the error %v", err)
	}
}
