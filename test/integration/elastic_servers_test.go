package integration

import (
	"fmt"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"

	"github.com/tandem-gpu/tandem/pkg/api/v1alpha1"
)

// statesRate: four members with one server have a rate of 90, with two servers 170; eight members with one server have 180.
// The job wants 85, then 160, then 85 again: its members keep their number, and the StatefulSet of its servers is scaled from
// 1 to 2 and back while they run.
func statesRate(t *testing.T, c *gangCluster) {
	sizes := &unstructured.Unstructured{Object: map[string]any{"spec": map[string]any{"scaling": map[string]any{"resizeTime": "0s", "rates": []any{
		scalingRate(2, 1, "50"), scalingRate(4, 1, "90"), scalingRate(4, 2, "170"), scalingRate(8, 1, "180"),
	}}}}}
	sizes.SetGroupVersionKind(v1alpha1.GroupVersion.WithKind("WorkloadProfile"))
	sizes.SetName("sizes")
	if _, err := c.objects.Resource(v1alpha1.WorkloadProfiles).Namespace(c.namespace).Create(t.Context(), sizes, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	c.createServers(t, "ps")
	job := c.elasticJob("train", 10, 8)
	job.Spec.Template.Labels[v1alpha1.LabelProfile] = "sizes"
	job.Spec.Template.Annotations[v1alpha1.AnnotationElasticRate] = "85"
	job.Spec.Template.Annotations[v1alpha1.AnnotationElasticServers] = "statefulset/ps 1-4"
	c.startJob(t, job)
	c.awaitWorkers(t, "train", 4)
	c.awaitServers(t, "train", "ps", 1)

	c.wantRate(t, "train", "160")
	c.awaitServers(t, "train", "ps", 2)
	c.awaitSaid(t, "the servers of StatefulSet ps grow from 1 to 2: the rate 160 is wanted, and 4 members with 2 servers have the known rate 170 at the lowest cost")

	c.wantRate(t, "train", "85")
	c.awaitServers(t, "train", "ps", 1)
	c.awaitSaid(t, "the servers of StatefulSet ps shrink from 2 to 1")
	c.awaitWorkers(t, "train", 4)
	c.checkJob(t, "train")
	for _, p := range c.members(t, "train") {
		if p.DeletionTimestamp != nil || p.Annotations[v1alpha1.AnnotationLeaving] != "" {
			t.Errorf("member %s was told to leave", p.Name)
		}
	}
}

func scalingRate(workers, servers int64, rate string) map[string]any {
	return map[string]any{"workers": workers, "servers": servers, "rate": rate}
}

// createServers makes a StatefulSet of one server, which no scheduler places: its number is what counts here.
func (c *gangCluster) createServers(t *testing.T, name string) {
	t.Helper()
	labels := map[string]string{"app": name}
	set := &appsv1.StatefulSet{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{v1alpha1.LabelGang: "train"}}, Spec: appsv1.StatefulSetSpec{
		Replicas: new(int32(1)), Selector: &metav1.LabelSelector{MatchLabels: labels},
		Template: v1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: labels}, Spec: v1.PodSpec{
			SchedulerName: "nobody", Containers: []v1.Container{{Name: "server", Image: "server"}},
		}},
	}}
	if _, err := c.admin.AppsV1().StatefulSets(c.namespace).Create(t.Context(), set, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := c.admin.AppsV1().StatefulSets(c.namespace).Delete(life(t), name, metav1.DeleteOptions{}); err != nil {
			t.Error(err)
		}
	})
}

// wantRate has all members of a gang state a rate.
func (c *gangCluster) wantRate(t *testing.T, gang, rate string) {
	t.Helper()
	// A member that its Job makes anew later would state the rate of the template. On a busy machine the controller may have read the
	// pods before their servers, and let members leave once it knew these.
	c.poll(t, "all 8 members of "+gang+" are there", func() (bool, string) {
		there := 0
		for _, p := range c.members(t, gang) {
			if p.DeletionTimestamp == nil && p.Status.Phase != v1.PodFailed && p.Annotations[v1alpha1.AnnotationLeaving] == "" {
				there++
			}
		}
		return there == 8, c.phases(t, gang)
	})
	for _, p := range c.members(t, gang) {
		if p.DeletionTimestamp != nil || p.Status.Phase == v1.PodFailed {
			continue
		}
		patch := fmt.Appendf(nil, `{"metadata":{"annotations":{%q:%q}}}`, v1alpha1.AnnotationElasticRate, rate)
		if _, err := c.admin.CoreV1().Pods(c.namespace).Patch(t.Context(), p.Name, types.MergePatchType, patch, metav1.PatchOptions{}); err != nil {
			t.Fatal(err)
		}
	}
}

// awaitServers waits until a StatefulSet should have so many servers, and the target of the gang says so.
func (c *gangCluster) awaitServers(t *testing.T, gang, name string, count int32) {
	t.Helper()
	c.poll(t, fmt.Sprintf("StatefulSet %s has %d servers", name, count), func() (bool, string) {
		set, err := c.admin.AppsV1().StatefulSets(c.namespace).Get(life(t), name, metav1.GetOptions{})
		if err != nil {
			t.Fatal(err)
		}
		target := c.target(t, gang)
		tuned := target.Status.Tuning != nil && target.Status.Tuning.Servers != nil && *target.Status.Tuning.Servers == count
		return *set.Spec.Replicas == count && tuned, fmt.Sprintf("%d servers, status %+v", *set.Spec.Replicas, target.Status)
	})
}
