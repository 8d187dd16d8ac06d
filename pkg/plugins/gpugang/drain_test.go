package gpugang

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/tandem-gpu/tandem/internal/cluster/kube"
)

// within has a pod end after so long.
func within(p *v1.Pod, d time.Duration) *v1.Pod {
	seconds := int64(d / time.Second)
	p.Spec.ActiveDeadlineSeconds = &seconds
	return ending(p)
}

func important(pods ...*v1.Pod) []*v1.Pod {
	for _, p := range pods {
		p.Spec.Priority = new(int32)
		*p.Spec.Priority = 10
	}
	return pods
}

// drained returns a cluster of nodes with one GPU each, where gang "large" of two waits for n1, and n2 is kept free for it: pod
// "passing" is on n1 and was placed after the gang.
func drained(t *testing.T, nodes int, passing *v1.Pod) *cluster {
	t.Helper()
	c := newCluster(t, slices.Repeat([]int{1}, nodes)...)
	for i := range nodes {
		c.Create(pod(fmt.Sprintf("small-%d", i), 10))
	}
	c.AwaitBound("small", nodes)
	c.Clock.Pass(2 * time.Second)
	c.Create(requireLevel(members("large", 2, 2, 10), rack)...)
	c.AwaitMessage("large", "needs 2")
	c.Clock.Pass(2 * time.Minute)
	c.Remove(c.on("n1"))
	c.Create(passing)
	c.AwaitBound("passing", 1)
	c.Remove(c.on("n2"))
	c.AwaitMessage("large", "room for it is kept on 2 nodes")
	return c
}

// on returns the pod of a node.
func (c *cluster) on(node string) string {
	c.T.Helper()
	for _, p := range c.Pods() {
		if p.Spec.NodeName == node {
			return p.Name
		}
	}
	c.T.Fatalf("no pod is on %s", node)
	return ""
}

// graceful has a pod take so long to end after its deadline.
func graceful(p *v1.Pod, grace time.Duration) *v1.Pod {
	seconds := int64(grace / time.Second)
	p.Spec.TerminationGracePeriodSeconds = &seconds
	return p
}

// Pods that end before the drain does use the room meanwhile, and only they. The kubelet gives a pod its grace period after its deadline.
func TestBackfill(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := drained(t, 2, within(pod("passing", 10), time.Hour))
		c.Create(within(pod("long", 10), 2*time.Hour))
		c.AwaitMessage("long", "free share is 0")
		c.Create(graceful(within(pod("years", 10), time.Second), 10*365*24*time.Hour))
		c.AwaitMessage("years", "free share is 0")
		c.Create(graceful(within(pod("late", 10), time.Hour-time.Minute), 9*time.Minute))
		c.AwaitMessage("late", "free share is 0")
		c.Create(within(pod("short", 10), time.Minute))
		if got := c.AwaitBound("short", 1); got["short"] != "n2" {
			t.Errorf("the pod that ends in time is on %v", got)
		}
		for _, name := range []string{"long", "years", "late"} {
			if got := c.Bound(name); len(got) != 0 {
				t.Errorf("the pod %s, which ends too late, is on %v", name, got)
			}
		}
	})
}

// A gang of a higher priority takes the turn: the room of the other is given up when room is kept for it. The other says so even
// where the reason why it waits was found a moment before.
func TestDrainsTakeTurns(t *testing.T) {
	for name, left := range map[string]time.Duration{"the reason is sought again": 0, "the reason is repeated": 30 * time.Second / 2} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c := drained(t, 2, pod("passing", 10))
				c.Create(important(requireLevel(members("first", 2, 2, 10), rack)...)...)
				c.AwaitMessage("first", "needs 2")
				c.Clock.Pass(2 * time.Second)
				c.Create(important(pod("again", 10))...) // what is kept for a lower priority is nothing to it
				c.AwaitBound("again", 1)
				c.Clock.Pass(c.args.DrainAfter.Duration - left)
				c.Remove("passing")
				if left > 0 { // the turn of the gang of a higher priority has not come
					c.AwaitMessage("large", "takes 2 after default/again (priority 10) ends; room for it is kept")
				}
				c.Clock.Pass(left)
				c.AwaitMessage("first", "room for it is kept on 2 nodes")
				for _, p := range c.Pods() {
					if _, held := c.plugin.shares().Held(kube.UIDOf(&p)); held != strings.HasPrefix(p.Name, "first") {
						t.Errorf("room is kept for %s: %v", p.Name, held)
					}
				}
				c.AwaitMessage("large", "gang default/first waits before it")
			})
		})
	}
}

// If a kept device turns sick, the plugin keeps other room.
func TestDrainLeavesUnhealthyDevices(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := drained(t, 4, pod("passing", 10))
		c.MakeSick("n2")
		c.Clock.Pass(time.Minute)
		c.Await("no room is kept on n2", func() bool {
			for _, p := range c.Pods() {
				if h, held := c.plugin.shares().Held(kube.UIDOf(&p)); held && h.Node == "n2" {
					return false
				}
			}
			return true
		})
	})
}
