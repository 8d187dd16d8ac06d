package gpushare

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/tandem-gpu/tandem/pkg/api/v1alpha1"
	"github.com/tandem-gpu/tandem/pkg/snapshot"
	"github.com/tandem-gpu/tandem/pkg/vgpu"
	"github.com/tandem-gpu/tandem/test/must"
)

func noGang(*v1.Pod) *snapshot.GangName { return nil }

// shownOn returns the slots that each pod of a node has in the snapshot, by name; those that are reserved only have a star.
func (c *cluster) shownOn(node string) map[string]vgpu.Slots {
	c.t.Helper()
	nodes := c.plugin.SnapshotNodes(noGang)
	c.checkVersions(nodes)
	c.plugin.shown.nodes = nil
	if diff := cmp.Diff(c.plugin.SnapshotNodes(noGang), nodes, cmpopts.IgnoreFields(snapshot.Node{}, "Version")); diff != "" {
		c.t.Errorf("what was kept of the last snapshot (-made anew +kept):\n%s", diff)
	}
	for _, n := range nodes {
		if n.Name != node {
			continue
		}
		s := &snapshot.Snapshot{Source: snapshot.FromScheduler, Nodes: []snapshot.Node{n}}
		must.OK(c.t, s.Check())
		shown := map[string]vgpu.Slots{}
		for _, p := range n.Pods {
			name := p.Name.Name
			if p.Reserved {
				name += "*"
			}
			for _, container := range p.Containers {
				shown[name] += container.Slots
			}
		}
		return shown
	}
	return nil
}

// checkVersions checks that nodes of one version are equal.
func (c *cluster) checkVersions(nodes []snapshot.Node) {
	c.t.Helper()
	if c.versions == nil {
		c.versions = map[*Plugin]map[uint64]snapshot.Node{}
	}
	if c.versions[c.plugin] == nil {
		c.versions[c.plugin] = map[uint64]snapshot.Node{}
	}
	seen := c.versions[c.plugin]
	for _, n := range nodes {
		if before, known := seen[n.Version]; known && n.Version != 0 {
			if diff := cmp.Diff(before, n); diff != "" {
				c.t.Errorf("two states of a node have the version %d: %s", n.Version, diff)
			}
		}
		seen[n.Version] = n
	}
}

// The snapshot has the labels of a node that say where it is, as they are now, and no others.
func TestSnapshotTopology(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t, gpuNode("n1", 1))
		const zone = "topology.kubernetes.io/zone"
		for _, want := range []string{"z1", "z2"} {
			host, err := c.client.CoreV1().Nodes().Get(t.Context(), "n1", metav1.GetOptions{})
			must.OK(t, err)
			host.Labels = map[string]string{zone: want, "owner": "somebody"}
			if _, err := c.client.CoreV1().Nodes().Update(t.Context(), host, metav1.UpdateOptions{}); err != nil {
				t.Fatal(err)
			}
			synctest.Wait()
			if diff := cmp.Diff(map[string]string{zone: want}, c.plugin.SnapshotNodes(noGang)[0].Topology); diff != "" {
				t.Errorf("in the zone %s: %s", want, diff)
			}
		}
	})
}

// The snapshot shows a pod as soon as it has its devices, and no pod that is gone, although no further pod is tried.
func TestSnapshotFollowsThePods(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t, gpuNode("n1", 2))
		c.createPod(pod("a", 5))
		c.createPod(pod("b", 6))
		c.awaitBound("a")
		c.awaitBound("b")
		synctest.Wait()
		if diff := cmp.Diff(map[string]vgpu.Slots{"a": 5, "b": 6}, c.shownOn("n1")); diff != "" {
			t.Errorf("shown (-want +got):\n%s", diff)
		}
		c.deletePod("a")
		synctest.Wait()
		if diff := cmp.Diff(map[string]vgpu.Slots{"b": 6}, c.shownOn("n1")); diff != "" {
			t.Errorf("shown after a is gone (-want +got):\n%s", diff)
		}
		c.stop()
		c.start() // and no pod to place
		synctest.Wait()
		if diff := cmp.Diff(map[string]vgpu.Slots{"b": 6}, c.shownOn("n1")); diff != "" {
			t.Errorf("shown after a restart (-want +got):\n%s", diff)
		}
	})
}

