package podgroup

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/cache"

	"github.com/tandem-gpu/tandem/test/must"
)

const elasticWorkers = "tandem-gpu.io/elastic-workers"

// elasticWorld is a world with ElasticTargets that are read.
type elasticWorld struct {
	*world
	store cache.Store
	read  bool
}

func newElasticWorld() *elasticWorld {
	w := &elasticWorld{world: newWorld(both), store: cache.NewStore(cache.MetaNamespaceKeyFunc), read: true}
	w.targets = &targets{store: w.store, synced: func() bool { return w.read }}
	return w
}

// setTarget stores an ElasticTarget of namespace ns as the informer does, and lets the set know.
func (w *elasticWorld) setTarget(t *testing.T, name string, source Source, workers int64) {
	t.Helper()
	u := &unstructured.Unstructured{Object: map[string]any{"spec": map[string]any{"source": string(source), "min": int64(2), "max": int64(8), "workers": workers}}}
	u.SetNamespace("ns")
	u.SetName(name)
	kept, err := condenseTarget(u)
	must.OK(t, err)
	must.OK(t, w.store.Update(kept))
	w.targetChanged(kept)
}

// dropTarget removes an ElasticTarget and lets the set know by a tombstone.
func (w *elasticWorld) dropTarget(t *testing.T, name string) {
	t.Helper()
	gone := &target{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: name}}
	must.OK(t, w.store.Delete(gone))
	w.targetChanged(cache.DeletedFinalStateUnknown{Key: "ns/" + name, Obj: gone})
}

// elasticPods returns the members of a gang by label with these sizes, the least of which is 2.
func elasticPods(name, sizes string, count int) (pods []any) {
	for i := range count {
		pods = append(pods, labelled(fmt.Sprintf("%s-%d", name, i), name, "2", elasticWorkers, sizes))
	}
	return pods
}

var train = Ref{Source: Label, Namespace: "ns", Name: "train"}

func TestWorkers(t *testing.T) {
	const least = "gang ns/train is elastic and has its least number of members, 2: "
	const says = "gang ns/train should have %d of its 8 members now, says its ElasticTarget: the pod waits until the target grows"
	tests := []struct {
		name     string
		do       func(*elasticWorld)
		workers  int
		targeted bool
		why      string
	}{
		{"the API server has no ElasticTargets", func(w *elasticWorld) { w.targets = nil }, 2, false,
			least + "the API server has no ElasticTargets; install the CustomResourceDefinition and the controller, or remove the annotation " + elasticWorkers},
		{"they are not read", func(w *elasticWorld) { w.setTarget(t, "train", Label, 8); w.read = false }, 2, false, least + "the ElasticTargets are not read yet"},
		{"there is none", func(*elasticWorld) {}, 2, false, least + "the controller has not made its ElasticTarget yet"},
		{"there is one of another name", func(w *elasticWorld) { w.setTarget(t, "other", Label, 8) }, 2, false, least + "the controller has not made its ElasticTarget yet"},
		{"it is for a PodGroup", func(w *elasticWorld) { w.setTarget(t, "train", XK8s, 8) }, 2, false,
			least + "the ElasticTarget of that name is for the gang by scheduling.x-k8s.io; rename one of the two gangs"},
		{"the least", func(w *elasticWorld) { w.setTarget(t, "train", Label, 2) }, 2, true, fmt.Sprintf(says, 2)},
		{"a legal number", func(w *elasticWorld) { w.setTarget(t, "train", Label, 4) }, 4, true, fmt.Sprintf(says, 4)},
		{"no legal number", func(w *elasticWorld) { w.setTarget(t, "train", Label, 7) }, 4, true, fmt.Sprintf(says, 4)},
		{"below the least", func(w *elasticWorld) { w.setTarget(t, "train", Label, 1) }, 2, true, fmt.Sprintf(says, 2)},
		{"above the most", func(w *elasticWorld) { w.setTarget(t, "train", Label, 100) }, 8, true, fmt.Sprintf(says, 8)},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			w := newElasticWorld()
			test.do(w)
			w.put(t, elasticPods("train", "2,4,8", 8)...)
			g, err := w.Gang(train)
			must.OK(t, err)
			if g.Workers != test.workers || g.Targeted != test.targeted || len(g.Members) != test.workers || g.MinCount != 2 {
				t.Errorf("%d workers, targeted %v, %d members, at least %d", g.Workers, g.Targeted, len(g.Members), g.MinCount)
			}
			for i := range 8 {
				uid, why := types.UID(fmt.Sprintf("uid-train-%d", i)), ""
				if i >= test.workers { // the members with the highest ranks are held back
					why = test.why
				}
				if got := g.HeldBack(uid); got != why || slices.Contains(g.Held(), uid) != (why != "") {
					t.Errorf("%s: %q, want %q; held are %v", uid, got, why, g.Held())
				}
			}
		})
	}
}

