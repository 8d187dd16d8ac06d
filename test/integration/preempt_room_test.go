package integration

import (
	"slices"
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/tandem-gpu/tandem/test/must"
)

// Each GPU of n0 is shared by two pods, of which one is of a lower priority. Any two of the node free ten slots, and only two of
// one GPU free ten slots of a GPU.
func oneGPU(t *testing.T, c *gangCluster) {
	c.settle(t, "a", low, "n0", 5)
	c.settle(t, "b", mid, "n0", 5)
	c.settle(t, "c", low, "n0", 5)
	c.settle(t, "d", mid, "n0", 5)
	c.submit(t, patientPod("urgent", high, "n0", 10))
	victims := c.awaitLeaving(t, 2)
	first, second := placeOf(t, &victims[0]), placeOf(t, &victims[1])
	if !slices.Equal(first.devices, second.devices) {
		t.Fatalf("the victims %v are on GPUs %v and %v", names(victims), first.devices, second.devices)
	}
	c.finish(t, victims[0].Name)
	c.probe(t, "later", low, "n0", 5)
	c.waits(t, "urgent")
	c.finish(t, victims[1].Name)
	if at := c.awaitPlace(t, "urgent"); !slices.Equal(at.devices, first.devices) {
		t.Errorf("the pod is on GPU %v, its victims were on %v", at.devices, first.devices)
	}
	c.onlyThese(t)
	checkLedger(t, c.boundPods(t), c.gpus)
}

// All GPUs are taken by pods of one GPU each, those of n1 by the oldest: eight of one node go, whatever eight others are worth.
func eightTogether(t *testing.T, c *gangCluster) {
	c.fill(t, "n1", mid, "n1")
	c.fill(t, "n2", mid, "n2")
	c.fill(t, "n0", low, "n0")
	c.fill(t, "n3", low, "n3")
	c.submit(t, patientPod("large", high, "", 80))
	victims := c.awaitLeaving(t, 8)
	node := victims[0].Spec.NodeName
	for i := range victims {
		if victims[i].Spec.NodeName != node {
			t.Fatalf("victims are on nodes %s and %s", node, victims[i].Spec.NodeName)
		}
	}
	c.finish(t, names(victims)...)
	if at := c.awaitPlace(t, "large"); at.node != node || len(at.devices) != 8 {
		t.Errorf("the pod is on %v, its victims were on %s", at, node)
	}
	c.onlyThese(t)
	checkLedger(t, c.boundPods(t), c.gpus)
}

// Two nodes are full of pods of one slot each. All pods of the node where they count less go; none of the other node does.
func slotBySlot(t *testing.T, c *gangCluster) {
	c.restart(t, func(args map[string]any) { args["evictionsPerMinute"] = 0 })
	for node, class := range map[string]string{"n1": mid, "n2": low} {
		c.createSingles(t, node, 80, 1, func(p *v1.Pod) {
			p.Spec = patientPod(p.Name, class, node, 1).Spec
		})
	}
	c.submit(t, patientPod("large", high, "", 80))
	victims := c.awaitLeaving(t, 80)
	for i := range victims {
		if victims[i].Spec.NodeName != "n2" {
			t.Fatalf("pod %s of node %s leaves", victims[i].Name, victims[i].Spec.NodeName)
		}
	}
	c.finish(t, names(victims)...)
	c.awaitPlace(t, "large")
	c.onlyThese(t)
}

// The event of a victim and that of the preemptor name each other.
func toldForWhom(t *testing.T, c *gangCluster) {
	c.fill(t, "old", low, "n0")
	c.submit(t, patientPod("urgent", high, "n0", 10))
	victim := c.awaitLeaving(t, 1)[0].Name
	c.awaitSaid(t, "Preempted by pod "+c.namespace+"/urgent (priority 1000) on node n0")
	events, err := c.admin.EventsV1().Events(c.namespace).List(life(t), metav1.ListOptions{})
	must.OK(t, err)
	for _, e := range events.Items {
		if strings.HasPrefix(e.Note, "Preempted by") && (e.Regarding.Name != victim || e.Reason != "Preempted" || e.Related == nil || e.Related.Name != "urgent") {
			t.Errorf("the event regards pod %s with reason %s and relates to %v, want pod %s and urgent", e.Regarding.Name, e.Reason, e.Related, victim)
		}
	}
	c.awaitRefused(t, "urgent", "preemption", c.namespace+"/"+victim)
	if node := c.pod(t, "urgent").Status.NominatedNodeName; node != "n0" {
		t.Errorf("the pod is nominated for node %q, want n0", node)
	}
}

// On the first GPU is a pod that may not go, on the second one of the same priority that may.
func sparesBudget(t *testing.T, c *gangCluster) {
	c.budget(t, "web", 0)
	c.submit(t, guarded("kept", low, "n0", 10, "web"))
	c.awaitPlace(t, "kept")
	c.settle(t, "other", low, "n0", 10)
	c.submit(t, patientPod("urgent", high, "n0", 10))
	c.awaitLeaving(t, 1)
	c.finish(t, "other-0")
	c.awaitPlace(t, "urgent")
	c.onlyThese(t)
}

// Both GPUs have pods of a budget that allows nobody to go: by default one of them goes all the same.
func lastResort(t *testing.T, c *gangCluster) {
	c.budget(t, "web", 0)
	for _, name := range []string{"web-0", "web-1"} {
		c.submit(t, guarded(name, low, "n0", 10, "web"))
		c.awaitPlace(t, name)
	}
	c.submit(t, patientPod("urgent", high, "n0", 10))
	victims := c.awaitLeaving(t, 1)
	c.finish(t, names(victims)...)
	c.awaitPlace(t, "urgent")
	c.onlyThese(t)
}

// The same where budgets are required to be kept: nobody goes until the budget allows one.
func requiredBudget(t *testing.T, c *gangCluster) {
	c.restart(t, func(args map[string]any) { args["podDisruptionBudgets"] = "Required" })
	c.budget(t, "web", 0)
	for _, name := range []string{"web-0", "web-1"} {
		c.submit(t, guarded(name, low, "n0", 10, "web"))
		c.awaitPlace(t, name)
	}
	c.submit(t, patientPod("urgent", high, "n0", 10))
	c.awaitRefused(t, "urgent", "preemption", c.namespace+"/web")
	c.probe(t, "probe", high, "n0", 10)
	c.onlyThese(t)
	c.deletePod(t, "probe")
	b, err := c.admin.PolicyV1().PodDisruptionBudgets(c.namespace).Get(life(t), "web", metav1.GetOptions{})
	must.OK(t, err)
	c.allow(t, b, 1)
	victims := c.awaitLeaving(t, 1)
	c.finish(t, names(victims)...)
	c.awaitPlace(t, "urgent")
	c.onlyThese(t)
}
