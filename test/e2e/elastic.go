package e2e

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/google/go-cmp/cmp"
	batchv1 "k8s.io/api/batch/v1"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/yaml"

	"github.com/tandem-gpu/tandem/pkg/api/v1alpha1"
	"github.com/tandem-gpu/tandem/pkg/elastic"
)

// submit creates objects in the tenant's namespace, given as YAML or as values that YAML can have.
func (n *Tenant) submit(objects ...any) {
	n.t.Helper()
	documents := make([]string, 0, len(objects))
	for _, o := range objects {
		raw, err := yaml.Marshal(o)
		n.must(err)
		documents = append(documents, string(raw))
	}
	n.must(n.plane.Apply(n.t.Context(), []byte(strings.Join(documents, "\n---\n"))))
}

// deleteOwners deletes what would make deleted pods anew.
func (n *Tenant) deleteOwners(ctx context.Context) {
	background := metav1.DeletePropagationBackground
	options := metav1.DeleteOptions{PropagationPolicy: &background}
	if err := n.client.BatchV1().Jobs(n.namespace).DeleteCollection(ctx, options, metav1.ListOptions{}); err != nil {
		n.t.Errorf("delete Jobs: %v", err)
	}
	if err := n.client.AppsV1().StatefulSets(n.namespace).DeleteCollection(ctx, options, metav1.ListOptions{}); err != nil {
		n.t.Errorf("delete StatefulSets: %v", err)
	}
}

// target reads the ElasticTarget of a gang.
func (n *Tenant) target(ctx context.Context, gang string) (target v1alpha1.ElasticTarget, err error) {
	object, err := n.dynamic.Resource(v1alpha1.ElasticTargets).Namespace(n.namespace).Get(ctx, gang, metav1.GetOptions{})
	if err == nil {
		err = runtime.DefaultUnstructuredConverter.FromUnstructured(object.Object, &target)
	}
	return target, err
}

// members returns the pods of an Indexed Job that have a node and are not about to end, by index.
func (n *Tenant) members(ctx context.Context, job string) (map[string]*v1.Pod, error) {
	list, err := n.pods.List(ctx, metav1.ListOptions{LabelSelector: batchv1.JobNameLabel + "=" + job})
	if err != nil {
		return nil, err
	}
	members := map[string]*v1.Pod{}
	for i := range list.Items {
		p := &list.Items[i]
		if p.Spec.NodeName != "" && p.DeletionTimestamp == nil && p.Status.Phase != v1.PodFailed {
			members[p.Labels[batchv1.JobCompletionIndexAnnotation]] = p
		}
	}
	return members, nil
}

// workers waits until a job runs with its first members, so many of them, and its target says so. It returns them in the order
// of their indexes.
func (n *Tenant) workers(job string, count int) []*v1.Pod {
	n.t.Helper()
	var pods []*v1.Pod
	// A job of unknown cost grows only when it has run for five and a half minutes: by then a cost of 60 s would be repaid.
	ctx, cancel := context.WithTimeout(n.t.Context(), 2*patience)
	defer cancel()
	n.must(poll(ctx, fmt.Sprintf("%d workers of job %s", count, job), func(ctx context.Context) error {
		target, err := n.target(ctx, job)
		if err != nil {
			return err
		}
		members, err := n.members(ctx, job)
		if err != nil {
			return err
		}
		if target.Spec.Workers != int32(count) || target.Status.Workers != int32(count) || len(members) != count {
			return fmt.Errorf("its target is %+v, %d members have a node, %s: %s", target.Spec, target.Status.Workers, target.Status.Reason, target.Status.Message)
		}
		pods = nil
		for index := range count {
			p := members[fmt.Sprint(index)]
			if p == nil {
				return fmt.Errorf("its members are %v", slices.Sorted(maps.Keys(members)))
			}
			if err := runs(p); err != nil {
				return fmt.Errorf("member %d: %w", index, err)
			}
			pods = append(pods, p)
		}
		return nil
	}))
	return pods
}

// noFailures fails the test if a pod of the job counts as failed.
func (n *Tenant) noFailures(name string) {
	n.t.Helper()
	job, err := n.client.BatchV1().Jobs(n.namespace).Get(n.t.Context(), name, metav1.GetOptions{})
	n.must(err)
	if job.Status.Failed != 0 || len(job.Status.Conditions) != 0 {
		n.t.Errorf("job %s has %d failed pods and the conditions %v", name, job.Status.Failed, job.Status.Conditions)
	}
}

