package gpupreempt

import (
	"runtime"
	"testing"
	"testing/synctest"
	"time"

	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/tandem-gpu/tandem/pkg/api/v1alpha1"
	"github.com/tandem-gpu/tandem/pkg/gang"
	"github.com/tandem-gpu/tandem/pkg/preemption"
	"github.com/tandem-gpu/tandem/test/fakecluster"
)

// A preemptor that goes while its victims are evicted spares those that are left.
func TestPreemptorGoesMeanwhile(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t, 2)
		c.createBound(pod("low-0", 10, 0), pod("low-1", 10, 0))
		gone := make(chan struct{})
		c.refuseDeletes(func(string) error { // the first deletion takes until the preemptor is gone
			if err := c.Client.Tracker().Delete(fakecluster.PodResource, "default", "high"); err != nil {
				return nil //nolint:nilerr // it is gone already
			}
			for len(c.rooms()) > 0 {
				runtime.Gosched()
			}
			close(gone)
			return nil
		})
		c.Create(pod("high", 20, 100))
		<-gone
		c.Await("the eviction is over", func() bool { return !c.plugin.isEvicting(pod("high", 0, 0)) })
		if n := len(c.victims()); n != 1 {
			t.Errorf("%d pods are evicted", n)
		}
	})
}

// A preemptor that is deleted during the search for victims has no pod evicted.
func TestPreemptorGoesBefore(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t, 2)
		c.createBound(pod("low-0", 10, 0), pod("low-1", 10, 0))
		high := pod("high", 20, 100)
		asked := make(chan struct{})
		c.plugin.core = func(cluster *gang.Cluster, want *gang.Group, who *preemption.Candidates, cfg preemption.Config) (preemption.Plan, error) {
			defer close(asked)
			if err := c.Client.Tracker().Delete(fakecluster.PodResource, "default", "high"); err != nil {
				return preemption.Plan{}, err
			}
			for c.plugin.seen(high) != nil {
				runtime.Gosched()
			}
			return preemption.Victims(cluster, want, who, cfg)
		}
		if _, err := c.Client.CoreV1().Pods("default").Create(t.Context(), high, metav1.CreateOptions{}); err != nil && !apierrors.IsNotFound(err) {
			t.Fatal(err) // the fake reads what it has created, which may be gone by then
		}
		<-asked
		c.createBound(pod("next", 0, 0)) // which is tried when the attempt is over
		expect(t, "pending", 0, len(c.rooms()))
		c.Await("nothing is under way", func() bool { return !c.plugin.isEvicting(pod("high", 0, 0)) })
		expect(t, "victims", nil, c.victims())
		_, held := c.shares.Held("uid-high")
		expect(t, "held", false, held)
	})
}

// The room of a preemptor that is gone is free for others.
func TestPreemptorGone(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t, 1)
		c.createBound(pod("low", 10, 0))
		c.Create(pod("high", 10, 100))
		c.awaitVictims(1)
		c.AwaitMessage("high", "yet to leave")
		c.Create(pod("next", 10, 1))
		c.AwaitMessage("next", "free share is 0")
		c.Remove("high")
		c.Remove("low")
		c.AwaitBound("next", 1)
		c.Await("nothing is pending", func() bool { return len(c.rooms()) == 0 })
	})
}

// Room is also free of a preemptor that is being deleted and has a finalizer left.
func TestPreemptorLeaves(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t, 1)
		c.createBound(pod("low", 10, 0))
		c.Create(pod("high", 10, 100))
		c.awaitVictims(1)
		c.AwaitMessage("high", "yet to leave")
		p := c.Pod("high")
		p.Finalizers, p.DeletionTimestamp = []string{"example.com/wait"}, &metav1.Time{Time: c.Clock.Now()}
		if _, err := c.Client.CoreV1().Pods("default").Update(t.Context(), p, metav1.UpdateOptions{}); err != nil {
			t.Fatal(err)
		}
		c.Await("its room is free", func() bool {
			_, held := c.shares.Held("uid-high")
			return !held && len(c.rooms()) == 0
		})
	})
}

