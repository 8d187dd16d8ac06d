package deploy

import (
	"context"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/kubernetes"

	"github.com/tandem-gpu/tandem/pkg/api/v1alpha1"
	"github.com/tandem-gpu/tandem/test/must"
)

// injected is the namespace whose pods are given a scheduler.
const injected = "injected"

// schedulerName is the component that sets the name of the scheduler.
const schedulerName = "scheduler-name"

// serves reports whether the API server has MutatingAdmissionPolicies in v1, as those of 1.36 and later do.
func serves(t *testing.T, c discovery.DiscoveryInterface) bool {
	t.Helper()
	list, err := c.ServerResourcesForGroupVersion("admissionregistration.k8s.io/v1")
	must.OK(t, err)
	for _, r := range list.APIResources {
		if r.Kind == "MutatingAdmissionPolicy" {
			return true
		}
	}
	return false
}

// named creates a pod on trial and returns the scheduler that it has then.
func named(ctx context.Context, c kubernetes.Interface, p *corev1.Pod) (string, error) {
	created, err := c.CoreV1().Pods(p.Namespace).Create(ctx, p, dryRun)
	if err != nil {
		return "", err
	}
	return created.Spec.SchedulerName, nil
}

// The component names Tandem's scheduler for pods that ask for vGPUs and name none, in labelled namespaces, and for no others. An older
// API server refuses the component.
func TestSchedulerName(t *testing.T) {
	admin := clientFor(t, cluster.Admin())
	manifests := build(t, "components: [DEPLOY/components/"+schedulerName+"]\n")
	if !serves(t, admin.Discovery()) {
		if err := cluster.Apply(t.Context(), manifests); err == nil || !strings.Contains(err.Error(), "MutatingAdmissionPolicy") {
			t.Errorf("error %v, want one that names MutatingAdmissionPolicy", err)
		}
		return
	}
	must.OK(t, cluster.Apply(t.Context(), manifests))
	namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: injected, Labels: map[string]string{"tandem-gpu.io/scheduler-name": "inject"}}}
	if _, err := admin.CoreV1().Namespaces().Create(t.Context(), namespace, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	// The API server enforces policies some time after they were made.
	err := wait.PollUntilContextTimeout(t.Context(), pollInterval, timeout, true, func(ctx context.Context) (bool, error) {
		name, err := named(ctx, admin, schedulerless(injected))
		return err == nil && name == v1alpha1.SchedulerName, nil
	})
	if err != nil {
		t.Fatalf("wait until the policy is enforced: %v", err)
	}
	for name, c := range map[string]struct {
		change func(*corev1.Pod)
		// want is the scheduler; refused is what the refusal says instead.
		want, refused string
	}{
		"the cluster's own": {change: func(p *corev1.Pod) { p.Spec.SchedulerName = corev1.DefaultSchedulerName }, want: v1alpha1.SchedulerName},
		"an init container asks": {change: func(p *corev1.Pod) {
			p.Spec.Containers[0].Resources = corev1.ResourceRequirements{}
			p.Spec.InitContainers = []corev1.Container{container("first", v1alpha1.ResourceVGPU, "3")}
		}, want: v1alpha1.SchedulerName},
		"without vGPUs":       {change: func(p *corev1.Pod) { p.Spec.Containers[0].Resources = corev1.ResourceRequirements{} }, want: corev1.DefaultSchedulerName},
		"another scheduler":   {change: func(p *corev1.Pod) { p.Spec.SchedulerName = "mine" }, refused: "tandem-scheduler"},
		"on a node":           {change: func(p *corev1.Pod) { p.Spec.NodeName = "n1" }, refused: "tandem-scheduler"},
		"another namespace":   {change: func(p *corev1.Pod) { p.Namespace = team }, refused: "tandem-scheduler"},
		"without any change":  {change: func(*corev1.Pod) {}, want: v1alpha1.SchedulerName},
		"too many containers": {change: manyContainers, refused: "128"},
	} {
		t.Run(name, func(t *testing.T) {
			p := schedulerless(injected)
			c.change(p)
			got, err := named(t.Context(), admin, p)
			switch {
			case c.refused == "" && (err != nil || got != c.want):
				t.Errorf("the scheduler is %q, error %v; want %s", got, err, c.want)
			case c.refused != "" && (err == nil || !strings.Contains(err.Error(), c.refused)):
				t.Errorf("the scheduler is %q, error %v; want a refusal that says %s", got, err, c.refused)
			}
		})
	}
}

// schedulerless is a pod with vGPUs that names no scheduler.
func schedulerless(namespace string) *corev1.Pod {
	p := pod("unnamed")
	p.Namespace, p.Spec.SchedulerName = namespace, ""
	return p
}

func manyContainers(p *corev1.Pod) {
	for range 128 {
		c := p.Spec.Containers[0]
		c.Name = "c" + string(rune('a'+len(p.Spec.Containers)/26)) + string(rune('a'+len(p.Spec.Containers)%26))
		p.Spec.Containers = append(p.Spec.Containers, c)
	}
}
