package integration

import (
	"fmt"
	"testing"

	v1 "k8s.io/api/core/v1"
)

// scheduledReason returns the reason for which a pod has no node: autoscalers make nodes for PodReasonUnschedulable alone.
func scheduledReason(p *v1.Pod) string {
	for _, condition := range p.Status.Conditions {
		if condition.Type == v1.PodScheduled && condition.Status == v1.ConditionFalse {
			return condition.Reason
		}
	}
	return ""
}

// seenByAutoscalers: each member of a gang without room is marked, also those that the scheduler keeps out of its queue while it tries
// the first one. A pod with a scheduling gate and members of a gang that is not complete are not: no node would help them.
func seenByAutoscalers(t *testing.T, c *gangCluster) {
	gated := vgpuPod("gated", 2)
	gated.Spec.SchedulingGates = []v1.PodSchedulingGate{{Name: "example.com/quota"}}
	c.submit(t, gated)
	few := testGang{name: "few", members: 3, min: 4, slots: 10}
	c.create(t, few)
	c.create(t, testGang{name: "large", members: gangNodes + 1, min: gangNodes + 1, slots: 10 * gpusPerNode})
	c.poll(t, "all members of the gang without room are unschedulable", func() (bool, string) {
		marked := 0
		for _, p := range c.members(t, "large") {
			if scheduledReason(&p) == v1.PodReasonUnschedulable && p.Status.NominatedNodeName == "" {
				marked++
			}
		}
		return marked == gangNodes+1, fmt.Sprintf("%d are", marked)
	})
	if got := scheduledReason(c.pod(t, "gated")); got != v1.PodReasonSchedulingGated {
		t.Errorf("the gated pod has no node for the reason %q", got)
	}
	for _, p := range c.members(t, few.name) {
		if got := scheduledReason(&p); got != "" {
			t.Errorf("pod %s of a gang that is not complete has no node for the reason %q", p.Name, got)
		}
	}
}
