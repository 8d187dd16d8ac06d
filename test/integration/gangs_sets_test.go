package integration

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/tandem-gpu/tandem/internal/cluster/podgroup"
	"github.com/tandem-gpu/tandem/pkg/api/v1alpha1"
	"github.com/tandem-gpu/tandem/test/must"
)

// runReadyKubelets runs kubelets until the test ends, whose pods are ready as soon as they run: a StatefulSet counts those.
func runReadyKubelets(t *testing.T, c *gangCluster) {
	t.Helper()
	c.startKubelets(t)
	c.withPods(t, func(ctx context.Context, p *v1.Pod) {
		ready := slices.ContainsFunc(p.Status.Conditions, func(c v1.PodCondition) bool { return c.Type == v1.PodReady && c.Status == v1.ConditionTrue })
		if runs(p) && !ready {
			patch := []byte(`{"status":{"conditions":[{"type":"Ready","status":"True"}]}}`)
			_, _ = c.admin.CoreV1().Pods(p.Namespace).Patch(ctx, p.Name, types.StrategicMergePatchType, patch, metav1.PatchOptions{}, "status")
		}
	})
}

func (c *gangCluster) patchStatus(t *testing.T, pod, patch string) {
	t.Helper()
	_, err := c.admin.CoreV1().Pods(c.namespace).Patch(t.Context(), pod, types.StrategicMergePatchType, []byte(patch), metav1.PatchOptions{}, "status")
	must.OK(t, err)
}

// loseNode takes a node away, with its GPUs and its pods. It comes back when the function that loseNode returns is called, at the latest when
// the play ends.
func (c *gangCluster) loseNode(t *testing.T, name string) (comeBack func()) {
	t.Helper()
	must.OK(t, c.admin.CoreV1().Nodes().Delete(t.Context(), name, metav1.DeleteOptions{}))
	must.OK(t, c.objects.Resource(v1alpha1.GPUNodes).Delete(t.Context(), name, metav1.DeleteOptions{}))
	for _, p := range c.boundPods(t) {
		if p.Spec.NodeName == name {
			c.deletePod(t, p.Name)
		}
	}
	comeBack = sync.OnceFunc(func() {
		at := slices.IndexFunc(c.gpus, func(g *v1alpha1.GPUNode) bool { return g.Name == name })
		createNode(t, c.api, c.gpus[at])
		c.label(t, name, fmt.Sprintf("r%d", at/2))
	})
	t.Cleanup(comeBack)
	return comeBack
}

// createSet makes a StatefulSet of two pods that are a gang, both named web, until the play ends.
func (c *gangCluster) createSet(t *testing.T, policy appsv1.PodManagementPolicyType) {
	t.Helper()
	pod := c.member(testGang{name: "web", min: 2, slots: 10}, 0)
	pod.Labels["app"] = "web"
	pod.Spec.RestartPolicy, pod.Spec.TerminationGracePeriodSeconds = v1.RestartPolicyAlways, new(int64(1))
	_, err := c.admin.AppsV1().StatefulSets(c.namespace).Create(t.Context(), &appsv1.StatefulSet{
		ObjectMeta: metav1.ObjectMeta{Name: "web"},
		Spec: appsv1.StatefulSetSpec{
			Replicas: new(int32(2)), PodManagementPolicy: policy, Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": "web"}},
			RevisionHistoryLimit: new(int32(2)), UpdateStrategy: appsv1.StatefulSetUpdateStrategy{
				Type: appsv1.RollingUpdateStatefulSetStrategyType, RollingUpdate: &appsv1.RollingUpdateStatefulSetStrategy{Partition: new(int32(0))},
			},
			Template: v1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: pod.Labels, Annotations: pod.Annotations}, Spec: pod.Spec},
		},
	}, metav1.CreateOptions{})
	must.OK(t, err)
	t.Cleanup(func() { // the controller of a later play would make its pods again
		must.OK(t, c.admin.AppsV1().StatefulSets(c.namespace).DeleteCollection(life(t), metav1.DeleteOptions{}, metav1.ListOptions{}))
	})
}

// orderedMembers: a StatefulSet waits with its second pod for the first one, which waits for its gang. The message names the remedy, which helps.
func orderedMembers(t *testing.T, c *gangCluster) {
	c.startStatefulSets(t)
	c.createPodGroup(t, testGang{name: "web", min: 2})
	c.createSet(t, appsv1.OrderedReadyPodManagement)
	c.awaitSaid(t, "1 of 2 members exist; StatefulSet web makes the next one when the last one is ready: make it anew with podManagementPolicy Parallel")
	must.OK(t, c.admin.AppsV1().StatefulSets(c.namespace).Delete(t.Context(), "web", metav1.DeleteOptions{}))
	c.deletePods(t, "web")
	c.createSet(t, appsv1.ParallelPodManagement)
	c.awaitEachRuns(t, 2)
}

// unlikeRevisions: the first pod of a new revision differs from the one that runs. The message names the field and the remedy, which helps.
func unlikeRevisions(t *testing.T, c *gangCluster) {
	c.startStatefulSets(t)
	c.createPodGroup(t, testGang{name: "web", min: 2})
	c.createSet(t, appsv1.ParallelPodManagement)
	c.poll(t, "the StatefulSet knows that its pods are ready", func() (bool, string) { // it replaces others all at once
		set, err := c.admin.AppsV1().StatefulSets(c.namespace).Get(t.Context(), "web", metav1.GetOptions{})
		must.OK(t, err)
		return set.Status.ReadyReplicas == 2, fmt.Sprintf("%+v", set.Status)
	})
	field, change := "spec.priority: 0", fmt.Sprintf(`{"spec":{"priorityClassName":%q}}`, mid)
	if c.source == podgroup.Label {
		field, change = "metadata.annotations["+v1alpha1.AnnotationMinMembers+`]: "2"`, fmt.Sprintf(`{"metadata":{"annotations":{%q:"1"}}}`, v1alpha1.AnnotationMinMembers)
	}
	patch := fmt.Appendf(nil, `{"spec":{"template":%s}}`, change)
	_, err := c.admin.AppsV1().StatefulSets(c.namespace).Patch(t.Context(), "web", types.StrategicMergePatchType, patch, metav1.PatchOptions{})
	must.OK(t, err)
	c.awaitSaid(t, "the members differ in "+field+" of pod web-0", "a rolling update cannot change it, delete the pods of the revision before, or change it back")
	c.deletePod(t, "web-0")
	c.awaitEachRuns(t, 2)
}