// reported waits until all pods report a rate in the GPUNode, and returns the sum.
func (n *Tenant) reported(pods []*v1.Pod) float64 {
	n.t.Helper()
	var sum float64
	n.await(fmt.Sprintf("the rates of %d pods in the GPUNode", len(pods)), func(ctx context.Context) error {
		node, err := n.gpuNode(ctx)
		if err != nil {
			return err
		}
		rates := map[string]float64{}
		for i := range node.Status.Devices {
			for _, t := range node.Status.Devices[i].Tenants {
				if t.Rate != nil {
					rates[t.UID] = t.Rate.AsApproximateFloat64()
				}
			}
		}
		sum = 0
		for _, p := range pods {
			if rates[string(p.UID)] == 0 {
				return fmt.Errorf("there is none of pod %s; the rates are %v", p.Name, rates)
			}
			sum += rates[string(p.UID)]
		}
		return nil
	})
	return sum
}

// learned waits until the target of a job knows its rates with these numbers of workers, and returns the curve that they make.
func (n *Tenant) learned(job string, workers ...int) elastic.Curve {
	n.t.Helper()
	var curve elastic.Curve
	n.await(fmt.Sprintf("the rates of job %s with %v workers", job, workers), func(ctx context.Context) error {
		target, err := n.target(ctx, job)
		if err != nil {
			return err
		}
		curve = elastic.Curve{}
		for _, r := range target.Status.Rates {
			curve.Points = append(curve.Points, elastic.Point{Workers: int(r.Workers), Hosts: int(r.Hosts), Rate: r.Rate.AsApproximateFloat64()})
		}
		for _, count := range workers {
			if !slices.ContainsFunc(curve.Points, func(p elastic.Point) bool { return p.Workers == count }) {
				return fmt.Errorf("it knows %+v", curve.Points)
			}
		}
		return nil
	})
	return curve
}

// said waits until an event of a job says so, and returns the whole message.
func (n *Tenant) said(job, text string) string {
	n.t.Helper()
	var found string
	n.await(fmt.Sprintf("an event of job %s with %q", job, text), func(ctx context.Context) error {
		events, err := n.client.EventsV1().Events(n.namespace).List(ctx, metav1.ListOptions{})
		if err != nil {
			return err
		}
		var notes []string
		for i := range events.Items {
			e := &events.Items[i]
			if e.Regarding.Kind != "Job" || e.Regarding.Name != job {
				continue
			}
			if strings.Contains(e.Note, text) {
				found = e.Note
				return nil
			}
			notes = append(notes, e.Note)
		}
		return fmt.Errorf("its events are %q", notes)
	})
	return found
}

// crowd makes a gang of as many small pods as needed for slots, of which all must run, and returns their names.
func (n *Tenant) crowd(gang string, slots int) []string {
	n.t.Helper()
	const each = 2
	names := make([]string, 0, slots/each)
	for i := range slots / each {
		pod := newPod(fmt.Sprintf("%s-%d", gang, i), share("main", each))
		pod.Labels = map[string]string{v1alpha1.LabelGang: gang}
		pod.Annotations[v1alpha1.AnnotationMinMembers] = fmt.Sprint(slots / each)
		n.create(pod)
		names = append(names, pod.Name)
	}
	return names
}

// resized waits until the target of a job has learned from so many changes of size what one costs, and returns that.
func (n *Tenant) resized(job string, changes int32) time.Duration {
	n.t.Helper()
	var cost time.Duration
	n.await(fmt.Sprintf("the cost of %d changes of job %s", changes, job), func(ctx context.Context) error {
		target, err := n.target(ctx, job)
		switch {
		case err != nil:
			return err
		case target.Status.Resizes < changes || target.Status.ResizeSeconds == nil:
			return fmt.Errorf("its status is %+v", target.Status)
		}
		cost = time.Duration(*target.Status.ResizeSeconds) * time.Second
		return nil
	})
	return cost
}

// sameContainers fails the test unless the pods of both lists are the same, with the same containers.
func (n *Tenant) sameContainers(before, after []*v1.Pod) {
	n.t.Helper()
	ids := func(pods []*v1.Pod) (all []string) {
		for _, p := range pods {
			for i := range p.Status.ContainerStatuses {
				all = append(all, p.Name+" "+p.Status.ContainerStatuses[i].ContainerID)
			}
		}
		return all
	}
	if diff := cmp.Diff(ids(before), ids(after)); diff != "" {
		n.t.Errorf("workers that should not notice changed (-before +after):\n%s", diff)
	}
}
