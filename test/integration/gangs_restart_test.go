package integration

import (
	"fmt"
	"slices"
	"testing"
	"time"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/tandem-gpu/tandem/internal/cluster/podgroup"
)

// The scheduler is killed after the first binds of a gang: the next one binds the others.
func killedScheduler(t *testing.T, c *gangCluster) {
	g := c.cutInTwo(t, "cut")
	begin := time.Now()
	c.startScheduler(t)
	c.awaitGang(t, g.name, g.members)
	t.Logf("all %d members were bound %v after the next start", g.members, time.Since(begin))
	checkLedger(t, c.pods(t), c.gpus)
}

// halfDeadline is longer than a scheduler takes to start. A scheduler that starts after the deadline assumes that the gang has run, and
// evicts no member.
const halfDeadline = "2m0s"

// The scheduler is killed after the first binds of a gang, and no node takes the others any more: when the deadline has passed,
// those that were bound are evicted.
func releasedHalf(t *testing.T, c *gangCluster) {
	g := c.cutInTwo(t, "cut")
	c.cordon(t, true)
	c.startScheduler(t, func(gang map[string]any) { gang["placementDeadline"] = halfDeadline })
	c.poll(t, "the bound members are evicted", func() (bool, string) {
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
		return bound > 0 && bound == evicted, fmt.Sprintf("%d of %d are", evicted, bound)
	})
	c.awaitSaid(t, g.name, "evicted", halfDeadline)
	c.scheduler.Stop(0)
	c.deletePods(t, g.name)
	c.cordon(t, false)
	c.startScheduler(t) // with its own deadline again
	c.createMembers(t, g, 0, g.members)
	c.awaitGang(t, g.name, g.members)
}

// cutInTwo returns a gang of which some members are bound and some are not, with the scheduler killed: the API server refused to
// bind the others, and does so no more.
func (c *gangCluster) cutInTwo(t *testing.T, name string) testGang {
	t.Helper()
	g := testGang{name: name, members: 60, min: 60, slots: 1}
	accept := c.refuseBinds(t, name)
	c.create(t, g)
	c.awaitGang(t, g.name, 1)
	c.scheduler.Stop(0)
	if bound := placed(c.nodesOf(t, g.name)); bound > 30 {
		t.Fatalf("%d of %d members are bound, and 30 could be", bound, g.members)
	}
	accept()
	return g
}

// refuseBinds has the API server refuse to bind the members of a gang from 30 on, until the function is called that it returns.
func (c *gangCluster) refuseBinds(t *testing.T, gang string) (accept func()) {
	t.Helper()
	b := &v1.Binding{ObjectMeta: metav1.ObjectMeta{Name: gang + "-59"}, Target: v1.ObjectReference{Kind: "Node", Name: c.gpus[0].Name}}
	return c.refuse(t, refusedRequests{
		operation: admissionv1.Create, resource: "pods/binding", name: "^" + gang + "-[3-5][0-9]$",
		try: func() error { // of a pod that may not exist
			return c.admin.CoreV1().Pods(c.namespace).Bind(life(t), b, metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
		},
	})
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

// A PodGroup is served only after the scheduler has started: pods that name one wait, those too that come before the scheduler notices. It ends by itself without an error,
// and the next one places them together.
func servedLater(t *testing.T, c *gangCluster) {
	before := testGang{name: "before", members: 4, min: 4, slots: 10}
	c.create(t, before)
	c.awaitGang(t, before.name, before.members) // the scheduler has started
	c.source = podgroup.XK8s
	g := testGang{name: "newly-served", members: 4, min: 4, slots: 10}
	c.createMembers(t, g, 0, g.members)
	c.awaitSaid(t, "the label scheduling.x-k8s.io/pod-group names PodGroup newly-served, and the API server serves no PodGroups of scheduling.x-k8s.io that this scheduler reads")
	c.servePodGroups(t)
	late := testGang{name: "late", members: 4, min: 4, slots: 10}
	c.createMembers(t, late, 0, late.members)
	c.noticePodGroups(t, c.scheduler)
	for _, gang := range []testGang{g, late} {
		if nodes := c.nodesOf(t, gang.name); placed(nodes) != 0 {
			t.Errorf("before the scheduler knows gang %s, its members are on %v", gang.name, nodes)
		}
	}
	c.startScheduler(t)
	for _, gang := range []testGang{g, late} {
		c.createPodGroup(t, gang)
		c.awaitGang(t, gang.name, gang.members)
		c.checkTogether(t, gang)
	}
}
