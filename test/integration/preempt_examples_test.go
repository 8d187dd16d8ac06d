package integration

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/discovery/cached/memory"
	"k8s.io/client-go/restmapper"

	"github.com/tandem-gpu/tandem/internal/cluster/kube"
	"github.com/tandem-gpu/tandem/internal/sandbox"
	"github.com/tandem-gpu/tandem/pkg/api/v1alpha1"
	"github.com/tandem-gpu/tandem/test/must"
)

// The batch of examples/preemption fills a cluster of 16 GPUs. Then its urgent job comes.
func urgentExample(t *testing.T, c *gangCluster) {
	c.playKubelets(t)
	c.applyPreemption(t, "priorityclasses.yaml")
	c.replicas(t, c.applyPreemption(t, "serving.yaml"))
	c.awaitBound(t, "chat", 3)
	c.applyPreemption(t, "gang-with-surplus.yaml")
	c.awaitBound(t, "elastic", 4)
	c.applyPreemption(t, "checkpoints.yaml")
	c.awaitBound(t, "saves", 1)
	free := clusterGPUs - c.used(t) // of the replicas of half a GPU, two may share one
	c.applyPreemption(t, "batch-job.yaml")
	c.awaitBound(t, "sweep", free)
	before := c.bound(t)

	c.applyPreemption(t, "urgent.yaml")
	c.awaitBound(t, "urgent", 1)
	gone := slices.DeleteFunc(before, func(p v1.Pod) bool {
		return slices.ContainsFunc(c.bound(t), func(now v1.Pod) bool { return now.UID == p.UID })
	})
	members := 0
	for _, p := range gone {
		if p.Spec.PriorityClassName != "gpu-batch" {
			t.Errorf("pod %s of class %q was evicted, and batch is there", p.Name, p.Spec.PriorityClassName)
		}
		if strings.HasPrefix(p.Name, "elastic") {
			members++
		}
	}
	if len(gone) == 0 || len(gone) > 4 || members > 2 {
		t.Errorf("%d pods were evicted, %d of them members of the gang; four GPUs were needed, and two members are surplus", len(gone), members)
	}
	c.awaitSaid(t, "Preempted by pod "+c.namespace+"/urgent")
	c.notFailed(t, "sweep", gone)
}

// notFailed waits until a Job has counted the pods that were evicted, and fails the test where they count as failures. Their
// objects go once they are counted.
func (c *gangCluster) notFailed(t *testing.T, name string, evicted []v1.Pod) {
	t.Helper()
	c.await(t, "the evicted pods are gone", func() (bool, string) {
		left := slices.DeleteFunc(c.pods(t), func(p v1.Pod) bool {
			return !slices.ContainsFunc(evicted, func(gone v1.Pod) bool { return gone.UID == p.UID })
		})
		return len(left) == 0, fmt.Sprintf("%d are left", len(left))
	})
	job, err := c.admin.BatchV1().Jobs(c.namespace).Get(life(t), name, metav1.GetOptions{})
	must.OK(t, err)
	if job.Status.Failed != 0 {
		t.Errorf("Job %s counts %d failures", name, job.Status.Failed)
	}
}

// applyPreemption creates the objects of an example with every unknown field an error, and returns them. It changes only
// the name of the GPU model, to that of the cluster.
func (c *gangCluster) applyPreemption(t *testing.T, name string) []*unstructured.Unstructured {
	t.Helper()
	root, err := sandbox.Root()
	must.OK(t, err)
	raw, err := os.ReadFile(filepath.Join(root, "examples", "preemption", name))
	must.OK(t, err)
	here := filepath.Join(t.TempDir(), name)
	text := strings.ReplaceAll(string(raw), "NVIDIA-A100-SXM4-40GB", c.gpus[0].Status.Devices[0].Model)
	must.OK(t, os.WriteFile(here, []byte(text), 0o600))
	client, err := discovery.NewDiscoveryClientForConfig(patient(c.api))
	must.OK(t, err)
	mapper := restmapper.NewDeferredDiscoveryRESTMapper(memory.NewMemCacheClient(client))
	all := documents(t, here)
	for _, object := range all {
		kind := object.GroupVersionKind()
		mapping, err := mapper.RESTMapping(kind.GroupKind(), kind.Version)
		must.OK(t, err)
		strict := metav1.CreateOptions{FieldValidation: metav1.FieldValidationStrict}
		namespace := c.namespace
		if mapping.Scope.Name() == meta.RESTScopeNameRoot {
			namespace = ""
		}
		if _, err := c.objects.Resource(mapping.Resource).Namespace(namespace).Create(life(t), object, strict); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
	}
	return all
}