// The way to resize is that of the annotation. A value that is none is a problem of the gang.
func TestSizeFields(t *testing.T) {
	for raw, want := range map[string]bool{"size-fields": true, "held-members": false, "fields": false} {
		w := newElasticWorld()
		for i := range 2 {
			w.put(t, labelled(fmt.Sprint("train-", i), "train", "2", elasticWorkers, "2-8", "tandem-gpu.io/elastic-resize", raw))
		}
		g, err := w.Gang(train)
		if g.SizeFields != want || (err != nil) != (raw == "fields") {
			t.Errorf("%s: %v, %v", raw, g.SizeFields, err)
		}
	}
}

// A target that cannot be read is that of no gang.
func TestUnreadableTarget(t *testing.T) {
	u := &unstructured.Unstructured{Object: map[string]any{"spec": map[string]any{"source": "label", "workers": "four"}}}
	u.SetNamespace("ns")
	u.SetName("train")
	kept, err := condenseTarget(u)
	must.OK(t, err)
	w := newElasticWorld()
	must.OK(t, w.store.Update(kept))
	w.put(t, elasticPods("train", "2-8", 4)...)
	if g, err := w.Gang(train); err != nil || g.Targeted || g.Workers != 2 {
		t.Errorf("%+v, %v", g, err)
	}
}

// Members that have a node already are members, however small the target. They take the places of others.
func TestHeldWithNodes(t *testing.T) {
	w := newElasticWorld()
	w.setTarget(t, "train", Label, 3)
	pods := elasticPods("train", "2-8", 6)
	for _, i := range []int{1, 5} {
		pods[i] = with(pods[i].(*v1.Pod), func(p *v1.Pod) { p.Spec.NodeName = "n" })
	}
	w.put(t, pods...)
	check := func(want ...string) {
		t.Helper()
		g, err := w.Gang(train)
		must.OK(t, err)
		var got []string
		for i, p := range g.Members { // a member keeps its rank among all
			got = append(got, fmt.Sprint(p.Name, " ", g.Ranks[i]))
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("target %d: members and ranks (-want +got):\n%s", g.Workers, diff)
		}
	}
	check("train-0 0", "train-1 1", "train-5 5")
	w.setTarget(t, "train", Label, 2)
	check("train-1 1", "train-5 5")
	w.setTarget(t, "train", Label, 4)
	check("train-0 0", "train-1 1", "train-2 2", "train-5 5")
}

// If a controller numbers the members, none that the target holds back stands in for one that is gone: the gang waits for that
// one. Once it is back, or the target lets the others in, the gang is whole.
func TestHeldMembersDoNotStandIn(t *testing.T) {
	w := newElasticWorld()
	w.setTarget(t, "train", Label, 2)
	all := elasticPods("train", "2-8", 4)
	for i := range all {
		all[i] = with(all[i].(*v1.Pod), func(p *v1.Pod) { p.Labels["training.kubeflow.org/replica-index"] = fmt.Sprint(i) })
	}
	w.put(t, all...)
	check := func(want string) {
		t.Helper()
		if got := said(w.world, train); got != want {
			t.Errorf("%s, want %s", got, want)
		}
	}
	check("2 of [train-0 train-1]")
	w.drop(t, pod("train-1"))
	check("2 of [train-0], waits: 1 of 2 members exist, besides 2 that the target holds back")
	w.setTarget(t, "train", Label, 3)
	check("2 of [train-0 train-2]")
	w.setTarget(t, "train", Label, 2)
	w.put(t, all[1])
	check("2 of [train-0 train-1]")
}

