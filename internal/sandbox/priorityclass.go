package sandbox

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	schedulingv1 "k8s.io/api/scheduling/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/kubernetes"
)

// admissionTimeout bounds the wait until the API server admits pods of a new class. It takes some milliseconds; only a hang
// takes so long.
const admissionTimeout = 5 * time.Minute

// CreatePriorityClass creates a class, and waits until the API server admits pods of it. Its admission reads classes from a
// cache, and forbids pods of a class that the cache lacks.
func CreatePriorityClass(ctx context.Context, client kubernetes.Interface, class *schedulingv1.PriorityClass) error {
	if _, err := client.SchedulingV1().PriorityClasses().Create(ctx, class, metav1.CreateOptions{}); err != nil {
		return err
	}
	pod := &v1.Pod{
		ObjectMeta: metav1.ObjectMeta{GenerateName: "class-"},
		Spec:       v1.PodSpec{PriorityClassName: class.Name, Containers: []v1.Container{{Name: "main", Image: "none"}}},
	}
	err := wait.PollUntilContextTimeout(ctx, 10*time.Millisecond, admissionTimeout, true, func(ctx context.Context) (bool, error) {
		_, err := client.CoreV1().Pods(metav1.NamespaceDefault).Create(ctx, pod, metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
		if apierrors.IsForbidden(err) && strings.Contains(err.Error(), class.Name) {
			return false, nil
		}
		return true, err
	})
	if err != nil {
		return fmt.Errorf("wait until pods of class %s are admitted: %w", class.Name, err)
	}
	return nil
}

// CreatePriorityClassForTest is CreatePriorityClass for tests.
func CreatePriorityClassForTest(ctx context.Context, t testing.TB, client kubernetes.Interface, class *schedulingv1.PriorityClass) {
	t.Helper()
	if err := CreatePriorityClass(ctx, client, class); err != nil {
		t.Fatal(err)
	}
}
