package main

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"

	batchv1 "k8s.io/api/batch/v1"
	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/tandem-gpu/tandem/internal/cluster/kube"
	"github.com/tandem-gpu/tandem/pkg/api/v1alpha1"
)

// The elastic job of the demo: the number of its workers at most, and the slots of each.
const (
	elasticJob              = "train-elastic"
	maxWorkers, workerSlots = 4, 5
)

// beginElastic makes room, and submits the Job with a profile that says that its workers join and leave while it runs.
func (c *cluster) beginElastic(ctx context.Context) error {
	if err := c.remove(ctx, "train-vision"); err != nil {
		return err
	}
	if err := c.awaitRunning(ctx, "train-huge"); err != nil {
		return err
	}
	profile := &unstructured.Unstructured{Object: map[string]any{"spec": map[string]any{"scaling": map[string]any{"resizeTime": "0s"}}}}
	profile.SetGroupVersionKind(v1alpha1.GroupVersion.WithKind("WorkloadProfile"))
	profile.SetName(elasticJob)
	if _, err := c.objects.Resource(v1alpha1.WorkloadProfiles).Namespace(namespace).Create(ctx, profile, metav1.CreateOptions{}); err != nil {
		return err
	}
	_, err := c.user.BatchV1().Jobs(namespace).Create(ctx, newElasticJob(), metav1.CreateOptions{})
	return err
}

// newElasticJob returns the Job as examples/elastic/indexed-job.yaml has it, for the A100.
func newElasticJob() *batchv1.Job {
	pod := workload{name: elasticJob, kind: training, gpu: "a100", containers: alone(workerSlots), annotations: map[string]string{
		v1alpha1.AnnotationMinMembers: "1", v1alpha1.AnnotationElasticWorkers: fmt.Sprint("1-", maxWorkers),
	}}.pod()
	pod.Labels[v1alpha1.LabelGang], pod.Labels[v1alpha1.LabelProfile] = elasticJob, elasticJob
	pod.Spec.RestartPolicy = v1.RestartPolicyNever
	return &batchv1.Job{ObjectMeta: metav1.ObjectMeta{Name: elasticJob}, Spec: batchv1.JobSpec{
		CompletionMode: new(batchv1.IndexedCompletion), Completions: new(int32(maxWorkers)), Parallelism: new(int32(maxWorkers)),
		PodFailurePolicy: &batchv1.PodFailurePolicy{Rules: []batchv1.PodFailurePolicyRule{{
			Action:          batchv1.PodFailurePolicyActionIgnore,
			OnPodConditions: []batchv1.PodFailurePolicyOnPodConditionsPattern{{Type: v1.DisruptionTarget, Status: v1.ConditionTrue}},
		}}},
		SuccessPolicy: &batchv1.SuccessPolicy{Rules: []batchv1.SuccessPolicyRule{{SucceededIndexes: new("0")}}},
		Template:      v1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: pod.Labels, Annotations: pod.Annotations}, Spec: pod.Spec},
	}}
}

// remove deletes a pod and waits until it is gone.
func (c *cluster) remove(ctx context.Context, name string) error {
	if err := c.user.CoreV1().Pods(namespace).Delete(ctx, name, metav1.DeleteOptions{}); err != nil {
		return err
	}
	return poll(ctx, func() error {
		_, err := c.user.CoreV1().Pods(namespace).Get(ctx, name, metav1.GetOptions{})
		switch {
		case apierrors.IsNotFound(err):
			return nil
		case err != nil:
			return fatal{err}
		}
		return fmt.Errorf("pod %s is still there", name)
	})
}

func (c *cluster) awaitRunning(ctx context.Context, name string) error {
	return poll(ctx, func() error {
		if err := c.schedulerRuns(); err != nil {
			return err
		}
		pod, err := c.user.CoreV1().Pods(namespace).Get(ctx, name, metav1.GetOptions{})
		if err != nil {
			return fatal{err}
		}
		if pod.Status.Phase != v1.PodRunning {
			return fmt.Errorf("pod %s is %s", name, pod.Status.Phase)
		}
		return nil
	})
}

