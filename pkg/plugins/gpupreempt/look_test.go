package gpupreempt

import (
	"testing"
	"testing/synctest"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	fwk "k8s.io/kube-scheduler/framework"
	"k8s.io/kubernetes/pkg/scheduler/framework"

	"github.com/tandem-gpu/tandem/internal/cluster/kube"
	"github.com/tandem-gpu/tandem/pkg/gang"
	"github.com/tandem-gpu/tandem/pkg/preemption"
	"github.com/tandem-gpu/tandem/pkg/reservation"
	"github.com/tandem-gpu/tandem/pkg/vgpu"
	"github.com/tandem-gpu/tandem/test/must"
)

// nodes returns the snapshot of a scheduler that has nothing to do.
func (c *cluster) nodes() []fwk.NodeInfo {
	c.T.Helper()
	list, err := c.plugin.handle.SnapshotSharedLister().NodeInfos().List()
	must.OK(c.T, err)
	return list
}

// refresh has the scheduler take a snapshot of the cluster as it is.
func (c *cluster) refresh() {
	c.T.Helper()
	c.Create(pod("refresher", 80, -1000))
	c.AwaitMessage("refresher", "GPU")
	c.Remove("refresher")
}

// Only nodes come into question that evictions may help and that admit the pod otherwise.
func TestAdmit(t *testing.T) {
	t.Parallel()
	statuses := framework.NewDefaultNodeToStatus()
	statuses.SetAbsentNodesStatus(fwk.NewStatus(fwk.Unschedulable))
	statuses.Set("n2", fwk.NewStatus(fwk.UnschedulableAndUnresolvable))
	q := &question{pod: pod("high", 10, 100), cluster: &gang.Cluster{}}
	for _, n := range []*v1.Node{node("n1"), node("n2"), node("n3"), node("n4")} {
		if n.Name == "n3" {
			n.Spec.Taints = []v1.Taint{{Key: "kept", Effect: v1.TaintEffectNoSchedule}}
		}
		info := framework.NewNodeInfo()
		info.SetNode(n)
		q.infos = append(q.infos, info)
	}
	q.admit(statuses)
	expect(t, "open nodes", []bool{true, false, false, true}, q.open)
	q.open[3] = false
	expect(t, "admitted", []int{1, 0, 0, 0}, []int{q.cluster.Admits(0, 0), q.cluster.Admits(0, 1), q.cluster.Admits(0, 2), q.cluster.Admits(0, 3)})
}

func node(name string) *v1.Node {
	n := &v1.Node{}
	n.Name = name
	return n
}

// named are pods that are nominated for n1.
type named struct {
	fwk.PodNominator
	pods []fwk.PodInfo
}

func (n named) NominatedPodsForNode(node string) []fwk.PodInfo {
	if node == "n1" {
		return n.pods
	}
	return nil
}

// The plugin takes from the host the room of other nominated pods of the same priority, and nothing else.
func TestSetAside(t *testing.T) {
	t.Parallel()
	nominated := named{}
	for name, priority := range map[string]int32{"below": 99, "equal": 100, "above": 101, "high": 100} {
		other := pod(name, 10, priority)
		other.Spec.Containers[0].Resources.Requests[v1.ResourceCPU] = resource.MustParse("3")
		other.Spec.Containers[0].Resources.Requests[v1.ResourceMemory] = resource.MustParse("1Gi")
		info, err := framework.NewPodInfo(other)
		must.OK(t, err)
		nominated.pods = append(nominated.pods, info)
	}
	var ledgers []*vgpu.Node
	for _, name := range []string{"n1", "n2"} {
		n, err := vgpu.NewNode(name, nil)
		must.OK(t, err)
		n.SetRoom(vgpu.Room{MilliCPU: 10_000, Memory: 10 << 30})
		ledgers = append(ledgers, n)
	}
	q := &question{pod: pod("high", 10, 100), priority: 100, cluster: &gang.Cluster{Nodes: append([]*vgpu.Node{}, ledgers...)}}
	q.setAside(nominated)
	expect(t, "n1", vgpu.Room{MilliCPU: 4_000, Memory: 8 << 30}, q.cluster.Nodes[0].Room())
	expect(t, "n2", vgpu.Room{MilliCPU: 10_000, Memory: 10 << 30}, q.cluster.Nodes[1].Room())
	expect(t, "the ledger itself", vgpu.Room{MilliCPU: 10_000, Memory: 10 << 30}, ledgers[0].Room())
}

