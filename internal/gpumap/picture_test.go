package gpumap_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/tandem-gpu/tandem/internal/gpumap"
	"github.com/tandem-gpu/tandem/internal/testkit"
	"github.com/tandem-gpu/tandem/pkg/placement"
	"github.com/tandem-gpu/tandem/pkg/snapshot"
	"github.com/tandem-gpu/tandem/pkg/vgpu"
	"github.com/tandem-gpu/tandem/test/must"
)

// at is the time of the snapshots here.
var at = time.Unix(1e9, 0).UTC()

// small has two nodes: one with two devices that NVLink joins and one alone, of which one is sick, and one with a problem.
func small() *snapshot.Snapshot {
	device := func(id string, index int) snapshot.Device {
		return snapshot.Device{ID: vgpu.DeviceID(id), Index: index, Model: "A100", Slots: 10, MemoryBytes: 40 << 30, Healthy: true}
	}
	pod := func(namespace, name string, slots vgpu.Slots, on ...snapshot.On) snapshot.Pod {
		p := snapshot.Pod{Name: snapshot.Name{Namespace: namespace, Name: name, UID: vgpu.UID("uid-" + name)}, On: on}
		share := snapshot.Container{Name: "main", Kind: "app", Slots: slots, MemoryBytes: vgpu.Bytes(slots) << 32, ComputeLimit: 100 * vgpu.MilliGPU(slots), MemoryLimitBytes: vgpu.Bytes(slots) << 32}
		for i := range on {
			share.Devices = append(share.Devices, on[i].Device)
		}
		p.Containers = []snapshot.Container{share}
		return p
	}
	percent := func(n int) *int { return &n }
	n1 := snapshot.Node{Name: "n1", Devices: []snapshot.Device{device("a", 0), device("b", 1), device("c", 2)}, Links: []snapshot.Link{
		{Between: [2]int{0, 1}, Class: "PIX"}, {Between: [2]int{1, 2}, Class: "NVLink", Lanes: 4},
	}}
	n1.Devices[1].Healthy, n1.Devices[1].Reason = false, "Xid79"
	slow := pod("team-a", "bert", 4, snapshot.On{Device: "a", SlowdownMilli: 1234, SMPercent: percent(80)})
	slow.MaxSlowdownMilli = 1100
	n1.Pods = []snapshot.Pod{slow, pod("team-b", "nb", 3, snapshot.On{Device: "a", SlowdownMilli: 1000, SMPercent: percent(0)})}
	n1.Holds = []snapshot.Hold{{Pod: pod("team-a", "later", 2, snapshot.On{Device: "a"})}}
	n2 := snapshot.Node{Name: "n2", Problem: "the agent is gone", Devices: []snapshot.Device{device("d", 0)}, Pods: []snapshot.Pod{}, Holds: []snapshot.Hold{}}
	return &snapshot.Snapshot{Source: snapshot.FromScheduler, At: at, Nodes: []snapshot.Node{n1, n2}}
}

func picture(t *testing.T, s *snapshot.Snapshot) *gpumap.Picture {
	t.Helper()
	must.OK(t, s.Check())
	p, err := gpumap.Of(s)
	must.OK(t, err)
	return p
}

// Slots of pods whose devices are unknown are not free for whole GPUs: of three GPUs with 2 stray slots, two are.
func TestWholeGPUsBesideStraySlots(t *testing.T) {
	for stray, want := range map[vgpu.Slots]int{0: 3, 2: 2, 10: 2, 11: 1, 30: 0} {
		s := small()
		s.Nodes[0].Pods, s.Nodes[0].Holds, s.Nodes[0].Devices[1].Healthy = []snapshot.Pod{}, []snapshot.Hold{}, true
		s.Nodes[0].StraySlots = stray
		if got := picture(t, s).Nodes[0].WholeGPUs; got != want {
			t.Errorf("%d whole GPUs beside %d stray slots, want %d", got, stray, want)
		}
	}
}