// A pod that waits has its request, how many nodes refused it for which reason, and the nearest miss with its numbers.
func TestSnapshotOfRefusals(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t, gpuNode("n1", 1), gpuNode("n2", 1))
		for _, name := range []string{"a", "b"} {
			c.createPod(pod(name, 6))
			c.awaitBound(name)
		}
		c.createPod(pod("c", 8))
		c.awaitPending("c", "nearest GPU")
		synctest.Wait()
		pending, leftOut := c.plugin.SnapshotPending(10, noGang)
		if len(pending) != 1 || leftOut != 0 {
			t.Fatalf("%d pods wait and %d are left out, want 1 and 0", len(pending), leftOut)
		}
		p := pending[0]
		if p.Name.Name != "c" || p.Request == nil || p.Request.Containers[0].Slots != 8 {
			t.Errorf("pod %s waits with the request %+v", p.Name.Name, p.Request)
		}
		if p.Refused == nil || p.Refused.Message == "" || p.Refused.Illegal != "" || p.Refused.At.IsZero() {
			t.Fatalf("the refusal is %+v", p.Refused)
		}
		if diff := cmp.Diff([]snapshot.RefusedNodes{{Reason: "NoShareFits", Nodes: 2}}, p.Refused.Nodes); diff != "" {
			t.Errorf("refused nodes (-want +got):\n%s", diff)
		}
		if n := p.Refused.Nearest; n == nil || n.Best != 4 || n.Of != 10 || n.Want != 8 || n.Helps != "eviction" {
			t.Errorf("the nearest miss is %+v", n)
		}
		if none, all := c.plugin.SnapshotPending(0, noGang); len(none) != 0 || all != 1 {
			t.Errorf("%d pods and %d left out of a bound of 0", len(none), all)
		}
	})
}

// A pod whose rate no device reaches has the sentence about it, and a pod that lacks room has none.
func TestSnapshotOfAnIllegalRequest(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t, gpuNode("n1", 1))
		c.createPod(rated("fast", 1, "900"))
		c.awaitPending("fast", "is not legal")
		synctest.Wait()
		pending, _ := c.plugin.SnapshotPending(10, noGang)
		if r := pending[0].Refused; r == nil || !strings.HasPrefix(r.Illegal, `metadata.annotations[tandem-gpu.io/rate]: "900" is not legal, `) {
			t.Errorf("the refusal is %+v", r)
		}
	})
}

// Another scheduler gave slots away too: the pod whose share does not fit is in the snapshot, until it leaves.
func TestSnapshotOfAnOverbookedDevice(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t, gpuNode("n1", 2))
		for _, name := range []string{"x", "y"} {
			p := pod(name, 6)
			c.createPod(bound(t, p, share(p, "n1", "GPU-n1-0", 6)))
		}
		synctest.Wait()
		c.createPod(pod("tried", 1))
		c.awaitBound("tried")
		synctest.Wait()
		n := c.plugin.SnapshotNodes(noGang)[0]
		want := []snapshot.Overbooked{{Name: snapshot.NameOf("default/y", "uid-y"), Devices: []vgpu.DeviceID{"GPU-n1-0"}, Slots: 6}}
		if diff := cmp.Diff(want, n.Overbooked); diff != "" {
			t.Errorf("overbooked by (-want +got):\n%s", diff)
		}
		must.OK(t, c.client.CoreV1().Pods("default").Delete(t.Context(), "y", metav1.DeleteOptions{}))
		synctest.Wait()
		if n := c.plugin.SnapshotNodes(noGang)[0]; len(n.Overbooked) != 0 {
			t.Errorf("the pod has left, and the snapshot has %+v", n.Overbooked)
		}
	})
}

// A pod that waits has the names of its scheduling gates.
func TestSnapshotOfGates(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t, gpuNode("n1", 1))
		gated := pod("a", 6)
		gated.Spec.SchedulingGates = []v1.PodSchedulingGate{{Name: "kueue.x-k8s.io/admission"}, {Name: "b"}}
		c.createPod(gated)
		synctest.Wait()
		pending, _ := c.plugin.SnapshotPending(10, noGang)
		if len(pending) != 1 || !slices.Equal(pending[0].Gates, []string{"kueue.x-k8s.io/admission", "b"}) {
			t.Errorf("the pods that wait are %+v", pending)
		}
	})
}

// The owners of a pod are its controller and the JobSet of that; other references do not count.
func TestSnapshotOfOwners(t *testing.T) {
	out, controls := snapshot.Pod{}, true
	describe(&out, &v1.Pod{ObjectMeta: metav1.ObjectMeta{
		Labels:          map[string]string{"jobset.sigs.k8s.io/jobset-name": "night"},
		OwnerReferences: []metav1.OwnerReference{{Kind: "Other", Name: "o"}, {Kind: "Job", Name: "night-workers-0", Controller: &controls}},
	}}, noGang)
	if want := []string{"Job/night-workers-0", "JobSet/night"}; !slices.Equal(out.Owners, want) {
		t.Errorf("the owners are %v, want %v", out.Owners, want)
	}
}

