package deploy

import (
	"context"
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	schedulingv1 "k8s.io/api/scheduling/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/utils/ptr"

	"github.com/tandem-gpu/tandem/internal/sandbox"
	"github.com/tandem-gpu/tandem/pkg/api/v1alpha1"
)

// The rights of the account suffice for an eviction: it sees the budgets, says in the victim's status and in an event that it
// goes and for whom, deletes it, and notes the node for which the preemptor waits.
func TestSchedulerPreemptsUnderItsAccount(t *testing.T) {
	createOwnGPUNode(t, device("GPU-1"))
	createUrgent(t)
	createBudget(t)
	startScheduler(t)
	c := client(t.Context(), t, jane)
	whole := edit(func(s *corev1.PodSpec) {
		s.Containers[0].Resources.Limits[v1alpha1.ResourceVGPU] = resource.MustParse("10")
	})
	victim, err := c.CoreV1().Pods(team).Create(t.Context(), whole, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	awaitBound(t, victim)
	urgent := whole.DeepCopy()
	urgent.Spec.PriorityClassName = "urgent"
	urgent = create(t.Context(), t, c, urgent)

	await(t, "the victim is deleted and says why", func(ctx context.Context) (bool, error) {
		v := get(ctx, t, victim)
		told := slices.ContainsFunc(v.Status.Conditions, func(c corev1.PodCondition) bool {
			return c.Type == corev1.DisruptionTarget && c.Status == corev1.ConditionTrue && c.Reason == corev1.PodReasonPreemptionByScheduler
		})
		return v.DeletionTimestamp != nil && told, nil
	})
	await(t, "the preemptor has a node to wait for", func(ctx context.Context) (bool, error) {
		return get(ctx, t, urgent).Status.NominatedNodeName == "n1", nil
	})
	await(t, "an event says for whom", func(ctx context.Context) (bool, error) {
		events, err := client(ctx, t, admin).CoreV1().Events(team).List(ctx, metav1.ListOptions{FieldSelector: "involvedObject.name=" + victim.Name})
		if err != nil {
			return false, err
		}
		return slices.ContainsFunc(events.Items, func(e corev1.Event) bool { return e.Reason == "Preempted" }), nil
	})
	// The kubelet's part: the victim ends.
	err = client(t.Context(), t, admin).CoreV1().Pods(team).Delete(t.Context(), victim.Name, metav1.DeleteOptions{GracePeriodSeconds: ptr.To(int64(0))})
	if err != nil && !apierrors.IsNotFound(err) {
		t.Fatal(err)
	}
	if bound := awaitBound(t, urgent); bound.Annotations[v1alpha1.AnnotationAssignment] == "" {
		t.Error("the preemptor has no assignment")
	}
}

func await(t *testing.T, what string, done wait.ConditionWithContextFunc) {
	t.Helper()
	if err := wait.PollUntilContextTimeout(t.Context(), pollInterval, timeout, true, done); err != nil {
		t.Fatalf("wait until %s: %v", what, err)
	}
}

// createUrgent creates a priority class above all others until the test ends.
func createUrgent(t *testing.T) {
	t.Helper()
	c := client(t.Context(), t, admin)
	urgent := &schedulingv1.PriorityClass{ObjectMeta: metav1.ObjectMeta{Name: "urgent"}, Value: 1000}
	sandbox.CreatePriorityClassForTest(t.Context(), t, c, urgent)
	t.Cleanup(func() {
		if err := c.SchedulingV1().PriorityClasses().Delete(context.WithoutCancel(t.Context()), "urgent", metav1.DeleteOptions{}); err != nil {
			t.Error(err)
		}
	})
}

// createBudget creates a budget that allows nothing, of no pod that the test has.
func createBudget(t *testing.T) {
	t.Helper()
	budgets := client(t.Context(), t, admin).PolicyV1().PodDisruptionBudgets(team)
	budget := &policyv1.PodDisruptionBudget{ObjectMeta: metav1.ObjectMeta{Name: "others"}, Spec: policyv1.PodDisruptionBudgetSpec{
		MaxUnavailable: ptr.To(intstr.FromInt32(0)), Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": "other"}},
	}}
	if _, err := budgets.Create(t.Context(), budget, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := budgets.Delete(context.WithoutCancel(t.Context()), "others", metav1.DeleteOptions{}); err != nil {
			t.Error(err)
		}
	})
}
