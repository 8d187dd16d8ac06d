package integration

import (
	"strconv"
	"testing"
	"time"

	schedulingv1 "k8s.io/api/scheduling/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/tandem-gpu/tandem/internal/cluster/podgroup"
	"github.com/tandem-gpu/tandem/internal/sandbox"
)

// Three of four members must run and two are there: none is bound before the third comes, and the fourth joins them. The events say how many
// there are, also when the number changes.
func lateMembers(t *testing.T, c *gangCluster) {
	g := testGang{name: "late", members: 4, min: 3, slots: 10, preferred: rackLabel}
	c.createPodGroup(t, g)
	c.createMembers(t, g, 0, 2)
	c.awaitSaid(t, "2 of 3 members exist")
	c.deletePod(t, c.member(g, 1).Name)
	c.awaitSaid(t, "1 of 3 members exist")
	c.createMembers(t, g, 1, 2)
	if bound := c.history.most(c.namespace, g.name); bound != 0 {
		t.Fatalf("%d members are bound while one that is needed is missing", bound)
	}
	c.createMembers(t, g, 2, 3)
	c.awaitGang(t, g.name, 3)
	c.checkTogether(t, g)
	c.createMembers(t, g, 3, 4)
	c.awaitGang(t, g.name, 4)
}

// One member has another priority than its siblings: nobody is bound, and the pods say why. Made again alike, all run.
func unlikePriorities(t *testing.T, c *gangCluster) {
	class := &schedulingv1.PriorityClass{ObjectMeta: metav1.ObjectMeta{Name: "unlike"}, Value: 1000}
	sandbox.CreatePriorityClassForTest(life(t), t, c.admin, class)
	g := testGang{name: "mixed", members: 3, min: 3, slots: 10}
	c.createPodGroup(t, g)
	c.createMembers(t, g, 0, 2)
	odd := c.member(g, 2)
	odd.Spec.PriorityClassName = class.Name
	if _, err := c.admin.CoreV1().Pods(c.namespace).Create(life(t), odd, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	c.awaitSaid(t, "priority", "1000")
	if bound := c.history.most(c.namespace, g.name); bound != 0 {
		t.Fatalf("%d members of unlike priority are bound", bound)
	}
	c.deletePod(t, odd.Name)
	c.createMembers(t, g, 2, 3)
	c.awaitGang(t, g.name, 3)
	c.checkTogether(t, g)
}

// The PodGroup goes while its gang waits for room: the gang does not run when there is room, others do, and it runs once the
// PodGroup is there again.
func deletedPodGroup(t *testing.T, c *gangCluster) {
	c.createSingles(t, "filler", clusterGPUs, 10, nil)
	g := testGang{name: "orphan", members: 4, min: 4, slots: 10}
	c.create(t, g)
	c.awaitSaid(t, "orphan", "4 × 1 GPU")
	c.removePodGroup(t, g.name)
	c.awaitSaid(t, g.name, "does not exist") // the scheduler reads PodGroups and pods beside each other
	for i := range clusterGPUs {
		c.deletePod(t, "filler-"+strconv.Itoa(i))
	}
	other := testGang{name: "other", members: 4, min: 4, slots: 10}
	c.create(t, other)
	c.awaitGang(t, other.name, 4)
	if bound := c.history.most(c.namespace, g.name); bound != 0 {
		t.Fatalf("%d members of a gang without its PodGroup are bound", bound)
	}
	c.createPodGroup(t, g)
	c.awaitGang(t, g.name, 4)
	c.checkTogether(t, g)
}

// removePodGroup deletes a PodGroup. That of Kubernetes stays as long as pods name it, so its protection is taken away too.
func (c *gangCluster) removePodGroup(t *testing.T, name string) {
	t.Helper()
	kind, _ := c.podGroups()
	groups := c.objects.Resource(kind).Namespace(c.namespace)
	if err := groups.Delete(life(t), name, metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	if c.source == podgroup.Native {
		if _, err := groups.Get(life(t), name, metav1.GetOptions{}); err != nil {
			t.Fatalf("the PodGroup should wait for its pods: %v", err)
		}
		patch := []byte(`{"metadata":{"finalizers":null}}`)
		if _, err := groups.Patch(life(t), name, types.MergePatchType, patch, metav1.PatchOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	c.await(t, "the PodGroup is gone", func() (bool, string) {
		_, err := groups.Get(life(t), name, metav1.GetOptions{})
		return apierrors.IsNotFound(err), ""
	})
}

// A gang that fills nine tenths of the cluster with small shares is bound soon after its last member came.
func manyMembers(t *testing.T, c *gangCluster) {
	g := testGang{name: "many", members: 150, min: 150, slots: 1}
	c.create(t, g)
	begin := time.Now()
	c.awaitGang(t, g.name, g.members)
	t.Logf("%d members were bound %v after the last of them came", g.members, time.Since(begin))
	c.checkTogether(t, g)
	checkLedger(t, c.pods(t), c.gpus)
}

// A gang of 2,000 on a cluster of 160 slots is refused at once, and keeps nobody else from running.
func twoThousandMembers(t *testing.T, c *gangCluster) {
	g := testGang{name: "huge", members: 2000, min: 2000, slots: 1}
	c.create(t, g)
	begin := time.Now()
	c.awaitSaid(t, "huge", "2000 × 1 of 10 slots", "160")
	t.Logf("it was refused %v after its last member came", time.Since(begin))
	small := testGang{name: "small", members: 4, min: 4, slots: 10}
	c.create(t, small)
	c.awaitGang(t, small.name, 4)
	if bound := c.history.most(c.namespace, g.name); bound != 0 {
		t.Errorf("%d members are bound", bound)
	}
}
