package integration

import (
	"fmt"
	"path/filepath"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/tandem-gpu/tandem/internal/sandbox"
	"github.com/tandem-gpu/tandem/pkg/api/v1alpha1"
	"github.com/tandem-gpu/tandem/test/must"
)

// fieldsJob returns an elastic Job of 2 members up to a number of them, which starts with its least and is resized by its
// fields. It has no podFailurePolicy, and one failure ends it.
func (c *gangCluster) fieldsJob(name string, slots, most int) *batchv1.Job {
	job := c.elasticJob(name, slots, most)
	job.Spec.PodFailurePolicy = nil
	job.Spec.Parallelism, job.Spec.Completions = new(int32(2)), new(int32(2))
	job.Spec.Template.Annotations[v1alpha1.AnnotationElasticResize] = v1alpha1.ResizeSizeFields
	return job
}

// awaitJobSize waits until both fields of a Job say a number, and it runs with as many members.
func (c *gangCluster) awaitJobSize(t *testing.T, name string, count int32) {
	t.Helper()
	c.awaitWorkers(t, name, int(count))
	c.poll(t, fmt.Sprintf("the fields of job %s are %d", name, count), func() (bool, string) {
		job, err := c.admin.BatchV1().Jobs(c.namespace).Get(t.Context(), name, metav1.GetOptions{})
		must.OK(t, err)
		return *job.Spec.Parallelism == count && *job.Spec.Completions == count, fmt.Sprint(*job.Spec.Parallelism, *job.Spec.Completions)
	})
}

// resizedJob: the Job grows, gives back half of its members at once for another gang, without a failure, and has them again
// without the pauses that Kubernetes' controller of Jobs makes after failures and evictions.
func resizedJob(t *testing.T, c *gangCluster) {
	c.startJob(t, c.fieldsJob("train", 10, 8))
	c.awaitJobSize(t, "train", 8)

	for i, size := range []int32{4, 3} { // of the 16 GPUs
		rigid := testGang{name: fmt.Sprint("rigid-", i), members: 16 - int(size), min: 16 - int(size), slots: 10}
		c.create(t, rigid)
		c.awaitGang(t, rigid.name, rigid.members)
		c.awaitJobSize(t, "train", size)
		c.checkJob(t, "train")

		began := time.Now()
		c.deletePods(t, rigid.name)
		c.awaitJobSize(t, "train", 8)
		t.Logf("from %d to 8 members in %v after the others had left", size, time.Since(began).Round(time.Millisecond))
		c.checkJob(t, "train")
		c.checkRunning(t)
	}
	c.awaitSaid(t, "shrinks from 8 to 4 members: gang "+c.namespace+"/rigid-0 waits for a place")
	for _, p := range c.members(t, "train") {
		if _, told := p.Annotations[v1alpha1.AnnotationLeaving]; told {
			t.Errorf("pod %s stays, and was told that it leaves", p.Name)
		}
	}
}

