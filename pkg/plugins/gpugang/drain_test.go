package gpugang

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/tandem-gpu/tandem/pkg/api/v1alpha1"
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
		c.create(pod(fmt.Sprintf("small-%d", i), 10))
	}
	c.awaitBound("small", nodes)
	c.clock.pass(2 * time.Second)
	c.create(requireLevel(members("large", 2, 2, 10), rack)...)
	c.awaitMessage("large", "needs 2")
	c.clock.pass(2 * time.Minute)
	c.deletePod(c.on("n1"))
	c.create(passing)
	c.awaitBound("passing", 1)
	c.deletePod(c.on("n2"))
	c.awaitMessage("large", "room for it is kept on 2 nodes")
	return c
}

// on returns the pod of a node.
func (c *cluster) on(node string) string {
	c.t.Helper()
	for _, p := range c.pods() {
		if p.Spec.NodeName == node {
			return p.Name
		}
	}
	c.t.Fatalf("no pod is on %s", node)
	return ""
}

// Pods that end before the drain does use the room meanwhile, and only they.
func TestBackfill(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := drained(t, 2, within(pod("passing", 10), time.Hour))
		c.create(within(pod("long", 10), 2*time.Hour))
		c.awaitMessage("long", "free share is 0")
		c.create(within(pod("short", 10), time.Minute))
		if got := c.awaitBound("short", 1); got["short"] != "n2" {
			t.Errorf("the pod that ends in time is on %v", got)
		}
		if got := c.bound("long"); len(got) != 0 {
			t.Errorf("the pod that ends too late is on %v", got)
		}
	})
}

// A gang of a higher priority takes the turn: what was kept for the other is given up when room is kept for it. The other says so
// even where the reason why it waits was found a moment before.
func TestDrainsTakeTurns(t *testing.T) {
	for name, left := range map[string]time.Duration{"the reason is sought again": 0, "the reason is repeated": explainAgain / 2} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c := drained(t, 2, pod("passing", 10))
				c.create(important(requireLevel(members("first", 2, 2, 10), rack)...)...)
				c.awaitMessage("first", "needs 2")
				c.clock.pass(2 * time.Second)
				c.create(important(pod("again", 10))...) // what is kept for a lower priority is nothing to it
				c.awaitBound("again", 1)
				c.clock.pass(c.args.DrainAfter.Duration - left)
				c.deletePod("passing")
				if left > 0 { // the turn of the gang of a higher priority has not come
					c.awaitMessage("large", "takes 2 after default/again (priority 10) ends; room for it is kept")
				}
				c.clock.pass(left)
				c.awaitMessage("first", "room for it is kept on 2 nodes")
				for _, p := range c.pods() {
					if _, held := c.plugin.shares().Held(uidOf(&p)); held != strings.HasPrefix(p.Name, "first") {
						t.Errorf("room is kept for %s: %v", p.Name, held)
					}
				}
				c.awaitMessage("large", "gang default/first waits before it")
			})
		})
	}
}

// Where a device that is kept turns sick, other room is kept.
func TestDrainLeavesSickDevices(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := drained(t, 4, pod("passing", 10))
		c.makeSick("n2")
		c.clock.pass(time.Minute)
		c.await("no room is kept on n2", func() bool {
			for _, p := range c.pods() {
				if h, held := c.plugin.shares().Held(uidOf(&p)); held && h.Node == "n2" {
					return false
				}
			}
			return true
		})
	})
}

// makeSick has the devices of a node report a fault.
func (c *cluster) makeSick(node string) {
	c.t.Helper()
	client := c.dynamic.Resource(v1alpha1.GPUNodes)
	u, err := client.Get(c.t.Context(), node, metav1.GetOptions{})
	if err != nil {
		c.t.Fatal(err)
	}
	devices, _, err := unstructured.NestedSlice(u.Object, "status", "devices")
	if err != nil {
		c.t.Fatal(err)
	}
	for _, d := range devices {
		d.(map[string]any)["health"] = string(v1alpha1.Unhealthy)
	}
	if err := unstructured.SetNestedSlice(u.Object, devices, "status", "devices"); err != nil {
		c.t.Fatal(err)
	}
	if _, err := client.Update(c.t.Context(), u, metav1.UpdateOptions{}); err != nil {
		c.t.Fatal(err)
	}
}
