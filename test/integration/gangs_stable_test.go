package integration

import (
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// stableMode is that of Kubernetes' PodGroup where the API server has it in v1 alone, as that of Kubernetes 1.38.
func stableMode() gangMode {
	mode := nativeMode()
	mode.name, mode.stable = "PodGroup of Kubernetes 1.38", true
	return mode
}

// TestStableGangs plays gangs of PodGroups in v1 on a real API server of 1.37. The scheduler sees a proxy; the tests write to the API
// server behind it.
func TestStableGangs(t *testing.T) {
	t.Parallel()
	c := startGangCluster(t, stableMode(), schedulerProgram(t))
	c.createClasses(t)
	for _, p := range gangPlays() {
		if everything() && p.in(suites()[0], c.gangMode) || p.name == "the examples run" {
			c.play(t, p.name, p.run)
		}
	}
	c.play(t, "a group that is part of a composite one is refused", refusedComposite)
	c.play(t, "v1beta1 is served again", servedBoth)
}

// A PodGroup with a parent is refused by that name, and none of its members runs. The API server of 1.37 takes the field only with
// an alpha gate, which this one has not: so the proxy's lists get it from an annotation.
func refusedComposite(t *testing.T, c *gangCluster) {
	kind, _ := c.podGroups()
	object := &unstructured.Unstructured{Object: map[string]any{"spec": map[string]any{
		"schedulingPolicy": map[string]any{"gang": map[string]any{"minCount": int64(2)}},
	}}}
	object.SetGroupVersionKind(kind.GroupVersion().WithKind("PodGroup"))
	object.SetName("part")
	object.SetAnnotations(map[string]string{parentAnnotation: "whole"})
	if _, err := c.objects.Resource(kind).Namespace(c.namespace).Create(life(t), object, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	c.createMembers(t, testGang{name: "part", members: 2, min: 2, slots: 10}, 0, 2)
	c.awaitSaid(t, `spec.parentCompositePodGroupName: "whole" is not legal, CompositePodGroups are not supported yet`)
	if bound := c.history.most(c.namespace, "part"); bound != 0 {
		t.Errorf("%d members of a part are bound", bound)
	}
}

// When v1beta1 appears beside v1 the scheduler ends without an error, and the next one has its queue try the gangs.
func servedBoth(t *testing.T, c *gangCluster) {
	if c.proxy.groups.Load() == 0 {
		t.Error("the scheduler never asked for PodGroups in v1: the tests before this one show nothing")
	}
	c.proxy.both.Store(true)
	select {
	case <-c.scheduler.Done():
		if err := c.scheduler.Err(); err != nil {
			t.Fatalf("the scheduler ended: %v", err)
		}
	case <-time.After(patience):
		t.Fatal("the scheduler goes on as if v1beta1 were not served")
	}
	c.startScheduler(t)
	g := testGang{name: "newly-served", members: 4, min: 4, slots: 10}
	c.create(t, g)
	c.awaitGang(t, g.name, g.members)
	c.stable = false
	c.awaitPodGroup(t, g.name, metav1.ConditionTrue)
}