// resizedStatefulSet plays the controller of StatefulSets, which is not part of this cluster: it makes and deletes the pods
// that the spec asks for.
func resizedStatefulSet(t *testing.T, c *gangCluster) {
	pod := c.member(testGang{name: "train", min: 2, slots: 10}, 0)
	annotate(pod, 8)
	pod.Annotations[v1alpha1.AnnotationElasticResize] = v1alpha1.ResizeSizeFields
	c.joinsAtOnce(t, "train")
	pod.Labels["app"], pod.Labels[v1alpha1.LabelProfile] = "train", "train"
	pod.Spec.RestartPolicy = v1.RestartPolicyAlways
	set, err := c.admin.AppsV1().StatefulSets(c.namespace).Create(t.Context(), &appsv1.StatefulSet{
		ObjectMeta: metav1.ObjectMeta{Name: "train"},
		Spec: appsv1.StatefulSetSpec{
			Replicas: new(int32(2)), Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": "train"}},
			Template: v1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: pod.Labels, Annotations: pod.Annotations}, Spec: pod.Spec},
		},
	}, metav1.CreateOptions{})
	must.OK(t, err)
	owner := *metav1.NewControllerRef(set, appsv1.SchemeGroupVersion.WithKind("StatefulSet"))
	member := func(i int) {
		p := pod.DeepCopy()
		p.Name, p.OwnerReferences = fmt.Sprint("train-", i), []metav1.OwnerReference{owner}
		p.Labels[appsv1.PodIndexLabel] = fmt.Sprint(i)
		c.submit(t, p)
	}
	member(0)
	member(1)
	await := func(count int32) {
		c.poll(t, fmt.Sprintf("the StatefulSet has %d replicas", count), func() (bool, string) {
			now, err := c.admin.AppsV1().StatefulSets(c.namespace).Get(t.Context(), "train", metav1.GetOptions{})
			must.OK(t, err)
			return *now.Spec.Replicas == count, fmt.Sprintf("%d replicas, target %+v", *now.Spec.Replicas, c.target(t, "train"))
		})
	}
	await(8)
	for i := 2; i < 8; i++ {
		member(i)
	}
	c.poll(t, "8 members run", func() (bool, string) { return len(c.namesOnNodes(t, "train")) == 8, c.phases(t, "train") })
	c.create(t, testGang{name: "rigid", members: 9, min: 9, slots: 10})
	await(7)
	must.OK(t, c.admin.CoreV1().Pods(c.namespace).Delete(t.Context(), "train-7", metav1.DeleteOptions{}))
	c.awaitGang(t, "rigid", 9)
}

// namesOnNodes returns the members of a gang that have a node.
func (c *gangCluster) namesOnNodes(t *testing.T, gang string) (names []string) {
	t.Helper()
	for _, p := range c.members(t, gang) {
		if p.Spec.NodeName != "" {
			names = append(names, p.Name)
		}
	}
	return names
}

// fieldsExample applies the example as it stands: the Job grows to four members on idle GPUs.
func fieldsExample(t *testing.T, c *gangCluster) {
	root, err := sandbox.Root()
	must.OK(t, err)
	c.applyExample(t, filepath.Join(root, "examples", "elastic", "size-fields.yaml"))
	c.awaitJobSize(t, "elastic-fields", 4)
}

// refusedFields: an obstacle that keeps the fields of an owner from being written is a condition, and the fields stay as
// they are.
func refusedFields(t *testing.T, c *gangCluster) {
	queued := c.fieldsJob("queued", 10, 8)
	queued.Labels = map[string]string{"kueue.x-k8s.io/queue-name": "q"}
	c.startJob(t, queued)
	unindexed := c.fieldsJob("unindexed", 10, 8)
	unindexed.Spec.CompletionMode = new(batchv1.NonIndexedCompletion)
	c.startJob(t, unindexed)
	// A Job whose owner no API serves.
	owned := c.fieldsJob("owned", 10, 8)
	owned.OwnerReferences = []metav1.OwnerReference{{
		APIVersion: "example.com/v1", Kind: "Sweep", Name: "all", UID: types.UID("a-sweep"), Controller: new(true),
	}}
	c.startJob(t, owned)
	c.awaitCondition(t, "queued", "AnotherControllerOwnsTheSize", "kueue.x-k8s.io/queue-name: Kueue")
	c.awaitCondition(t, "unindexed", "OwnerIsNotElastic", "spec.completionMode is not Indexed")
	c.awaitCondition(t, "owned", "AnotherControllerOwnsTheSize", "Sweep.example.com all owns Job.batch owned")
	for _, name := range []string{"queued", "unindexed", "owned"} {
		job, err := c.admin.BatchV1().Jobs(c.namespace).Get(t.Context(), name, metav1.GetOptions{})
		must.OK(t, err)
		if *job.Spec.Parallelism != 2 || *job.Spec.Completions != 2 {
			t.Errorf("job %s has %d of %d", name, *job.Spec.Parallelism, *job.Spec.Completions)
		}
	}
}