// replicas makes the pods of a Deployment, whose controller does not run here.
func (c *gangCluster) replicas(t *testing.T, objects []*unstructured.Unstructured) {
	t.Helper()
	for _, object := range objects {
		if object.GetKind() != "Deployment" {
			continue
		}
		d := &appsv1.Deployment{}
		must.OK(t, runtime.DefaultUnstructuredConverter.FromUnstructured(object.Object, d))
		for i := range *d.Spec.Replicas {
			pod := &v1.Pod{ObjectMeta: d.Spec.Template.ObjectMeta, Spec: d.Spec.Template.Spec}
			pod.Name = fmt.Sprintf("%s-%d", d.Name, i)
			if _, err := c.admin.CoreV1().Pods(c.namespace).Create(life(t), pod, metav1.CreateOptions{}); err != nil {
				t.Fatal(err)
			}
		}
	}
}

// bound returns the pods that have a node and have not ended.
func (c *gangCluster) bound(t *testing.T) []v1.Pod {
	t.Helper()
	return slices.DeleteFunc(c.pods(t), func(p v1.Pod) bool {
		return p.Spec.NodeName == "" || p.DeletionTimestamp != nil || p.Status.Phase == v1.PodFailed
	})
}

// used counts the GPUs of which somebody has a part.
func (c *gangCluster) used(t *testing.T) int {
	t.Helper()
	devices := map[string]bool{}
	for _, p := range c.bound(t) {
		a, err := kube.DecodeAssignment(p.Annotations[v1alpha1.AnnotationAssignment])
		must.OK(t, err)
		for _, container := range a.Containers {
			for _, id := range container.Devices {
				devices[id] = true
			}
		}
	}
	return len(devices)
}

// awaitBound waits until so many pods whose names begin so have a node.
func (c *gangCluster) awaitBound(t *testing.T, prefix string, want int) {
	t.Helper()
	c.poll(t, fmt.Sprintf("%d pods %s are bound", want, prefix), func() (bool, string) {
		var names []string
		for _, p := range c.bound(t) {
			if strings.HasPrefix(p.Name, prefix) {
				names = append(names, p.Name)
			}
		}
		return len(names) == want, fmt.Sprint(names)
	})
}

// playKubelets has bound pods run, and those that are deleted fail at once and go.
func (c *gangCluster) playKubelets(t *testing.T) {
	t.Helper()
	c.withPods(t, c.playKubelet)
}

func (c *gangCluster) playKubelet(ctx context.Context, pod *v1.Pod) {
	pods := c.admin.CoreV1().Pods(pod.Namespace)
	now := pod.DeepCopy()
	switch {
	case pod.Spec.NodeName == "":
		return
	case pod.DeletionTimestamp != nil && pod.Status.Phase != v1.PodFailed:
		now.Status.Phase = v1.PodFailed
	case pod.DeletionTimestamp != nil:
		_ = pods.Delete(ctx, pod.Name, metav1.DeleteOptions{GracePeriodSeconds: new(int64(0))}) // it may be gone
		return
	case pod.Status.Phase == v1.PodPending:
		start := metav1.Now()
		now.Status.Phase, now.Status.StartTime = v1.PodRunning, &start
	}
	if !cmp.Equal(pod.Status, now.Status) {
		_, _ = pods.UpdateStatus(ctx, now, metav1.UpdateOptions{}) // a conflict: the next round knows more
	}
}