// A change of a pod is in the next snapshot, although its shares are the same.
func TestSnapshotOfAChangedPod(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t, gpuNode("n1", 1))
		c.createPod(pod("a", 5))
		c.awaitBound("a")
		c.createPod(pod("b", 8)) // whose cycle computes the occupancy anew: it is the same from now on
		c.awaitPending("b", "nearest GPU")
		c.shownOn("n1")
		p, err := c.client.CoreV1().Pods("default").Get(t.Context(), "a", metav1.GetOptions{})
		must.OK(t, err)
		p.Labels = map[string]string{v1alpha1.LabelProfile: "bert"}
		p.ResourceVersion += "1"
		if _, err := c.client.CoreV1().Pods("default").Update(t.Context(), p, metav1.UpdateOptions{}); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		if got := c.plugin.SnapshotNodes(noGang)[0].Pods[0].Workload; got != "bert" {
			t.Errorf("the workload is %q, want bert", got)
		}
	})
}

// A device that gets sick is so in the snapshot at once, although no pod is tried.
func TestSnapshotOfASickDevice(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n1 := gpuNode("n1", 2)
		c := newCluster(t, n1)
		c.createPod(pod("a", 5))
		c.awaitBound("a")
		sick := n1.DeepCopy()
		sick.Status.Devices[1].Health, sick.Status.Devices[1].Reason = "Unhealthy", "XID79"
		c.applyGPUNode(sick)
		synctest.Wait()
		n := c.plugin.SnapshotNodes(noGang)[0]
		if d := n.Devices[1]; d.Healthy || d.Reason != "XID79" {
			t.Errorf("the device is %+v", d)
		}
		if diff := cmp.Diff(map[string]vgpu.Slots{"a": 5}, c.shownOn("n1")); diff != "" {
			t.Errorf("shown (-want +got):\n%s", diff)
		}
	})
}

// Snapshots are made while pods come and go: each has every pod at most once, and no device gives more than it has.
func TestSnapshotsBesideTheScheduling(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t, gpuNode("n1", 2), gpuNode("n2", 2))
		stop, done := make(chan struct{}), make(chan int)
		go func() {
			looks := 0
			for {
				s := &snapshot.Snapshot{Source: snapshot.FromScheduler, Nodes: c.plugin.SnapshotNodes(noGang)}
				s.Pending, s.PendingLeftOut = c.plugin.SnapshotPending(2, noGang)
				if err := s.Check(); err != nil {
					t.Error(err)
				}
				looks++
				select {
				case <-stop:
					done <- looks
					return
				case <-time.After(2 * time.Millisecond): // of the bubble
				}
			}
		}()
		for round := range 5 {
			for i := range 4 {
				c.createPod(pod(fmt.Sprintf("p-%d-%d", round, i), 6))
			}
			time.Sleep(2 * time.Millisecond) // of the bubble, so that there is a look in each round
			for i := range 4 {
				c.awaitBound(fmt.Sprintf("p-%d-%d", round, i))
			}
			for i := range 4 {
				c.deletePod(fmt.Sprintf("p-%d-%d", round, i))
			}
		}
		close(stop)
		if looks := <-done; looks < 5 {
			t.Errorf("%d looks in 5 rounds", looks)
		}
	})
}

// A pod that runs has a declared end from its start on, if it declares one.
func TestSnapshotOfADeclaredEnd(t *testing.T) {
	started, hour := metav1.NewTime(time.Unix(1e9, 0)), int64(3600)
	for _, test := range []struct {
		name    string
		started *metav1.Time
		bound   *int64
		want    time.Time
	}{
		{"started, with a bound and 30 s of grace", &started, &hour, time.Unix(1e9+3630, 0).UTC()},
		{"not started", nil, &hour, time.Time{}},
		{"without a bound", &started, nil, time.Time{}},
	} {
		out := snapshot.Pod{}
		describe(&out, &v1.Pod{Spec: v1.PodSpec{ActiveDeadlineSeconds: test.bound}, Status: v1.PodStatus{StartTime: test.started}}, noGang)
		if !out.EndsBy.Equal(test.want) {
			t.Errorf("%s: ends by %v, want %v", test.name, out.EndsBy, test.want)
		}
	}
}
