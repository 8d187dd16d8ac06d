package deploy

import (
	"context"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/tandem-gpu/tandem/pkg/api/v1alpha1"
	"github.com/tandem-gpu/tandem/test/must"
)

// container returns a container that asks for amounts of resources, given as name, quantity, name, quantity, …
func container(name string, amounts ...string) corev1.Container {
	limits := corev1.ResourceList{}
	for i := 0; i < len(amounts); i += 2 {
		limits[corev1.ResourceName(amounts[i])] = resource.MustParse(amounts[i+1])
	}
	return corev1.Container{Name: name, Image: "image", Resources: corev1.ResourceRequirements{Limits: limits}}
}

// pod returns a legal pod with three slots.
func pod(name string) *corev1.Pod {
	main := container("main", v1alpha1.ResourceVGPU, "3")
	main.Resources.Requests = corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("100m")}
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{GenerateName: name + "-", Namespace: team},
		Spec: corev1.PodSpec{
			SchedulerName: v1alpha1.SchedulerName,
			Containers:    []corev1.Container{main},
		},
	}
}

// create stores a pod and removes it after the test.
func create(ctx context.Context, t *testing.T, c kubernetes.Interface, p *corev1.Pod) *corev1.Pod {
	t.Helper()
	created, err := c.CoreV1().Pods(p.Namespace).Create(ctx, p, metav1.CreateOptions{})
	must.OK(t, err)
	t.Cleanup(func() {
		now := int64(0)
		options := metav1.DeleteOptions{GracePeriodSeconds: &now}
		if err := clientFor(t, cluster.Admin()).CoreV1().Pods(p.Namespace).
			Delete(context.WithoutCancel(ctx), created.Name, options); err != nil {
			t.Errorf("remove pod: %v", err)
		}
	})
	return created
}

// createOld stores a pod as if a policy that refuses it had not been there yet, and binds it to n1.
func createOld(t *testing.T, p *corev1.Pod, policy string) *corev1.Pod {
	t.Helper()
	c := client(t.Context(), t, admin)
	bindings := c.AdmissionregistrationV1().ValidatingAdmissionPolicyBindings()
	bound, err := bindings.Get(t.Context(), policy, metav1.GetOptions{})
	must.OK(t, err)
	refused := func(ctx context.Context) (bool, error) {
		_, err := c.CoreV1().Pods(p.Namespace).Create(ctx, p, dryRun)
		return err != nil, nil
	}
	must.OK(t, bindings.Delete(t.Context(), policy, metav1.DeleteOptions{}))
	await(t, policy+" is gone", func(ctx context.Context) (bool, error) {
		is, err := refused(ctx)
		return !is, err
	})
	stored := create(t.Context(), t, c, p)
	bound.ObjectMeta = metav1.ObjectMeta{Name: bound.Name, Labels: bound.Labels}
	if _, err := bindings.Create(t.Context(), bound, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	await(t, policy+" is back", refused)
	must.OK(t, client(t.Context(), t, scheduler).CoreV1().Pods(p.Namespace).Bind(t.Context(), binding(stored, ""), metav1.CreateOptions{}))
	return get(t.Context(), t, stored)
}

// binding returns a Binding of the pod to n1 that brings an assignment; "" for none.
func binding(p *corev1.Pod, assignment string) *corev1.Binding {
	b := &corev1.Binding{
		ObjectMeta: metav1.ObjectMeta{Name: p.Name, Namespace: p.Namespace, UID: p.UID},
		Target:     corev1.ObjectReference{Kind: "Node", Name: "n1"},
	}
	if assignment != "" {
		b.Annotations = map[string]string{v1alpha1.AnnotationAssignment: assignment}
	}
	return b
}

// createBound stores a pod and binds it to n1 as Tandem's scheduler does.
func createBound(ctx context.Context, t *testing.T, assignment string) *corev1.Pod {
	t.Helper()
	p := create(ctx, t, client(ctx, t, admin), pod("bound"))
	must.OK(t, client(ctx, t, scheduler).CoreV1().Pods(team).Bind(ctx, binding(p, assignment), metav1.CreateOptions{}))
	return get(ctx, t, p)
}

func get(ctx context.Context, t *testing.T, p *corev1.Pod) *corev1.Pod {
	t.Helper()
	stored, err := client(ctx, t, admin).CoreV1().Pods(p.Namespace).Get(ctx, p.Name, metav1.GetOptions{})
	must.OK(t, err)
	return stored
}

// annotate returns a copy of the pod with the assignment set, or removed when value is nil.
func annotate(p *corev1.Pod, value *string) *corev1.Pod {
	p = p.DeepCopy()
	delete(p.Annotations, v1alpha1.AnnotationAssignment)
	if value != nil {
		metav1.SetMetaDataAnnotation(&p.ObjectMeta, v1alpha1.AnnotationAssignment, *value)
	}
	return p
}
