package integration

import (
	"testing"

	schedulingv1 "k8s.io/api/scheduling/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/tandem-gpu/tandem/internal/sandbox"
	"github.com/tandem-gpu/tandem/pkg/api/v1alpha1"
)

// Pods whose latency only a profile explains come just before it: they wait no longer than the scheduler goes by what it knew.
func lateProfile(t *testing.T, c *gangCluster) {
	pods := []string{"chat-0", "chat-1", "chat-2"}
	for _, name := range pods {
		p := vgpuPod(name, 5) // half of a device, as the profile says
		p.Labels = map[string]string{v1alpha1.LabelProfile: "chat"}
		p.Annotations = map[string]string{v1alpha1.AnnotationMaxLatency: "40ms"}
		c.submit(t, p)
		c.awaitRefused(t, name, "has no latencies, or does not exist")
	}
	profile := &unstructured.Unstructured{Object: map[string]any{"spec": map[string]any{"throughputs": []any{
		map[string]any{"model": c.gpus[0].Status.Devices[0].Model, "sharePercent": int64(50), "latency": "40ms"},
	}}}}
	profile.SetGroupVersionKind(v1alpha1.GroupVersion.WithKind("WorkloadProfile"))
	profile.SetName("chat")
	if _, err := c.objects.Resource(v1alpha1.WorkloadProfiles).Namespace(c.namespace).Create(life(t), profile, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	for _, name := range pods {
		c.awaitPlace(t, name)
	}
}

// passing is a priority class between low and mid that is deleted while its pods run.
const passing = "test-passing"

// A pod of a class that does not exist is refused by the API server.
func classUnknown(t *testing.T, c *gangCluster) {
	p := patientPod("unknown", "no-such-class", "n0", 10)
	_, err := c.admin.CoreV1().Pods(c.namespace).Create(life(t), p, metav1.CreateOptions{})
	if !apierrors.IsForbidden(err) || !contains(err.Error(), "no PriorityClass with name no-such-class was found") {
		t.Errorf("the error is %v", err)
	}
}

// The class of a pod is deleted while it runs: the pod keeps the priority, below which nobody evicts it, and above which somebody
// does before one of a higher priority.
func classDeleted(t *testing.T, c *gangCluster) {
	c.passingClass(t)
	c.settle(t, "kept", passing, "n0", 10)
	c.deleteClass(t)
	c.settle(t, "other", mid, "n0", 10)
	c.probe(t, "below", low, "n0", 10)
	c.onlyThese(t)
	c.submit(t, patientPod("urgent", mid, "n0", 10))
	if victims := names(c.awaitLeaving(t, 1)); victims[0] != "kept-0" {
		t.Fatalf("pod %s leaves, want the one whose class is gone", victims[0])
	}
	c.finish(t, "kept-0")
	c.awaitPlace(t, "urgent")
	c.onlyThese(t)
}

// minimumRuntimes names a class that never was, which changes nothing, and one that is gone, whose pods it goes on to guard.
func minimumOfNoClass(t *testing.T, c *gangCluster) {
	c.restart(t, func(args map[string]any) {
		args["minimumRuntimes"] = []any{
			map[string]any{"priorityClassName": "no-such-class", "runtime": "1h"}, map[string]any{"priorityClassName": passing, "runtime": "1h"},
		}
	})
	c.passingClass(t)
	c.settle(t, "kept", passing, "n0", 10)
	c.deleteClass(t)
	c.settle(t, "other", mid, "n0", 10)
	c.submit(t, patientPod("urgent", high, "n0", 10))
	if victims := names(c.awaitLeaving(t, 1)); victims[0] != "other-0" {
		t.Fatalf("pod %s leaves, want the one without a minimum", victims[0])
	}
	c.finish(t, "other-0")
	c.awaitPlace(t, "urgent")
	c.submit(t, patientPod("next", high, "n0", 10))
	c.awaitRefused(t, "next", c.namespace+"/kept-0 has run for less than its minimum")
	c.onlyThese(t)
}

// passingClass makes a priority class that deleteClass, or the end of the test, takes away.
func (c *gangCluster) passingClass(t *testing.T) {
	t.Helper()
	class := &schedulingv1.PriorityClass{ObjectMeta: metav1.ObjectMeta{Name: passing}, Value: 50}
	sandbox.CreatePriorityClassForTest(life(t), t, c.admin, class)
}

func (c *gangCluster) deleteClass(t *testing.T) {
	t.Helper()
	if err := c.admin.SchedulingV1().PriorityClasses().Delete(life(t), passing, metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
}