// Two preemptors that want the same room get one each: the second does not count on what the first made free.
func TestTwoPreemptors(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t, 1, 1)
		c.createBound(pod("low-0", 10, 0), pod("low-1", 10, 0))
		c.Create(pod("high-0", 10, 100), pod("high-1", 10, 100), pod("high-2", 10, 100))
		expect(t, "victims", []string{"low-0", "low-1"}, c.awaitVictims(2))
		c.Await("two have a node", func() bool { return len(c.rooms()) == 2 })
		c.Remove("low-0", "low-1")
		c.AwaitBound("high", 2)
		expect(t, "victims", []string{"low-0", "low-1"}, c.victims())
	})
}

// A preemptor whose room was taken by another one, whose own victims leave still, waits for those and evicts no other pod.
func TestWaitsForAnotherPreemptorsVictims(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t, 1, 1)
		c.createBound(pod("low-0", 10, 0), pod("low-1", 10, 1))
		c.Create(pod("high", 10, 100))
		expect(t, "victims", []string{"low-0"}, c.awaitVictims(1))
		c.AwaitMessage("high", "1 of 1 pod (default/low-0)")
		n1 := c.Pod("low-0").Spec.NodeName
		taken := pod("taken", 10, 100) // as if it had come first to the room, and leaves itself
		c.Place(taken, n1, map[string]string{v1alpha1.AnnotationAssignment: assignmentOf(t, taken, int(n1[1]-'0'), 0)})
		taken.DeletionTimestamp = &metav1.Time{Time: c.Clock.Now().Add(20 * time.Second)}
		taken.Finalizers = []string{"example.com/kubelet"}
		c.Create(taken)
		c.Remove("low-0")
		c.AwaitMessage("high", "1 of 1 pod (default/taken)")
		c.Remove("taken")
		expect(t, "place", map[string]string{"high": n1}, c.AwaitBound("high", 1))
		expect(t, "victims", []string{"low-0"}, c.victims())
	})
}

// A pod of a higher priority takes the room that is made for another one, whose message says so.
func TestPassesOverRoomOfALowerPriority(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t, 1)
		c.createBound(pod("low", 10, 0))
		c.Create(pod("high", 10, 100))
		c.awaitVictims(1)
		c.AwaitMessage("high", "yet to leave")
		c.Create(pod("higher", 10, 200))
		c.AwaitMessage("higher", "to leave")
		c.Await("the other is pending no more", func() bool {
			all := c.rooms()
			return len(all) == 1 && all[0].Pod == "default/higher"
		})
		c.Remove("low")
		c.AwaitBound("higher", 1)
		expect(t, "victims", []string{"low"}, c.victims())
		expect(t, "the other", map[string]string{"higher": "n1"}, c.Bound("high"))
	})
}

// Room that is made on another node is no concern of a pod of a higher priority.
func TestLeavesOtherPreemptionsAlone(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t, 1, 1)
		c.createBound(pod("low-0", 10, 0), pod("low-1", 10, 1))
		c.Create(pod("high", 10, 100))
		expect(t, "victims", []string{"low-0"}, c.awaitVictims(1))
		c.AwaitMessage("high", "yet to leave")
		higher := pod("other", 10, 200)
		higher.Spec.NodeSelector = map[string]string{v1.LabelHostname: c.Pod("low-1").Spec.NodeName}
		c.Create(higher)
		expect(t, "victims", []string{"low-0", "low-1"}, c.awaitVictims(2))
		c.AwaitMessage("other", "yet to leave")
		if n := len(c.rooms()); n != 2 {
			t.Errorf("%d preemptions are pending", n)
		}
		expect(t, "those that were begun anew", 0.0, c.count("attempts_total", resultWaiting))
	})
}