// Pods are listed that may go, that are members of gangs or that leave; those count as leaving that were chosen as victims.
func TestCandidates(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t, 8)
		gang := members("gang", 2, 1, 10)
		c.createBound(pod("below", 10, 1), pod("equal", 10, 5), pod("chosen", 10, 5), pod("overdue", 10, 1), pod("leaving", 10, 9))
		*gang[0].Spec.Priority, *gang[1].Spec.Priority = 9, 9 // a gang is listed whatever its priority
		c.Create(gang...)
		c.AwaitBound("gang", 2)
		for _, name := range []string{"overdue", "leaving"} {
			must.OK(t, c.Client.CoreV1().Pods("default").Delete(t.Context(), name, metav1.DeleteOptions{}))
			if name == "overdue" {
				c.Clock.Pass(2 * time.Minute)
			}
		}
		c.refresh()
		now := c.Clock.Now()
		c.take(reservation.PodRoomMade{PodRef: reservation.PodRef{UID: "uid-preemptor"}, Evict: []reservation.Chosen{
			{UID: "uid-chosen", Until: now.Add(time.Second)}, {UID: "uid-equal", Until: now.Add(-time.Second)}, // it should be gone and is not
		}})
		from, pods, err := c.candidates(5)
		must.OK(t, err)
		got := map[string]bool{}
		for i := range from.Pods {
			if from.Pods[i].UID != kube.UIDOf(pods[i]) || pods[i].Namespace+"/"+pods[i].Name != from.Pods[i].Name {
				t.Errorf("candidate %d is %s, its pod %s", i, from.Pods[i].Name, pods[i].Name)
			}
			got[pods[i].Name] = from.Pods[i].Leaving
		}
		expect(t, "leaving", map[string]bool{"below": false, "chosen": true, "leaving": true, "gang-0": false, "gang-1": false}, got)
		expect(t, "gangs", []preemption.Gang{{Name: "default/gang", MinCount: 1}}, from.Gangs)
	})
}

// A preemptor is not tried while its victims are being evicted.
func TestPreEnqueue(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t, 1)
		high := pod("high", 10, 100)
		expect(t, "before", fwk.Success, c.plugin.PreEnqueue(t.Context(), high).Code())
		a := c.take(reservation.PodRoomMade{PodRef: refOf(high), Evict: []reservation.Chosen{{UID: "uid-low"}}})
		expect(t, "meanwhile", fwk.UnschedulableAndUnresolvable, c.plugin.PreEnqueue(t.Context(), high).Code())
		c.take(reservation.EvictionsEnded{Preemptor: reservation.PodPreemptor(kube.UIDOf(high)), Number: a.Begin.Number})
		expect(t, "after", fwk.Success, c.plugin.PreEnqueue(t.Context(), high).Code())
	})
}

// If no pod has a lower priority, the plugin does not ask core.
func TestNoPodOfALowerPriority(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t, 1)
		c.createBound(pod("equal-0", 10, 100))
		c.Create(pod("equal-1", 10, 100))
		c.AwaitMessage("equal-1", "no pod has a lower priority or leaves where that could help")
	})
}

// Room is not kept for ever for a pod that does not come to use it.
func TestUnusedRoomIsGivenUp(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t, 1)
		stuck := pod("stuck", 10, 100)
		stuck.Spec.SchedulerName = "another"
		c.Create(stuck)
		c.Await("the pod is known", func() bool { return c.plugin.seen(stuck) != nil })
		room := reservation.PodRoom{Place: vgpu.Assignment{UID: kube.UIDOf(stuck), Node: "n1"}}
		c.take(reservation.PodRoomMade{PodRef: refOf(stuck), Room: room, Until: c.Clock.Now().Add(time.Hour)})
		c.plugin.Tick(t.Context())
		c.Clock.Pass(59 * time.Second)
		c.plugin.Tick(t.Context())
		if len(c.rooms()) != 1 {
			t.Fatal("the room is given up too soon")
		}
		c.Clock.Pass(2 * time.Second)
		c.plugin.Tick(t.Context())
		if len(c.rooms()) != 0 {
			t.Error("the room is kept for ever")
		}
		expect(t, "why", "all victims have left node n1, and the pod was not placed within 1m0s", c.pauses("stuck").Why)
	})
}

// The members of a gang that leave other nodes are not waited for.
func TestOnlyTheNodeIsWaitedFor(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t, 1, 1)
		c.Create(members("gang", 2, 2, 10)...)
		c.AwaitBound("gang", 2)
		c.Create(pod("high", 10, 100))
		expect(t, "victims", []string{"gang-0", "gang-1"}, c.awaitVictims(2))
		c.AwaitMessage("high", "1 of 1 pod (default/gang-")
		for _, name := range c.victims() {
			if c.Pod(name).Spec.NodeName == c.Pod("high").Status.NominatedNodeName {
				c.Remove(name)
			}
		}
		c.AwaitBound("high", 1)
	})
}