// awaitWorkers waits until the first workers of the job run and no others, and its target says so.
func (c *cluster) awaitWorkers(ctx context.Context, count int) (*v1alpha1.ElasticTarget, error) {
	target := &v1alpha1.ElasticTarget{}
	err := poll(ctx, func() error {
		if err := errors.Join(c.schedulerRuns(), c.controllerRuns()); err != nil {
			return fatal{err}
		}
		object, err := c.objects.Resource(v1alpha1.ElasticTargets).Namespace(namespace).Get(ctx, elasticJob, metav1.GetOptions{})
		if err != nil {
			return err
		}
		if err := runtime.DefaultUnstructuredConverter.FromUnstructured(object.Object, target); err != nil {
			return fatal{err}
		}
		running, err := c.workers(ctx)
		if err != nil {
			return err
		}
		if len(running) != count || int(target.Spec.Workers) != count || int(target.Status.Workers) != count {
			return fmt.Errorf("the workers %v run, the target is %d: %s", running, target.Spec.Workers, target.Status.Message)
		}
		return nil
	})
	return target, err
}

// workers returns the indexes of the workers that run, ascending.
func (c *cluster) workers(ctx context.Context) ([]string, error) {
	pods, err := c.user.CoreV1().Pods(namespace).List(ctx, metav1.ListOptions{LabelSelector: v1alpha1.LabelGang + "=" + elasticJob})
	if err != nil {
		return nil, err
	}
	running := map[string]bool{}
	for i := range pods.Items {
		if p := &pods.Items[i]; p.Status.Phase == v1.PodRunning && p.DeletionTimestamp == nil {
			running[p.Labels[batchv1.JobCompletionIndexAnnotation]] = true
		}
	}
	return slices.Sorted(maps.Keys(running)), nil
}

// controllerRuns returns an error once the controller has ended.
func (c *cluster) controllerRuns() error {
	select {
	case <-c.sizing.Done():
		return errors.Join(errors.New("the controller ended"), c.sizing.Err())
	default:
		return nil
	}
}

// nodeGPUs returns who has which part of the devices of a node now.
func (c *cluster) nodeGPUs(ctx context.Context, node string) ([]gpu, error) {
	g, err := c.gpuNode(ctx, node)
	if err != nil {
		return nil, err
	}
	devices, err := kube.Devices(g)
	if err != nil {
		return nil, err
	}
	pods, err := c.user.CoreV1().Pods(namespace).List(ctx, metav1.ListOptions{FieldSelector: "spec.nodeName=" + node})
	if err != nil {
		return nil, err
	}
	r := &report{pods: map[string]*observed{}}
	for _, d := range devices {
		r.devices = append(r.devices, device{node: node, Device: d})
	}
	for i := range pods.Items {
		p := &pods.Items[i]
		if p.Status.Phase != v1.PodRunning || p.DeletionTimestamp != nil {
			continue
		}
		name := p.Name
		if index, member := p.Labels[batchv1.JobCompletionIndexAnnotation]; member {
			name = elasticJob + "-" + index
		} else if of := p.Labels[nameLabel]; of != "" {
			name = of
		}
		o := &observed{workload: workload{name: name, kind: kind(p.Labels["app.kubernetes.io/component"])}}
		if o.assignment, err = kube.AssignmentOf(p); err != nil {
			return nil, err
		}
		r.pods[name], r.order = o, append(r.order, name)
	}
	slices.Sort(r.order)
	return r.gpus(), nil
}

// checkElastic checks that no change of the size counted as a failure of the Job.
func (c *cluster) checkElastic(ctx context.Context) error {
	job, err := c.user.BatchV1().Jobs(namespace).Get(ctx, elasticJob, metav1.GetOptions{})
	if err != nil {
		return err
	}
	if job.Status.Failed != 0 || len(job.Status.Conditions) != 0 {
		return fmt.Errorf("job %s has %d failed pods and the conditions %v", elasticJob, job.Status.Failed, job.Status.Conditions)
	}
	return nil
}
