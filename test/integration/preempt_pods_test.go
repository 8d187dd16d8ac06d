package integration

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/tools/cache"
	toolswatch "k8s.io/client-go/tools/watch"

	"github.com/tandem-gpu/tandem/internal/cluster/kube"
	"github.com/tandem-gpu/tandem/pkg/api/v1alpha1"
	"github.com/tandem-gpu/tandem/test/must"
)

// patientPod returns a pod of a priority class for one node, "" for any, which takes its time to end.
func patientPod(name, class, node string, slots int) *v1.Pod {
	p := vgpuPod(name, slots)
	p.Spec.PriorityClassName = class
	p.Spec.TerminationGracePeriodSeconds = new(int64(600))
	if node != "" {
		on(node)(p)
	}
	return p
}

func (c *gangCluster) submit(t *testing.T, p *v1.Pod) {
	t.Helper()
	if _, err := c.admin.CoreV1().Pods(c.namespace).Create(life(t), p, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
}

// settle makes pods of one class on a node, "" for any, that ask for so many slots, and waits until they are bound. Their names
// are name-0, name-1, ….
func (c *gangCluster) settle(t *testing.T, name, class, node string, slots ...int) {
	t.Helper()
	for i, k := range slots {
		pod := fmt.Sprintf("%s-%d", name, i)
		c.submit(t, patientPod(pod, class, node, k))
		c.awaitPlace(t, pod)
	}
}

// fill settles pods of one whole GPU each until a node is full.
func (c *gangCluster) fill(t *testing.T, name, class, node string) {
	t.Helper()
	for _, g := range c.gpus {
		if g.Name == node {
			c.settle(t, name, class, node, slices.Repeat([]int{10}, len(g.Status.Devices))...)
		}
	}
}

func (c *gangCluster) pod(t *testing.T, name string) *v1.Pod {
	t.Helper()
	p, err := c.admin.CoreV1().Pods(c.namespace).Get(life(t), name, metav1.GetOptions{})
	must.OK(t, err)
	return p
}

// place is where a pod is.
type place struct {
	node    string
	devices []string
}

// awaitPlace waits until a pod is bound.
func (c *gangCluster) awaitPlace(t *testing.T, name string) place {
	t.Helper()
	var p *v1.Pod
	c.poll(t, "pod "+name+" is bound", func() (bool, string) {
		p = c.pod(t, name)
		return p.Spec.NodeName != "", ""
	})
	return placeOf(t, p)
}

func placeOf(t *testing.T, p *v1.Pod) place {
	t.Helper()
	at := place{node: p.Spec.NodeName}
	if !kube.WantsVGPU(p) {
		return at
	}
	a, err := kube.DecodeAssignment(p.Annotations[v1alpha1.AnnotationAssignment])
	must.OK(t, err)
	for _, container := range a.Containers {
		at.devices = append(at.devices, container.Devices...)
	}
	return at
}

// leaving returns the pods that were asked to leave and have not ended, by name.
func (c *gangCluster) leaving(t *testing.T) []v1.Pod {
	t.Helper()
	return slices.DeleteFunc(c.pods(t), func(p v1.Pod) bool { return p.DeletionTimestamp == nil })
}

// awaitLeaving waits until so many pods were asked to leave, and fails where there are more. All of them have the condition by
// which their owners tell preemption from failure.
func (c *gangCluster) awaitLeaving(t *testing.T, count int) []v1.Pod {
	t.Helper()
	var pods []v1.Pod
	c.poll(t, fmt.Sprintf("%d pods leave", count), func() (bool, string) {
		pods = c.leaving(t)
		return len(pods) >= count, fmt.Sprintf("%v do", names(pods))
	})
	if len(pods) > count {
		t.Fatalf("pods %v leave, want %d", names(pods), count)
	}
	for i := range pods {
		if !slices.ContainsFunc(pods[i].Status.Conditions, func(c v1.PodCondition) bool {
			return c.Type == v1.DisruptionTarget && c.Status == v1.ConditionTrue && c.Reason == v1.PodReasonPreemptionByScheduler
		}) {
			t.Errorf("pod %s leaves without the condition DisruptionTarget: %v", pods[i].Name, pods[i].Status.Conditions)
		}
	}
	return pods
}

// onlyThese fails where pods were asked to leave beside those.
func (c *gangCluster) onlyThese(t *testing.T, want ...string) {
	t.Helper()
	if got := names(c.leaving(t)); !slices.Equal(got, want) {
		t.Errorf("pods %v leave, want %v", got, want)
	}
}

// finish ends pods as their kubelets would, and waits until they are gone.
func (c *gangCluster) finish(t *testing.T, pods ...string) {
	t.Helper()
	for _, name := range pods {
		c.deletePod(t, name)
	}
	c.await(t, fmt.Sprintf("pods %v are gone", pods), func() (bool, string) {
		left := slices.DeleteFunc(names(c.pods(t)), func(name string) bool { return !slices.Contains(pods, name) })
		return len(left) == 0, fmt.Sprintf("%v are left", left)
	})
}

// awaitRefused waits until the scheduler has refused a pod with all texts.
func (c *gangCluster) awaitRefused(t *testing.T, name string, texts ...string) {
	t.Helper()
	c.await(t, fmt.Sprintf("pod %s is refused with %q", name, texts), func() (bool, string) {
		p := c.pod(t, name)
		if p.Spec.NodeName != "" {
			t.Fatalf("pod %s is on node %s", name, p.Spec.NodeName)
		}
		said := refusal(p)
		return said != "" && contains(said, texts...), said
	})
}

// watchRefusals follows a pod that is made after the call. The function that it returns waits until the scheduler has refused the pod
// with all texts at any of its attempts. A later attempt may replace a message within milliseconds, so awaitRefused may not see it.
func (c *gangCluster) watchRefusals(t *testing.T, name string) func(texts ...string) {
	t.Helper()
	pods := c.admin.CoreV1().Pods(c.namespace)
	list, err := pods.List(life(t), metav1.ListOptions{})
	must.OK(t, err)
	w, err := toolswatch.NewRetryWatcherWithContext(life(t), list.ResourceVersion, &cache.ListWatch{
		WatchFuncWithContext: func(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) {
			o.FieldSelector = "metadata.name=" + name
			return pods.Watch(ctx, o)
		},
	})
	must.OK(t, err)
	t.Cleanup(w.Stop)
	return func(texts ...string) {
		t.Helper()
		said := []string{}
		hangs := time.After(patience)
		for {
			select {
			case e, ok := <-w.ResultChan():
				p, isPod := e.Object.(*v1.Pod)
				if !ok || !isPod {
					t.Fatalf("the watch of pod %s ended: %v", name, e.Object)
				}
				text := refusal(p)
				if text != "" && contains(text, texts...) {
					return
				}
				said = append(said, text)
			case <-hangs:
				t.Fatalf("waiting until pod %s is refused with %q; it was refused with %q", name, texts, said)
			}
		}
	}
}

// refusal returns why the scheduler refused a pod, "" where it did not.
func refusal(p *v1.Pod) string {
	for _, condition := range p.Status.Conditions {
		if condition.Type == v1.PodScheduled && condition.Status == v1.ConditionFalse {
			return condition.Message
		}
	}
	return ""
}

// waits fails where a pod has a node.
func (c *gangCluster) waits(t *testing.T, name string) {
	t.Helper()
	if node := c.pod(t, name).Spec.NodeName; node != "" {
		t.Errorf("pod %s is on node %s, and should wait", name, node)
	}
}

// probe makes a pod that finds no room. When it is refused, the scheduler has seen all that was before.
func (c *gangCluster) probe(t *testing.T, name, class, node string, slots int) {
	t.Helper()
	c.submit(t, patientPod(name, class, node, slots))
	c.awaitRefused(t, name)
}

// budget makes a PodDisruptionBudget for the pods with a label that allows so many evictions: its controller does not run here.
func (c *gangCluster) budget(t *testing.T, name string, allowed int32) {
	t.Helper()
	budgets := c.admin.PolicyV1().PodDisruptionBudgets(c.namespace)
	b := &policyv1.PodDisruptionBudget{ObjectMeta: metav1.ObjectMeta{Name: name}}
	b.Spec.Selector = &metav1.LabelSelector{MatchLabels: map[string]string{"app": name}}
	b, err := budgets.Create(life(t), b, metav1.CreateOptions{})
	must.OK(t, err)
	c.allow(t, b, allowed)
}

// allow has a PodDisruptionBudget allow so many evictions.
func (c *gangCluster) allow(t *testing.T, b *policyv1.PodDisruptionBudget, allowed int32) {
	t.Helper()
	b.Status.DisruptionsAllowed, b.Status.ObservedGeneration = allowed, b.Generation
	if _, err := c.admin.PolicyV1().PodDisruptionBudgets(c.namespace).UpdateStatus(life(t), b, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
}

// guarded is patientPod under a budget.
func guarded(name, class, node string, slots int, budget string) *v1.Pod {
	p := patientPod(name, class, node, slots)
	p.Labels = map[string]string{"app": budget}
	return p
}

// restart starts the scheduler anew with other arguments of GPUPreempt, and as before when the test ends.
func (c *gangCluster) restart(t *testing.T, change func(args map[string]any)) {
	t.Helper()
	c.scheduler.Stop(0)
	c.preempt = change
	c.startScheduler(t)
	t.Cleanup(func() {
		c.scheduler.Stop(0)
		c.preempt = nil
		c.startScheduler(t)
	})
}

// names returns the names of pods, sorted.
func names(pods []v1.Pod) []string {
	var all []string
	for i := range pods {
		all = append(all, pods[i].Name)
	}
	slices.Sort(all)
	return all
}

// boundPods returns the pods that have a node.
func (c *gangCluster) boundPods(t *testing.T) []v1.Pod {
	t.Helper()
	return slices.DeleteFunc(c.pods(t), func(p v1.Pod) bool { return p.Spec.NodeName == "" })
}

func contains(text string, parts ...string) bool {
	return !slices.ContainsFunc(parts, func(part string) bool { return !strings.Contains(text, part) })
}
