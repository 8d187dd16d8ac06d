package integration

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/wait"

	"github.com/tandem-gpu/tandem/internal/cluster/membership"
	"github.com/tandem-gpu/tandem/internal/cluster/podgroup"
	"github.com/tandem-gpu/tandem/pkg/api/v1alpha1"
	"github.com/tandem-gpu/tandem/test/must"
)

// testGang is a gang of pods that are alike.
type testGang struct {
	name string
	// members that are made, of which min must run, and the slots that each asks for.
	members, min, slots int
	// required and preferred levels, "" for none.
	required, preferred string
	// class is the PriorityClass of the members, "" for none.
	class string
}

// life is a context that lasts while a test cleans up.
func life(t *testing.T) context.Context { return context.WithoutCancel(t.Context()) }

// await asks until the answer is yes, and fails with the last one. It also serves while a test cleans up.
func (c *gangCluster) await(t *testing.T, what string, ask func() (bool, string)) {
	t.Helper()
	if err := c.world.poll(t, ask); err != nil {
		t.Fatalf("waiting until %s: %v", what, err)
	}
}

// gangPoll is poll that also serves while a test cleans up.
func gangPoll(t *testing.T, what string, ask func() (bool, string)) {
	t.Helper()
	if err := pollByClock(life(t), ask); err != nil {
		t.Fatalf("waiting until %s: %v", what, err)
	}
}

// pollEvery is the time between two questions.
const pollEvery = 100 * time.Millisecond

// pollByClock asks until the answer is yes.
func pollByClock(ctx context.Context, ask func() (bool, string)) error {
	state := ""
	err := wait.PollUntilContextTimeout(ctx, pollEvery, patience, true, func(context.Context) (bool, error) {
		var ok bool
		ok, state = ask()
		return ok, nil
	})
	if err != nil {
		return fmt.Errorf("%w; %s", err, state)
	}
	return nil
}

// poll is await that tells at its end what was said. To ask for that each time would take longer than what is waited for.
func (c *gangCluster) poll(t *testing.T, what string, ask func() (bool, string)) {
	t.Helper()
	defer func() {
		if t.Failed() {
			t.Log(c.said(t))
		}
	}()
	c.await(t, what, ask)
}

// podGroups returns the resource that declares gangs, where one does.
func (c *gangCluster) podGroups() (schema.GroupVersionResource, bool) {
	switch c.source {
	case podgroup.Native:
		if c.stable && c.plane == nil { // the API server of a plane has v1beta1 behind its proxy
			return membership.StablePodGroups, true
		}
		return schema.GroupVersionResource{Group: "scheduling.k8s.io", Version: "v1beta1", Resource: "podgroups"}, true
	case podgroup.XK8s:
		return schema.GroupVersionResource{Group: "scheduling.x-k8s.io", Version: "v1alpha1", Resource: "podgroups"}, true
	}
	return schema.GroupVersionResource{}, false
}

// topology returns the annotations of the gang's wishes.
func (g testGang) topology() map[string]string {
	annotations := map[string]string{v1alpha1.AnnotationRequiredTopology: g.required, v1alpha1.AnnotationPreferredTopology: g.preferred}
	maps.DeleteFunc(annotations, func(_, value string) bool { return value == "" })
	return annotations
}

// create makes the gang and its members.
func (c *gangCluster) create(t *testing.T, g testGang) {
	t.Helper()
	c.createPodGroup(t, g)
	c.createMembers(t, g, 0, g.members)
}

