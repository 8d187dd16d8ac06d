package integration

import (
	"fmt"
	"slices"
	"testing"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// rushing is how many pods of a lower priority come while the victims leave.
const rushing = 300

// The two pods of one GPU leave, one after the other, while 300 pods of a lower priority want any part of it: none gets one. The
// other GPU has four slots free, which are not kept from them.
func rush(t *testing.T, c *gangCluster) {
	c.settle(t, "stays", top, "n0", 6)
	c.settle(t, "old", low, "n0", 5, 5)
	c.submit(t, patientPod("urgent", high, "n0", 10))
	c.awaitLeaving(t, 2)
	c.settle(t, "beside", low, "n0", 4)
	for i := range rushing {
		c.submit(t, patientPod(fmt.Sprintf("rush-%d", i), []string{low, mid}[i%2], "n0", 1+i%5))
	}
	c.await(t, "all of the rush are refused", func() (bool, string) { return c.refused(t) >= rushing, "" })
	c.finish(t, "old-0")
	c.probe(t, "probe-0", mid, "n0", 1)
	c.waits(t, "urgent")
	c.finish(t, "old-1")
	c.awaitPlace(t, "urgent")
	c.probe(t, "probe-1", mid, "n0", 1)
	for _, p := range c.pods(t) {
		if p.Spec.NodeName != "" && !slices.Contains([]string{"urgent", "stays-0", "beside-0"}, p.Name) {
			t.Errorf("pod %s took the room that was made for another", p.Name)
		}
	}
}

// refused counts the pods that the scheduler has refused.
func (c *gangCluster) refused(t *testing.T) int {
	t.Helper()
	return len(slices.DeleteFunc(c.pods(t), func(p v1.Pod) bool { return p.Spec.NodeName != "" || refusal(&p) == "" }))
}

// Two pods want a GPU each at the same time: each has a victim of its own. A third finds nobody left to evict.
func twoPreemptors(t *testing.T, c *gangCluster) {
	c.fill(t, "old", low, "n0")
	c.submit(t, patientPod("left", high, "n0", 10))
	c.submit(t, patientPod("right", high, "n0", 10))
	victims := c.awaitLeaving(t, 2)
	c.probe(t, "third", high, "n0", 10)
	c.finish(t, names(victims)...)
	left, right := c.awaitPlace(t, "left"), c.awaitPlace(t, "right")
	if slices.Equal(left.devices, right.devices) {
		t.Errorf("both are on GPU %v", left.devices)
	}
	c.waits(t, "third")
	c.onlyThese(t)
}

// A pod of a still higher priority comes while the only possible victim leaves: it gets the room, and evicts nobody beside.
func outranked(t *testing.T, c *gangCluster) {
	c.settle(t, "stays", top, "n0", 10)
	c.settle(t, "old", low, "n0", 10)
	c.submit(t, patientPod("urgent", high, "n0", 10))
	c.awaitLeaving(t, 1)
	c.submit(t, patientPod("first", top, "n0", 10))
	c.awaitRefused(t, "first", c.namespace+"/old-0")
	c.onlyThese(t, "old-0")
	c.finish(t, "old-0")
	c.awaitPlace(t, "first")
	c.awaitRefused(t, "urgent")
	c.onlyThese(t)
}

// The preemptor is deleted: a pod that waited gets the room, of whatever priority.
func preemptorDeleted(t *testing.T, c *gangCluster) {
	c.settle(t, "stays", top, "n0", 10)
	c.settle(t, "old", low, "n0", 10)
	c.submit(t, patientPod("urgent", high, "n0", 10))
	c.awaitLeaving(t, 1)
	c.probe(t, "waits", low, "n0", 10)
	c.finish(t, "urgent")
	c.finish(t, "old-0")
	c.awaitPlace(t, "waits")
	c.onlyThese(t)
}

// Somebody else has asked one of the two pods to leave: it is waited for, and the other one stays.
func leavesAnyway(t *testing.T, c *gangCluster) {
	c.fill(t, "old", low, "n0")
	if err := c.admin.CoreV1().Pods(c.namespace).Delete(life(t), "old-0", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	awaitRefused := c.watchRefusals(t, "urgent")
	c.submit(t, patientPod("urgent", high, "n0", 10))
	awaitRefused("evicts no pod, waits for " + c.namespace + "/old-0")
	c.probe(t, "late", low, "n0", 10)
	c.onlyThese(t, "old-0")
	c.finish(t, "old-0")
	c.awaitPlace(t, "urgent")
	c.waits(t, "late")
	c.onlyThese(t)
}

// The next scheduler waits for the victim of the one before instead of evicting another pod, and keeps the room.
func restartedScheduler(t *testing.T, c *gangCluster) {
	c.fill(t, "old", low, "n0")
	c.submit(t, patientPod("urgent", high, "n0", 10))
	victim := c.awaitLeaving(t, 1)[0]
	c.scheduler.Stop(0)
	c.startScheduler(t)
	c.probe(t, "late", low, "n0", 10)
	c.awaitRefused(t, "urgent", "waits for "+c.namespace+"/"+victim.Name)
	c.onlyThese(t, victim.Name)
	c.finish(t, victim.Name)
	if at := c.awaitPlace(t, "urgent"); !slices.Equal(at.devices, placeOf(t, &victim).devices) {
		t.Errorf("the pod is on GPU %v, its victim was on %v", at.devices, placeOf(t, &victim).devices)
	}
	c.waits(t, "late")
	c.onlyThese(t)
}

// The node of the victim takes no pods any more: the preemptor does not wait for it, and evicts one elsewhere.
func lostNode(t *testing.T, c *gangCluster) {
	c.fill(t, "near", low, "n0")
	c.fill(t, "far", mid, "n3")
	p := patientPod("urgent", high, "", 10)
	p.Spec.Affinity = &v1.Affinity{NodeAffinity: &v1.NodeAffinity{RequiredDuringSchedulingIgnoredDuringExecution: &v1.NodeSelector{
		NodeSelectorTerms: []v1.NodeSelectorTerm{{MatchExpressions: []v1.NodeSelectorRequirement{
			{Key: v1.LabelHostname, Operator: v1.NodeSelectorOpIn, Values: []string{"n0", "n3"}},
		}}},
	}}}
	c.submit(t, p)
	first := c.awaitLeaving(t, 1)[0]
	if first.Spec.NodeName != "n0" {
		t.Fatalf("the victim is on %s, the pods of a lower priority are on n0", first.Spec.NodeName)
	}
	const lost = "node.kubernetes.io/unreachable"
	c.taint(t, "n0", `[{"key":"`+lost+`","effect":"NoSchedule"},{"key":"`+lost+`","effect":"NoExecute"}]`)
	t.Cleanup(func() { c.taint(t, "n0", `null`) })
	victims := c.awaitLeaving(t, 2)
	for i := range victims {
		if victims[i].Name != first.Name {
			c.finish(t, victims[i].Name)
		}
	}
	if at := c.awaitPlace(t, "urgent"); at.node != "n3" {
		t.Errorf("the pod is on node %s, want n3", at.node)
	}
	c.onlyThese(t, first.Name)
}

// taint sets the taints of a node.
func (c *gangCluster) taint(t *testing.T, node, taints string) {
	t.Helper()
	patch := fmt.Appendf(nil, `{"spec":{"taints":%s}}`, taints)
	if _, err := c.admin.CoreV1().Nodes().Patch(life(t), node, types.MergePatchType, patch, metav1.PatchOptions{}); err != nil {
		t.Fatal(err)
	}
}

// A victim with a grace of a second never ends: some time after that another pod is evicted, and its room is used.
func staysOn(t *testing.T, c *gangCluster) {
	stuck := patientPod("stuck", low, "n0", 10)
	stuck.Spec.TerminationGracePeriodSeconds = new(int64(1))
	c.submit(t, stuck)
	c.awaitPlace(t, "stuck")
	c.settle(t, "other", mid, "n0", 10)
	c.submit(t, patientPod("urgent", high, "n0", 10))
	if victims := names(c.awaitLeaving(t, 1)); victims[0] != "stuck" {
		t.Fatalf("pod %s leaves, want the one of the lowest priority", victims[0])
	}
	c.awaitLeaving(t, 2)
	c.finish(t, "other-0")
	c.awaitPlace(t, "urgent")
	c.onlyThese(t, "stuck")
}
