package outlook_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/tandem-gpu/tandem/internal/testkit"
	"github.com/tandem-gpu/tandem/pkg/fragmentation"
	"github.com/tandem-gpu/tandem/pkg/outlook"
	"github.com/tandem-gpu/tandem/pkg/placement"
	"github.com/tandem-gpu/tandem/pkg/sim"
	"github.com/tandem-gpu/tandem/pkg/snapshot"
	"github.com/tandem-gpu/tandem/pkg/vgpu"
	"github.com/tandem-gpu/tandem/test/must"
)

// drawRun draws a small cluster and a workload in whole seconds. The UIDs have the order of the jobs.
func drawRun(t *rapid.T) sim.Setup {
	s := sim.Setup{Queue: sim.Skip, Seed: int64(rapid.IntRange(0, 3).Draw(t, "seed")), Mix: testkit.RandomMix(t)}
	for i := range rapid.IntRange(1, 3).Draw(t, "nodes") {
		s.Nodes = append(s.Nodes, renamed(t, testkit.RandomNode(t, fmt.Sprintf("n%d", i), 3)))
	}
	alike := rapid.Bool().Draw(t, "alike")
	for i := range rapid.IntRange(1, 14).Draw(t, "jobs") {
		r := *testkit.RandomRequest(t, fmt.Sprintf("a/p%02d", i), 2)
		if alike { // many of these fit
			r = vgpu.Request{UID: r.UID, Pod: r.Pod, Containers: []vgpu.ContainerRequest{{Name: "c", Slots: vgpu.Slots(rapid.IntRange(1, 5).Draw(t, "half"))}}}
		}
		r.UID = vgpu.UID(fmt.Sprintf("u%02d", i))
		r.Workload, r.Preferences, r.Priority = 0, nil, int32(rapid.IntRange(0, 2).Draw(t, "priority"))
		s.Jobs = append(s.Jobs, sim.Job{
			Request: r, Arrive: time.Duration(rapid.SampledFrom([]int{0, 0, 1, 2}).Draw(t, "arrive")) * time.Second,
			Duration: time.Duration(rapid.IntRange(0, 6).Draw(t, "duration")) * time.Second,
		})
		s.Jobs[i].DeclaresEnd = s.Jobs[i].Duration > 0 && rapid.IntRange(0, 7).Draw(t, "declares its end") > 0
	}
	drawGangs(t, &s)
	s.Policy, _ = placement.ByName(rapid.SampledFrom(placement.Policies()).Draw(t, "policy"))
	return s
}

// renamed returns a node whose devices have IDs that are no other name: testkit names them as users do.
func renamed(t *rapid.T, n *vgpu.Node) *vgpu.Node {
	node := snapshot.NodeOf(n)
	for i := range node.Devices {
		node.Devices[i].ID = vgpu.DeviceID(fmt.Sprintf("GPU-%s-%d", n.Name(), i))
	}
	c, err := (&snapshot.Snapshot{Nodes: []snapshot.Node{node}}).Cluster()
	must.OK(t, err)
	return c.Nodes()[0]
}

// drawGangs makes gangs of some jobs that follow each other.
func drawGangs(t *rapid.T, s *sim.Setup) {
	for i := 0; i < len(s.Jobs); {
		size := min(rapid.SampledFrom([]int{1, 1, 2, 3}).Draw(t, "size"), len(s.Jobs)-i)
		if size > 1 {
			g := &sim.Gang{Name: fmt.Sprintf("a/g%02d", i), MinCount: rapid.IntRange(1, size).Draw(t, "least")}
			for k := i; k < i+size; k++ {
				j, first := &s.Jobs[k], &s.Jobs[i]
				j.Gang, j.Arrive, j.Duration, j.DeclaresEnd, j.Request.Priority = g, first.Arrive, first.Duration, first.DeclaresEnd, first.Request.Priority
			}
		}
		i += size
	}
}

// rules are those of a run.
func rules(s *sim.Setup) outlook.Rules {
	return outlook.Rules{Policy: s.Policy, Seed: s.Seed, Mix: s.Mix, Gangs: s.Gangs, Preemption: s.Preemption}
}