// A gang that is not elastic does not go by a target.
func TestRigidGang(t *testing.T) {
	w := newElasticWorld()
	w.setTarget(t, "train", Label, 2)
	w.put(t, labelled("a", "train", "2"), labelled("b", "train", "2"), labelled("c", "train", "2"))
	g, err := w.Gang(train)
	must.OK(t, err)
	if len(g.Members) != 3 || g.Sizes != nil || g.Workers != 0 || g.Targeted || len(g.Held()) > 0 || g.HeldBack("uid-c") != "" {
		t.Errorf("%+v", g)
	}
}

// Elastic lists the elastic gangs in order, each of them as long as it has members.
func TestElastic(t *testing.T) {
	w := newElasticWorld()
	w.put(t, elasticPods("z", "2-4", 2)...)
	w.put(t, elasticPods("a", "2-4", 1)...) // the second member is still missing
	w.put(t, elasticPods("wrong", "4-2", 2)...)
	w.put(t, labelled("rigid-0", "rigid", "1"))
	group := xk8sGang("m", 2)
	group.SetAnnotations(map[string]string{elasticWorkers: "2-4"})
	w.put(t, group, pod("m-0", groupLabel, "m"), pod("m-1", groupLabel, "m"))
	want := []Ref{{Source: Label, Namespace: "ns", Name: "a"}, {Source: Label, Namespace: "ns", Name: "z"}, {Source: XK8s, Namespace: "ns", Name: "m"}}
	if diff := cmp.Diff(want, w.Elastic()); diff != "" {
		t.Errorf("elastic gangs (-want +got):\n%s", diff)
	}
	w.drop(t, pod("z-0"), pod("z-1"))
	w.put(t, xk8sGang("m", 2)) // it is no longer elastic
	if diff := cmp.Diff(want[:1], w.Elastic()); diff != "" {
		t.Errorf("elastic gangs in the end (-want +got):\n%s", diff)
	}
}

// The listeners learn of each change of a target that makes a difference to a gang, and the set knows the change by then.
func TestTargetChanged(t *testing.T) {
	w := newElasticWorld()
	w.put(t, elasticPods("train", "2-8", 4)...)
	w.put(t, elasticPods("other", "2-8", 2)...)
	var notified []string
	w.OnChange(func(ref Ref) { notified = append(notified, fmt.Sprintf("%s: %s", ref, said(w.world, ref))) })
	step := func(name string, do func(), want ...string) {
		t.Helper()
		notified = nil
		do()
		if diff := cmp.Diff(want, notified); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
	}
	step("a target comes", func() { w.setTarget(t, "train", Label, 3) }, "ns/train: 2 of [train-0 train-1 train-2]")
	step("it grows", func() { w.setTarget(t, "train", Label, 8) }, "ns/train: 2 of [train-0 train-1 train-2 train-3]")
	step("it is that of another gang", func() { w.setTarget(t, "train", XK8s, 8) }, "ns/train: 2 of [train-0 train-1]")
	step("it is its own again", func() { w.setTarget(t, "train", Label, 3) }, "ns/train: 2 of [train-0 train-1 train-2]")
	step("it goes", func() { w.dropTarget(t, "train") }, "ns/train: 2 of [train-0 train-1]")
	step("a target of no gang", func() { w.setTarget(t, "nobody", Label, 3) })
}

// No ElasticTarget can have the name of such a gang.
func TestNameOfTarget(t *testing.T) {
	for name, legal := range map[string]bool{"train": true, "train.2": true, "Train": false, "train_2": false} {
		w := newElasticWorld()
		w.put(t, elasticPods(name, "2-8", 2)...)
		got := said(w.world, Ref{Source: Label, Namespace: "ns", Name: name})
		if want := "the gang is elastic, and no ElasticTarget can have its name " + name + ": "; strings.Contains(got, want) == legal {
			t.Errorf("gang %s: %s", name, got)
		}
		w = newElasticWorld()
		w.put(t, labelled("a", name, "1"))
		if got := said(w.world, Ref{Source: Label, Namespace: "ns", Name: name}); got != "1 of [a]" {
			t.Errorf("gang %s, which is not elastic: %s", name, got)
		}
	}
}

// No target can be made for a gang whose name is none of an object, so nobody asks for one.
func TestNameWithoutTarget(t *testing.T) {
	w := newElasticWorld()
	w.put(t, elasticPods("Train", "2-8", 2)...)
	if refs := w.Elastic(); len(refs) != 0 {
		t.Errorf("elastic gangs %v", refs)
	}
}