func TestPicture(t *testing.T) {
	p := picture(t, small())
	if diff := cmp.Diff([]gpumap.Owner{{Namespace: "team-a", MilliGPU: 600}, {Namespace: "team-b", MilliGPU: 300}}, p.Owners); diff != "" {
		t.Errorf("owners (-want +got):\n%s", diff)
	}
	n := p.Nodes[0]
	if n.WholeGPUs != 1 || p.Nodes[1].WholeGPUs != 0 {
		t.Errorf("room for %d and %d whole GPUs, want 1 (b is sick, a in use) and 0 (the node has a problem)", n.WholeGPUs, p.Nodes[1].WholeGPUs)
	}
	if got := [3]int{n.Devices[0].Island, n.Devices[1].Island, n.Devices[2].Island}; got != [3]int{0, 1, 1} {
		t.Errorf("islands %v, want b and c on one", got)
	}
	type part struct {
		from, to   vgpu.Slots
		pod        string
		owner      int
		held, idle bool
	}
	var got []part
	for _, s := range n.Devices[0].Slices {
		got = append(got, part{s.From, s.To, s.Pod, s.Owner, s.Held, s.Idle})
	}
	want := []part{{0, 4, "team-a/bert", 0, false, false}, {4, 7, "team-b/nb", 1, false, true}, {7, 9, "team-a/later", 0, true, false}}
	if diff := cmp.Diff(want, got, cmp.AllowUnexported(part{})); diff != "" {
		t.Errorf("slices of a (-want +got):\n%s", diff)
	}
}