// A snapshot of a run gives each pod that waited then the same place at the same time as the run does, up to the first moment at which
// another pod arrives, or at which a pod ends that declared no end.
func TestPlaysOnProperty(t *testing.T) {
	started, gangs := 0, 0
	law := func(t *rapid.T) {
		s := drawRun(t)
		h, err := sim.Run(s)
		must.OK(t, err)
		at := time.Duration(rapid.IntRange(0, 4).Draw(t, "at")) * time.Second
		snap, err := h.SnapshotAt(at)
		must.OK(t, err)
		until := disturbed(&s, h, at)
		if until == at {
			return
		}
		length := until - at - time.Second/2 // what happens at the disturbance itself does not count
		o, err := outlook.Play(snap, rules(&s), length)
		must.OK(t, err)
		want, got := map[vgpu.UID]string{}, map[vgpu.UID]string{}
		for i := range snap.Pending {
			job := jobOf(&s, snap.Pending[i].UID)
			for _, held := range h.Holdings() {
				if held.Job == job && held.From > at && held.From <= at+length {
					want[snap.Pending[i].UID] = fmt.Sprintf("%s after %v", held.Assignment.Node, held.From-at)
				}
			}
		}
		for _, p := range o.Pods {
			if p.Node != "" {
				got[p.UID] = fmt.Sprintf("%s after %v", p.Node, time.Duration(p.AfterSeconds)*time.Second)
				started++
				if p.Gang != nil {
					gangs++
				}
			}
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Fatalf("from %v until %v (-run +snapshot):\n%s", at, until, diff)
		}
		checkDevices(t, h, o.After, at+length)
	}
	// One set of cases in a hundred has no gang that gets a place, and says nothing about gangs.
	for sets := 0; sets < 5 && (started == 0 || gangs == 0); sets++ {
		rapid.Check(t, law)
	}
	t.Logf("%d pods, %d of them in gangs, got a place", started, gangs)
	if started == 0 || gangs == 0 {
		t.Errorf("%d pods, %d of them in gangs, got a place in all histories", started, gangs)
	}
}

// disturbed returns the first moment after a time at which a pod arrives, or ends without having said so, of those that arrived.
func disturbed(s *sim.Setup, h *sim.History, at time.Duration) time.Duration {
	first := at + time.Minute
	for i := range s.Jobs {
		if s.Jobs[i].Arrive > at {
			first = min(first, s.Jobs[i].Arrive)
		}
		if o := &h.Outcomes[i]; o.State == sim.Finished && !s.Jobs[i].DeclaresEnd && o.Ended > at {
			first = min(first, o.Ended)
		}
	}
	return first
}

func jobOf(s *sim.Setup, uid vgpu.UID) int {
	for i := range s.Jobs {
		if s.Jobs[i].Request.UID == uid {
			return i
		}
	}
	return -1
}

// checkDevices compares the devices of all pods at a time of the run.
func checkDevices(t *rapid.T, h *sim.History, after *snapshot.Snapshot, at time.Duration) {
	want, err := h.SnapshotAt(at)
	must.OK(t, err)
	text := func(s *snapshot.Snapshot) string {
		c, err := s.Cluster()
		must.OK(t, err)
		m := vgpu.MapOf(c.Nodes())
		for i := range m.Nodes { // what the hosts of running pods are asked for is not in a snapshot
			m.Nodes[i].FreeMilliCPU, m.Nodes[i].FreeMemory = 0, 0
		}
		return fmt.Sprintf("%+v", m.Nodes)
	}
	if diff := cmp.Diff(text(want), text(after)); diff != "" {
		t.Fatalf("the devices at %v (-run +snapshot):\n%s", at, diff)
	}
}

// At the first moment the cluster is that of the snapshot, room that is kept included.
func TestBeginsAsTheSnapshotProperty(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		c := testkit.RandomCluster(t, 3, 3)
		testkit.Fill(t, c, rapid.IntRange(0, 8).Draw(t, "pods"))
		s := &snapshot.Snapshot{Source: snapshot.FromScheduler, At: time.Unix(1e9, 0).UTC()}
		for _, n := range c.Nodes() {
			s.Nodes = append(s.Nodes, snapshot.NodeOf(n))
		}
		if rapid.Bool().Draw(t, "a node is cordoned") {
			s.Nodes[0].Problem = "cordoned"
		}
		o, err := outlook.Play(s, outlook.Rules{Mix: &fragmentation.Mix{}}, time.Second)
		must.OK(t, err)
		if diff := cmp.Diff(ledgers(t, s), ledgers(t, o.After)); diff != "" {
			t.Fatalf("(-snapshot +after a second without events):\n%s", diff)
		}
		used := 0
		for _, n := range c.Nodes() {
			for i := range n.Devices() {
				if n.Used(i).Slots > 0 || n.Used(i).Memory > 0 {
					used++
				}
			}
		}
		if o.Figures.GPUsInUse != used {
			t.Fatalf("%d GPUs are in use, want %d", o.Figures.GPUsInUse, used)
		}
	})
}

// ledgers writes what each device and host has and who has it.
func ledgers(t *rapid.T, s *snapshot.Snapshot) []string {
	c, err := s.Cluster()
	must.OK(t, err)
	var all []string
	for _, n := range c.Nodes() {
		all = append(all, fmt.Sprintf("%s %v", n.Name(), n.Room()))
		for i := range n.Devices() {
			d := &n.Devices()[i]
			all = append(all, fmt.Sprintf("%s %s %v %v healthy %v used %v", d.ID, d.Model, d.Slots, d.Memory, d.Healthy, n.Used(i)))
		}
		for _, a := range n.Assignments() {
			all = append(all, fmt.Sprintf("%+v", a.Containers))
		}
		n.EachHold(func(h *vgpu.Hold) { all = append(all, fmt.Sprintf("kept %s %d %d", h.UID, h.Priority, h.Until)) })
	}
	return all
}