func (c *gangCluster) createPodGroup(t *testing.T, g testGang) {
	t.Helper()
	kind, ok := c.podGroups()
	if !ok {
		return
	}
	object := &unstructured.Unstructured{Object: map[string]any{}}
	if c.source == podgroup.Native {
		spec := map[string]any{"schedulingPolicy": map[string]any{"gang": map[string]any{"minCount": int64(g.min)}}}
		if g.required != "" {
			spec["schedulingConstraints"] = map[string]any{"topology": []any{map[string]any{"key": g.required}}}
		}
		if g.class != "" {
			spec["priorityClassName"] = g.class
		}
		object.Object["spec"] = spec
	} else {
		object.Object["spec"] = map[string]any{"minMember": int64(g.min)}
		object.SetAnnotations(g.topology())
	}
	object.SetGroupVersionKind(kind.GroupVersion().WithKind("PodGroup"))
	object.SetName(g.name)
	if _, err := c.objects.Resource(kind).Namespace(c.namespace).Create(life(t), object, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
}

// createMembers makes the members from one index to before another, eight at a time.
func (c *gangCluster) createMembers(t *testing.T, g testGang, from, to int) {
	t.Helper()
	var wg sync.WaitGroup
	errs := make([]error, 8)
	for w := range errs {
		wg.Go(func() {
			for i := from + w; i < to && errs[w] == nil; i += len(errs) {
				_, errs[w] = c.admin.CoreV1().Pods(c.namespace).Create(life(t), c.member(g, i), metav1.CreateOptions{})
			}
		})
	}
	wg.Wait()
	for _, err := range errs {
		must.OK(t, err)
	}
}

// member returns a pod that declares its gang in the way of the mode alone.
func (c *gangCluster) member(g testGang, i int) *v1.Pod {
	p := vgpuPod(g.name+"-"+strconv.Itoa(i), g.slots)
	p.Spec.PriorityClassName = g.class
	switch c.source {
	case podgroup.Native:
		p.Spec.SchedulingGroup = &v1.PodSchedulingGroup{PodGroupName: &g.name}
		if g.preferred != "" { // a PodGroup of Kubernetes has no field for what is only preferred
			p.Annotations = map[string]string{v1alpha1.AnnotationPreferredTopology: g.preferred}
		}
	case podgroup.XK8s:
		p.Labels = map[string]string{xk8sLabel: g.name}
	default:
		p.Labels = map[string]string{v1alpha1.LabelGang: g.name}
		p.Annotations = g.topology()
		p.Annotations[v1alpha1.AnnotationMinMembers] = strconv.Itoa(g.min)
	}
	return p
}

// vgpuPod returns a pod of our scheduler that asks for slots, of the GPUs of ten.
func vgpuPod(name string, slots int) *v1.Pod {
	limits := v1.ResourceList{v1alpha1.ResourceVGPU: *resource.NewQuantity(int64(slots), resource.DecimalSI)}
	p := &v1.Pod{ObjectMeta: metav1.ObjectMeta{Name: name}}
	p.Spec.SchedulerName = v1alpha1.SchedulerName
	p.Spec.RestartPolicy = v1.RestartPolicyNever
	p.Spec.Containers = []v1.Container{{Name: "main", Image: "none", Resources: v1.ResourceRequirements{Limits: limits}}}
	return p
}

// createSingles makes pods that belong to no gang, and waits until they are bound.
func (c *gangCluster) createSingles(t *testing.T, name string, count, slots int, change func(*v1.Pod)) {
	t.Helper()
	for i := range count {
		p := vgpuPod(fmt.Sprintf("%s-%d", name, i), slots)
		p.Labels = map[string]string{"single": name}
		if change != nil {
			change(p)
		}
		if _, err := c.admin.CoreV1().Pods(c.namespace).Create(life(t), p, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	c.await(t, "the pods "+name+" are bound", func() (bool, string) {
		bound := 0
		for _, p := range c.pods(t) {
			if p.Labels["single"] == name && p.Spec.NodeName != "" {
				bound++
			}
		}
		return bound == count, fmt.Sprintf("%d of %d are", bound, count)
	})
}

func (c *gangCluster) pods(t *testing.T) []v1.Pod {
	t.Helper()
	list, err := c.admin.CoreV1().Pods(c.namespace).List(life(t), metav1.ListOptions{})
	must.OK(t, err)
	return list.Items
}

// members returns the pods of a gang that exist, by name.
func (c *gangCluster) members(t *testing.T, gang string) []v1.Pod {
	t.Helper()
	return slices.DeleteFunc(c.pods(t), func(p v1.Pod) bool {
		ref, ok := gangOf(&p)
		return !ok || ref.Name != gang
	})
}

// nodesOf returns the nodes of the members of a gang, "" where one waits.
func (c *gangCluster) nodesOf(t *testing.T, gang string) []string {
	t.Helper()
	var nodes []string
	for _, p := range c.members(t, gang) {
		nodes = append(nodes, p.Spec.NodeName)
	}
	return nodes
}

func placed(nodes []string) int {
	return len(nodes) - len(slices.DeleteFunc(slices.Clone(nodes), func(n string) bool { return n != "" }))
}

// awaitGang waits until so many members of a gang are bound, and returns their nodes by name of the member.
func (c *gangCluster) awaitGang(t *testing.T, gang string, count int) []string {
	t.Helper()
	var nodes []string
	c.poll(t, fmt.Sprintf("%d members of gang %s are bound", count, gang), func() (bool, string) {
		nodes = c.nodesOf(t, gang)
		return placed(nodes) >= count, fmt.Sprintf("%d of %d are", placed(nodes), len(nodes))
	})
	return nodes
}

// awaitSaid waits until one event of the namespace, or one condition of a pod, holds all texts.
func (c *gangCluster) awaitSaid(t *testing.T, texts ...string) {
	t.Helper()
	c.poll(t, fmt.Sprintf("somebody says %q", texts), func() (bool, string) { return c.says(t, texts...), "" })
}

// says tells whether one event of the namespace, or one condition of a pod, holds all texts.
func (c *gangCluster) says(t *testing.T, texts ...string) bool {
	t.Helper()
	return slices.ContainsFunc(c.notes(t), func(note string) bool { return contains(note, texts...) })
}

// notes are what the events and conditions of the namespace say, and the events that the API server did not take, without repetition.
func (c *gangCluster) notes(t *testing.T) []string {
	t.Helper()
	events, err := c.admin.EventsV1().Events(c.namespace).List(life(t), metav1.ListOptions{})
	must.OK(t, err)
	var notes []string
	for i := range events.Items {
		if events.Items[i].Reason != "Scheduled" {
			notes = append(notes, events.Items[i].Note)
		}
	}
	for _, e := range c.rejected(t, c.namespace) {
		notes = append(notes, e.note)
	}
	for _, p := range c.pods(t) {
		for _, condition := range p.Status.Conditions {
			if condition.Message != "" {
				notes = append(notes, condition.Message)
			}
		}
	}
	slices.Sort(notes)
	return slices.Compact(notes)
}

func (c *gangCluster) said(t *testing.T) string {
	t.Helper()
	notes := c.notes(t)
	return "what was said:\n" + strings.Join(notes[:min(len(notes), 10)], "\n")
}

// deletePods ends the pods of a gang, "" for all of the namespace, and waits until they are gone.
func (c *gangCluster) deletePods(t *testing.T, gang string) {
	t.Helper()
	c.await(t, "the pods of gang "+gang+" are gone", func() (bool, string) {
		if gang == "" {
			err := c.deleteAllPods(t)
			left := len(c.pods(t))
			return left == 0, fmt.Sprintf("%d are left; the last request: %v", left, err)
		}
		pods := c.members(t, gang)
		for i := range pods {
			c.deletePod(t, pods[i].Name)
		}
		return len(pods) == 0, fmt.Sprintf("%d are left", len(pods))
	})
}

// deleteAllPods deletes the pods of the namespace. The API server ends a request after a minute, in which a slow machine does not delete hundreds of pods.
// It then answers in several ways, or not at all. The caller tries again until no pod is left.
func (c *gangCluster) deleteAllPods(t *testing.T) error {
	t.Helper()
	now := metav1.DeleteOptions{GracePeriodSeconds: new(int64(0))}
	return c.admin.CoreV1().Pods(c.namespace).DeleteCollection(life(t), now, metav1.ListOptions{})
}

func (c *gangCluster) deletePod(t *testing.T, name string) {
	t.Helper()
	now := metav1.DeleteOptions{GracePeriodSeconds: new(int64(0))}
	if err := c.admin.CoreV1().Pods(c.namespace).Delete(life(t), name, now); err != nil && !apierrors.IsNotFound(err) {
		t.Fatal(err)
	}
}