// A cordoned GPU is none that is sick: an administrator switched it off, for a reason that the page has.
func TestCordonedDevice(t *testing.T) {
	s := small()
	s.Nodes[0].Devices[1].Reason, s.Nodes[0].Devices[1].Note = snapshot.Cordoned, "fan, ticket 123"
	if got, want := picture(t, s).Answers[0].Text, "No GPU is sick. 1 GPU is cordoned: n1/g1 (fan, ticket 123)."; !strings.HasPrefix(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
}

func TestAnswers(t *testing.T) {
	says := func(s *snapshot.Snapshot) string {
		var b strings.Builder
		for _, a := range picture(t, s).Answers {
			b.WriteString(a.Key + ": " + a.Text + "\n")
		}
		return b.String()
	}
	want := `sick: 1 GPU is sick: n1/g1 (Xid79). 1 node takes no new pods: n2 (the agent is gone).
slow: team-a/bert on n1/g0 takes 1.23 times as long beside team-b/nb, and was promised 1.10, as predicted.
idle: 1 pod does not use a part of what is allocated, 3 slots: team-b/nb on n1 (3 slots).
waiting: Nothing waits for a GPU.
room: A pod of 1 whole GPU fits on n1. No node has room for a pod of 8, 4 or 2 whole GPUs. CPU and memory of the hosts do not count here.
`
	if diff := cmp.Diff(want, says(small())); diff != "" {
		t.Errorf("answers (-want +got):\n%s", diff)
	}
	want = `sick: No GPU is sick.
slow: No slowdown is predicted: the snapshot has no predictions.
idle: Nothing is known of idle shares: no use was measured.
waiting: Nothing waits for a GPU.
room: No node has room for a pod of 8, 4, 2 or 1 whole GPUs. CPU and memory of the hosts do not count here.
`
	if diff := cmp.Diff(want, says(&snapshot.Snapshot{Source: snapshot.FromSimulator})); diff != "" {
		t.Errorf("answers of an empty cluster (-want +got):\n%s", diff)
	}
}

// TestLost: pods of 2, 3 and 4 slots are usual. The slot that is left of a serves none of them, and c serves all; a fourth pod asks for two
// whole GPUs, which no node has. Sick GPUs and nodes that take no pods have nothing to lose.
func TestLost(t *testing.T) {
	type row struct{ free, lost vgpu.MilliGPU }
	rows := func(s *snapshot.Snapshot) (all []row) {
		for _, n := range picture(t, s).Nodes {
			for _, d := range n.Devices {
				r := row{d.FreeMilliGPU, -1}
				if d.LostMilliGPU != nil {
					r.lost = *d.LostMilliGPU
				}
				all = append(all, r)
			}
		}
		return all
	}
	s := small()
	if want, got := []row{{100, 100}, {0, 0}, {1000, 0}, {0, -1}}, rows(s); !slices.Equal(got, want) {
		t.Errorf("free and lost %v, want %v", got, want)
	}
	s.Pending = []snapshot.Pending{{
		Name: snapshot.Name{Namespace: "team-a", Name: "large", UID: "u"}, Since: at,
		Request: &snapshot.Request{Containers: []snapshot.ContainerRequest{{Name: "main", Kind: "app", Slots: 20, MemoryBytes: 1}}},
	}}
	if want, got := []row{{100, 100}, {0, 0}, {1000, 250}, {0, -1}}, rows(s); !slices.Equal(got, want) {
		t.Errorf("beside a pod of two GPUs, free and lost %v, want %v", got, want)
	}
	s.Pending[0].Request.Containers[0].Kind = "init" // a second container at another time: the pod asks for 20 at most, as before
	s.Pending[0].Request.Containers = append(s.Pending[0].Request.Containers, snapshot.ContainerRequest{Name: "then", Kind: "app", Slots: 10, MemoryBytes: 1})
	if want, got := []row{{100, 100}, {0, 0}, {1000, 250}, {0, -1}}, rows(s); !slices.Equal(got, want) {
		t.Errorf("beside one with an init container, free and lost %v, want %v", got, want)
	}
	s = small()
	s.Pending = []snapshot.Pending{{Name: snapshot.Name{Namespace: "team-b", Name: "wrong", UID: "u"}, Since: at}}
	if want, got := []row{{100, 100}, {0, 0}, {1000, 0}, {0, -1}}, rows(s); !slices.Equal(got, want) {
		t.Errorf("beside a pod whose request is malformed, free and lost %v, want %v", got, want)
	}
	s = small()
	s.Nodes[1].Problem = "" // its one GPU is of no use to pods of two
	s.Nodes[0].Pods, s.Nodes[0].Holds = s.Nodes[0].Pods[:1], []snapshot.Hold{}
	share := &s.Nodes[0].Pods[0].Containers[0]
	share.Devices, share.Slots, share.ComputeLimit = []vgpu.DeviceID{"a", "c"}, 10, vgpu.WholeGPU
	if want, got := []row{{0, 0}, {0, 0}, {0, 0}, {1000, 1000}}, rows(s); !slices.Equal(got, want) {
		t.Errorf("beside a pod on two GPUs, free and lost %v, want %v", got, want)
	}
	s = small()
	s.Nodes[0].Pods, s.Nodes[0].Holds = []snapshot.Pod{}, []snapshot.Hold{}
	if want, got := []row{{1000, -1}, {0, -1}, {1000, -1}, {0, -1}}, rows(s); !slices.Equal(got, want) {
		t.Errorf("without pods, free and lost %v, want %v", got, want)
	}
}

// TestMeasuredByDevice: a pod on two devices is idle on the one that it does not use.
func TestMeasuredByDevice(t *testing.T) {
	s := small()
	none, all := 0, 100
	p := &s.Nodes[0].Pods[0]
	second := p.Containers[0]
	second.Name, second.Devices = "second", []vgpu.DeviceID{"c"}
	p.Containers = append(p.Containers, second)
	p.On = []snapshot.On{{Device: "a", SMPercent: &none}, {Device: "c", SMPercent: &all, SlowdownMilli: 1596}}
	got := picture(t, s)
	a, c := got.Nodes[0].Devices[0].Slices[0], got.Nodes[0].Devices[2].Slices[0]
	if !a.Idle || c.Idle || a.SlowdownMilli != 0 || c.SlowdownMilli != 1596 {
		t.Errorf("on a idle %v, slowdown %d, on c idle %v, slowdown %d", a.Idle, a.SlowdownMilli, c.Idle, c.SlowdownMilli)
	}
	if slow := got.Answers[1].Text; !strings.HasPrefix(slow, "team-a/bert on n1/g2 takes 1.60 times") {
		t.Errorf("1,596 thousandths: %q", slow)
	}
}

// TestAnswerNamesThree: an answer names three things, and counts the others.
func TestAnswerNamesThree(t *testing.T) {
	s := small()
	for i := range s.Nodes[0].Devices {
		s.Nodes[0].Devices[i].Healthy, s.Nodes[0].Devices[i].Reason = false, ""
	}
	if got := picture(t, s).Answers[0].Text; !strings.HasPrefix(got, "3 GPUs are sick: n1/g0, n1/g1, n1/g2.") {
		t.Errorf("three: %q", got)
	}
	s.Nodes[1].Devices[0].Healthy = false
	if got := picture(t, s).Answers[0].Text; !strings.HasPrefix(got, "4 GPUs are sick: n1/g0, n1/g1, n1/g2 and 1 more.") {
		t.Errorf("four: %q", got)
	}
}

// TestWaiting: gangs are one entry, those that wait longest come first, and each has a reason, also where sentences are left out.
func TestWaiting(t *testing.T) {
	s := small()
	gang := snapshot.GangName{Namespace: "team-a", Name: "train"}
	request := &snapshot.Request{Containers: []snapshot.ContainerRequest{{Name: "main", Kind: "app", Slots: 20}}}
	s.Gangs = []snapshot.Gang{{GangName: gang, MinCount: 2, Members: 2, Phase: "Unplaced", Need: "Refused", Message: "no two nodes take it"}}
	refused := &snapshot.Refused{
		Message: "0/2 nodes are available", Nodes: []snapshot.RefusedNodes{{Reason: "NoShareFits", Nodes: 2}},
		Nearest: &snapshot.Refusal{Reason: vgpu.NoShareFits, Helps: "eviction", Container: "main", Node: "n1", Device: "g0", Unit: vgpu.UnitSlots, Want: 5, Best: 3, Of: 10},
	}
	s.Pending = []snapshot.Pending{
		{Name: snapshot.Name{Namespace: "team-a", Name: "train-0", UID: "u0"}, Gang: &gang, Since: at.Add(-time.Hour), Request: request},
		{Name: snapshot.Name{Namespace: "team-a", Name: "train-1", UID: "u1"}, Gang: &gang, Since: at.Add(-2 * time.Hour), Request: request},
		{Name: snapshot.Name{Namespace: "team-b", Name: "single", UID: "u2"}, Since: at.Add(-90 * time.Minute), Request: request, Refused: refused},
		{Name: snapshot.Name{Namespace: "team-b", Name: "wrong", UID: "u3"}, Since: at},
	}
	p := picture(t, s)
	type row struct {
		name         string
		members      int
		slots        vgpu.Slots
		why, details string
	}
	rows := func(p *gpumap.Picture) (all []row) {
		for _, w := range p.Waiting {
			all = append(all, row{w.Name, w.Members, w.Slots, w.Why, strings.Join(w.Details, " | ")})
		}
		return all
	}
	nearest := "Nearest miss: largest free share is 3 of 10 slots on n1/g0; container main asks for 5"
	want := []row{
		{"team-a/train", 2, 40, "no two nodes take it", "0 of at least 2 members have a node; phase Unplaced, need Refused"},
		{"team-b/single", 0, 20, "0/2 nodes are available", "2 nodes: NoShareFits | " + nearest},
		{"team-b/wrong", 0, 0, "Its request is malformed; the pod's condition says how.", ""},
	}
	if diff := cmp.Diff(want, rows(p), cmp.AllowUnexported(row{})); diff != "" {
		t.Errorf("waiting (-want +got):\n%s", diff)
	}
	if got := p.Answers[3].Text; got != "Gang team-a/train (2 members) waits longest: no two nodes take it. 2 others wait." {
		t.Errorf("answer: %q", got)
	}
	hidden := rows(picture(t, s.Redact(func(namespace string) bool { return namespace == "team-b" })))
	if got := hidden[0].why; got != "No places were found for as many members as must run; the snapshot has no reason." {
		t.Errorf("a hidden gang waits because: %q", got)
	}
	if got := hidden[1].why; got != "Refused by 2 nodes: NoShareFits; "+nearest {
		t.Errorf("beside hidden ones a pod waits because: %q", got)
	}
}

// For any cluster, slices lie side by side without gaps, each share is drawn once, and as many whole GPUs fit as the node's row
// says, and no more.
func TestPictureProperty(t *testing.T) {
	drawn := 0
	rapid.Check(t, func(t *rapid.T) {
		c := testkit.RandomCluster(t, 3, 4)
		testkit.Furnish(t, c)
		fill(t, c)
		s := &snapshot.Snapshot{Source: snapshot.FromScheduler, At: at}
		for _, n := range c.Nodes() {
			s.Nodes = append(s.Nodes, snapshot.NodeOf(n))
		}
		s.Sort()
		p, err := gpumap.Of(s)
		must.OK(t, err)
		again, err := s.Cluster()
		must.OK(t, err)
		for i, n := range again.Nodes() {
			drawn += checkRow(t, n, &p.Nodes[i])
		}
	})
	if drawn < 50 {
		t.Errorf("only %d slices were drawn", drawn)
	}
}

// fill adds pods and holds where they fit.
func fill(t *rapid.T, c *vgpu.Cluster) {
	for i := range rapid.IntRange(0, 8).Draw(t, "pods") {
		r := testkit.RandomRequest(t, fmt.Sprintf("team/pod-%d", i), 2)
		a, ok := testkit.RandomAssignment(t, rapid.SampledFrom(c.Nodes()).Draw(t, "node"), r)
		switch {
		case !ok:
		case rapid.Bool().Draw(t, "hold"):
			_ = c.Hold(vgpu.Hold{Assignment: a}) // too large ones stay out
		default:
			_ = c.Add(a)
		}
	}
}

// checkRow holds the row of a node against its ledger, and counts the slices.
func checkRow(t *rapid.T, n *vgpu.Node, row *gpumap.Node) int {
	drawn := 0
	for k, d := range row.Devices {
		end := vgpu.Slots(0)
		for _, s := range d.Slices {
			if s.From != end {
				t.Fatalf("%s/%s: a slice begins at %d, the one before ends at %d", row.Name, d.Name, s.From, end)
			}
			if end = s.To; !s.Held {
				drawn++
			}
		}
		if lost := d.LostMilliGPU; lost != nil && (*lost < 0 || *lost > d.FreeMilliGPU) {
			t.Fatalf("%s/%s: %d of %d free are lost", row.Name, d.Name, *lost, d.FreeMilliGPU)
		}
		if used := n.Used(k).Slots; end < used {
			t.Fatalf("%s/%s: %d slots are drawn, %d in use", row.Name, d.Name, end, used)
		}
	}
	fits := func(gpus int) bool {
		for i := range n.Devices() {
			r := &vgpu.Request{UID: "try", Containers: []vgpu.ContainerRequest{{Name: "c", Slots: vgpu.Slots(gpus) * n.Devices()[i].Slots}}}
			if placement.Fit(n, r) == nil {
				return true
			}
		}
		return false
	}
	if w := row.WholeGPUs; w > 0 && !fits(w) || w < len(row.Devices) && fits(w+1) {
		t.Fatalf("%s: the row says that %d whole GPUs fit", row.Name, w)
	}
	return drawn
}
