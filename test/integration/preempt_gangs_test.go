package integration

import (
	"fmt"
	"slices"
	"testing"

	v1 "k8s.io/api/core/v1"
)

// pack makes a gang that fills the node of eight GPUs that is free, and waits until it is bound there.
func (c *gangCluster) pack(t *testing.T, name, class string, least int) {
	t.Helper()
	g := testGang{name: name, members: 8, min: least, slots: 10, required: v1.LabelHostname, class: class}
	c.create(t, g)
	c.awaitGang(t, name, g.members)
}

// fillNodes fills the nodes of two and of four GPUs with single pods.
func (c *gangCluster) fillNodes(t *testing.T, class string) {
	t.Helper()
	c.fill(t, "two", class, "n0")
	c.fill(t, "four", class, "n3")
}

// membersOf returns which of the pods are members of a gang, by name.
func membersOf(pods []v1.Pod, gang string) []string {
	return names(slices.DeleteFunc(slices.Clone(pods), func(p v1.Pod) bool {
		ref, ok := gangOf(&p)
		return !ok || ref.Name != gang
	}))
}

// Two gangs have the nodes of eight GPUs, singles the others. A gang that needs eight GPUs of one node gets those of one gang,
// all of which goes; nobody else does, and a rush of a lower priority does not get between.
func gangForGang(t *testing.T, c *gangCluster) {
	c.pack(t, "left", low, 8)
	c.pack(t, "right", low, 8)
	c.fillNodes(t, low)
	urgent := testGang{name: "urgent", members: 8, min: 8, slots: 10, required: v1.LabelHostname, class: high}
	c.create(t, urgent)
	victims := c.awaitLeaving(t, 8)
	node := victims[0].Spec.NodeName
	if left, right := membersOf(victims, "left"), membersOf(victims, "right"); len(left) != 8 && len(right) != 8 {
		t.Fatalf("members %v and %v leave, want all of one gang", left, right)
	}
	c.awaitSaid(t, "Preempted by gang "+c.namespace+"/urgent (priority 1000)")
	c.awaitSaid(t, "preemption: on node "+node+" it evicts 8 pods: ") // of a PodGroup of Kubernetes it is an event of its own
	for i := range 20 {
		c.submit(t, patientPod(fmt.Sprintf("rush-%d", i), low, "", 10))
	}
	c.finish(t, names(victims)[:7]...)
	c.probe(t, "probe", low, "", 10)
	if bound := c.history.most(c.namespace, "urgent"); bound != 0 {
		t.Errorf("%d members are bound before their room is free", bound)
	}
	c.finish(t, names(victims)[7])
	c.awaitNodes(t, urgent, node)
	c.checkTogether(t, urgent)
	c.onlyThese(t)
	checkLedger(t, c.boundPods(t), c.gpus)
}

// A gang needs six of its eight members. For two GPUs its surplus goes, though single pods have waited to be asked; for the next
// two the single pods do, and the gang runs on.
func surplusFirst(t *testing.T, c *gangCluster) {
	c.pack(t, "elastic", low, 6)
	c.pack(t, "rigid", low, 8)
	c.fillNodes(t, low)
	for i, from := range []string{"elastic", ""} {
		name := fmt.Sprintf("urgent-%d", i)
		p := patientPod(name, high, "", 20)
		c.submit(t, p)
		victims := c.awaitLeaving(t, 2)
		if members := membersOf(victims, "elastic"); len(members) != 0 && from == "" || len(members) != 2 && from != "" {
			t.Fatalf("for pod %s pods %v leave", name, names(victims))
		}
		if members := membersOf(victims, "rigid"); len(members) != 0 {
			t.Fatalf("members %v of a gang that needs all leave", members)
		}
		c.finish(t, names(victims)...)
		c.awaitPlace(t, name)
	}
	if nodes := c.nodesOf(t, "elastic"); placed(nodes) != 6 {
		t.Errorf("the gang runs on %v, want six members", nodes)
	}
	c.onlyThese(t)
}

// A gang of a higher priority has one node of eight GPUs, one of a lower the other, which is larger by no member than needed:
// a gang of a middle priority gets the latter, and a second one waits.
func gangStays(t *testing.T, c *gangCluster) {
	c.pack(t, "above", top, 8)
	c.pack(t, "below", low, 8)
	c.fillNodes(t, top)
	urgent := testGang{name: "urgent", members: 6, min: 6, slots: 10, required: v1.LabelHostname, class: high}
	c.create(t, urgent)
	victims := c.awaitLeaving(t, 8)
	if members := membersOf(victims, "below"); len(members) != 8 {
		t.Fatalf("pods %v leave", names(victims))
	}
	c.finish(t, names(victims)...)
	c.awaitGang(t, "urgent", 6)
	other := testGang{name: "other", members: 6, min: 6, slots: 10, required: v1.LabelHostname, class: high}
	c.create(t, other)
	c.awaitSaid(t, "other", "6 × 1 GPU")
	c.probe(t, "probe", high, "", 30)
	if bound := c.history.most(c.namespace, "other"); bound != 0 {
		t.Errorf("%d members of the gang that must wait are bound", bound)
	}
	c.onlyThese(t)
}

// The gang that others left for is deleted before they are gone: their room is free for all.
func gangDeleted(t *testing.T, c *gangCluster) {
	c.pack(t, "left", low, 8)
	c.pack(t, "right", low, 8)
	c.fillNodes(t, low)
	urgent := testGang{name: "urgent", members: 8, min: 8, slots: 10, required: v1.LabelHostname, class: high}
	c.create(t, urgent)
	victims := c.awaitLeaving(t, 8)
	c.probe(t, "waits", low, "", 80)
	c.deletePods(t, "urgent")
	c.finish(t, names(victims)...)
	c.awaitPlace(t, "waits")
	c.onlyThese(t)
}
