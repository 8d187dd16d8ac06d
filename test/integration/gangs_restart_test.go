package integration

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/tandem-gpu/tandem/internal/podgroup"
	"github.com/tandem-gpu/tandem/internal/sandbox"
)

// The scheduler is killed after the first bind of a gang: the next one binds the others.
func killedScheduler(t *testing.T, c *gangCluster) {
	g := c.cutInTwo(t)
	begin := time.Now()
	c.startScheduler(t)
	c.awaitGang(t, g.name, g.members)
	t.Logf("all %d members were bound %v after the next start", g.members, time.Since(begin))
	checkLedger(t, c.pods(t), c.gpus)
}

// The scheduler is killed after the first bind of a gang, and no node takes the others any more: when the deadline has passed,
// those that were bound are evicted.
func releasedHalf(t *testing.T, c *gangCluster) {
	g := c.cutInTwo(t)
	c.cordon(t, true)
	c.startScheduler(t, func(gang map[string]any) { gang["placementDeadline"] = "10s" })
	gangPoll(t, "the bound members are evicted", func() (bool, string) {
		bound, evicted := 0, 0
		for _, p := range c.members(t, g.name) {
			if p.Spec.NodeName == "" {
				continue
			}
			bound++
			if p.DeletionTimestamp != nil && slices.ContainsFunc(p.Status.Conditions, func(c v1.PodCondition) bool {
				return c.Type == v1.DisruptionTarget && c.Status == v1.ConditionTrue
			}) {
				evicted++
			}
		}
		return bound > 0 && bound == evicted, fmt.Sprintf("%d of %d are; %s", evicted, bound, c.said(t))
	})
	c.awaitSaid(t, g.name, "evicted", "10s")
	c.deletePods(t, g.name)
	c.cordon(t, false)
	c.createMembers(t, g, 0, g.members)
	c.awaitGang(t, g.name, g.members)
	c.scheduler.Stop(0)
	c.startScheduler(t)
}

// cutInTwo returns a gang of which some members are bound and some are not, with the scheduler killed.
func (c *gangCluster) cutInTwo(t *testing.T) testGang {
	t.Helper()
	for round := range 10 {
		g := testGang{name: fmt.Sprintf("cut-%d", round), members: 60, min: 60, slots: 1}
		c.create(t, g)
		c.awaitFirstBind(t, g.name)
		c.scheduler.Stop(0)
		bound := placed(c.nodesOf(t, g.name))
		if bound < g.members {
			t.Logf("killed with %d of %d members bound", bound, g.members)
			return g
		}
		c.deletePods(t, g.name)
		c.startScheduler(t)
	}
	t.Fatal("the scheduler was never killed between two binds of a gang")
	panic("unreachable")
}

// cordon keeps new pods from all nodes, or lets them in again.
func (c *gangCluster) cordon(t *testing.T, closed bool) {
	t.Helper()
	for _, g := range c.gpus {
		patch := fmt.Appendf(nil, `{"spec":{"unschedulable":%t}}`, closed)
		if _, err := c.admin.CoreV1().Nodes().Patch(life(t), g.Name, types.MergePatchType, patch, metav1.PatchOptions{}); err != nil {
			t.Fatal(err)
		}
	}
}

// awaitFirstBind returns as soon as the watch sees a member bound.
func (c *gangCluster) awaitFirstBind(t *testing.T, gang string) {
	t.Helper()
	deadline, tick := time.After(patience), time.NewTicker(time.Millisecond)
	defer tick.Stop()
	for c.history.most(c.namespace, gang) == 0 {
		select {
		case <-deadline:
			t.Fatalf("no member of gang %s was bound; %s", gang, c.said(t))
		case <-tick.C:
		}
	}
}

// A PodGroup is served only after the scheduler has started: it ends by itself without an error, and the next one knows it.
func servedLater(t *testing.T, c *gangCluster) {
	root, err := sandbox.Root()
	if err != nil {
		t.Fatal(err)
	}
	crd, err := os.ReadFile(filepath.Join(root, xk8sCRD))
	if err != nil {
		t.Fatal(err)
	}
	c.plane.ApplyForTest(t.Context(), t, string(crd))
	select {
	case <-c.scheduler.Done():
		if err := c.scheduler.Err(); err != nil {
			t.Fatalf("the scheduler ended: %v", err)
		}
	case <-time.After(patience):
		t.Fatal("the scheduler goes on as if no PodGroup were served")
	}
	c.source = podgroup.XK8s
	c.startScheduler(t)
	g := testGang{name: "newly-served", members: 4, min: 4, slots: 10}
	c.create(t, g)
	c.awaitGang(t, g.name, g.members)
	c.checkTogether(t, g)
}
