package integration

import (
	"fmt"
	"os"
	"strings"
	"testing"

	batchv1 "k8s.io/api/batch/v1"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/tandem-gpu/tandem/internal/controller/placeable"
	"github.com/tandem-gpu/tandem/pkg/api/v1alpha1"
	"github.com/tandem-gpu/tandem/test/must"
)

// queued is a Job in a queue of Kueue.
type queued struct {
	name, queue string
	pods, slots int
	memory      string
	class       string
	// gang makes the pods one, and required says how close they must come.
	gang     bool
	required string
	// change is what else is unlike.
	change func(*batchv1.Job)
}

// outcome is what becomes of a Job.
type outcome struct {
	admitted bool
	// evicted says that Kueue has taken its quota at least once.
	evicted bool
	// bound is how many pods have a node, racks on how many racks, 0 for any number.
	bound, racks int
	// check is the state of the check placeable, "" where there is no quota, or any. Unchecked says that there is no check.
	check     placeable.State
	unchecked bool
	// says is what the Workload says of the check, or of its quota where there is none.
	says string
}

// step is Jobs that come, those that go before, and what is then.
type step struct {
	leave  []string
	others func(t *testing.T, c *gangCluster) // pods that Kueue does not know come
	submit []queued
	want   map[string]outcome
}

// situation is a history of a cluster of 16 GPUs, of which team-a and team-b have the quota for 8 each.
type situation struct {
	name  string
	steps []step
}

// TestKueue runs Kueue and JobSet beside the scheduler and the controller with the feature placeable.
func TestKueue(t *testing.T) {
	if os.Getenv("TANDEM_KUEUE") != "1" {
		t.Skip("needs Kueue and JobSet, minutes of building that no other test here needs, and root: make test-kueue runs it (TANDEM_KUEUE=1)")
	}
	c := startPreemptionCluster(t, gangModes()[0], schedulerProgram(t), 4, 4, 4, 4)
	c.startKubelets(t)
	c.applyFile(t, "deploy", "components", "placeable", "rbac.yaml")
	c.applySource(t, jobSetModule, "config/components/crd/bases/jobset.x-k8s.io_jobsets.yaml")
	c.startJobSet(t)
	c.startKueue(t)
	c.startController(t, "--features=elastic,placeable", "--placeable-interval=1s", "--placeable-patience=24h")
	c.poll(t, "Kueue takes the queues", func() (bool, string) {
		raw, err := os.ReadFile("../../examples/kueue/queues.yaml")
		must.OK(t, err)
		err = c.plane.Apply(t.Context(), raw)
		return err == nil, fmt.Sprint(err)
	})
	for _, s := range situations() {
		c.play(t, s.name, func(t *testing.T, c *gangCluster) { c.queue(t, s.steps) })
	}
	c.play(t, "the examples run", kueueExamples)
	select {
	case <-c.controller.Done():
		t.Errorf("the controller ended: %v\n%s", c.controller.Err(), c.controller.Tail(60))
	default:
	}
}

// queue plays the steps of a situation.
func (c *gangCluster) queue(t *testing.T, steps []step) {
	c.localQueues(t)
	t.Cleanup(func() { c.unqueue(t, "") })
	for i := range steps {
		s := &steps[i]
		for _, name := range s.leave {
			c.unqueue(t, name)
		}
		if s.others != nil {
			s.others(t, c)
		}
		for _, q := range s.submit {
			if _, err := c.admin.BatchV1().Jobs(c.namespace).Create(t.Context(), c.queuedJob(q), metav1.CreateOptions{}); err != nil {
				t.Fatal(err)
			}
		}
		c.awaitOutcomes(t, fmt.Sprintf("step %d", i+1), s.want)
		c.checkRunning(t)
	}
}

// queuedJob returns a Job in the queue. Its evicted pods come back.
func (c *gangCluster) queuedJob(q queued) *batchv1.Job {
	pod := vgpuPod(q.name, q.slots)
	pod.Spec.PriorityClassName = q.class
	if q.slots == 0 {
		pod.Spec.Containers[0].Resources.Limits = nil
	}
	if q.memory != "" {
		pod.Spec.Containers[0].Resources.Limits[v1alpha1.ResourceMemory] = resource.MustParse(q.memory)
	}
	pod.Labels, pod.Annotations = map[string]string{}, map[string]string{}
	if q.gang {
		pod.Labels[v1alpha1.LabelGang], pod.Annotations[v1alpha1.AnnotationMinMembers] = q.name, fmt.Sprint(q.pods)
	}
	if q.required != "" {
		pod.Annotations[v1alpha1.AnnotationRequiredTopology] = q.required
	}
	pod.Spec.TerminationGracePeriodSeconds = new(int64(1))
	job := &batchv1.Job{
		ObjectMeta: metav1.ObjectMeta{Name: q.name, Labels: map[string]string{"kueue.x-k8s.io/queue-name": q.queue}},
		Spec: batchv1.JobSpec{
			Suspend: new(true), Completions: new(int32(q.pods)), Parallelism: new(int32(q.pods)), BackoffLimit: new(int32(0)), CompletionMode: new(batchv1.IndexedCompletion),
			PodFailurePolicy: &batchv1.PodFailurePolicy{Rules: []batchv1.PodFailurePolicyRule{{
				Action:          batchv1.PodFailurePolicyActionIgnore,
				OnPodConditions: []batchv1.PodFailurePolicyOnPodConditionsPattern{{Type: v1.DisruptionTarget, Status: v1.ConditionTrue}},
			}}},
			Template: v1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: pod.Labels, Annotations: pod.Annotations}, Spec: pod.Spec},
		},
	}
	if q.change != nil {
		q.change(job)
	}
	return job
}

// workloadOf returns the Workload of a Job or JobSet, nil where there is none.
func (c *gangCluster) workloadOf(t *testing.T, name string) *placeable.Workload {
	t.Helper()
	list, err := c.objects.Resource(placeable.Workloads).Namespace(c.namespace).List(life(t), metav1.ListOptions{})
	must.OK(t, err)
	for i := range list.Items {
		var w placeable.Workload
		must.OK(t, runtime.DefaultUnstructuredConverter.FromUnstructured(list.Items[i].Object, &w))
		if len(w.OwnerReferences) == 1 && w.OwnerReferences[0].Name == name {
			return &w
		}
	}
	return nil
}

// outcomeOf returns what has become of a Job.
func (c *gangCluster) outcomeOf(t *testing.T, name string) (is outcome) {
	t.Helper()
	racks := map[string]bool{}
	for _, p := range c.pods(t) {
		if strings.HasPrefix(p.Name, name+"-") && p.Spec.NodeName != "" && p.DeletionTimestamp == nil {
			is.bound++
			racks[fmt.Sprintf("r%d", int(p.Spec.NodeName[1]-'0')/2)] = true
		}
	}
	is.racks = len(racks)
	w := c.workloadOf(t, name)
	if w == nil {
		return is
	}
	is.admitted = meta.IsStatusConditionTrue(w.Status.Conditions, "Admitted")
	is.evicted = meta.FindStatusCondition(w.Status.Conditions, "Evicted") != nil
	quota := meta.FindStatusCondition(w.Status.Conditions, "QuotaReserved")
	if quota != nil && quota.Status == metav1.ConditionFalse {
		is.says = quota.Message
	}
	for _, check := range w.Status.AdmissionChecks {
		is.check = check.State
		is.says += " " + check.Message
	}
	return is
}

// awaitOutcomes waits until Jobs are as they should be, all at the same time.
func (c *gangCluster) awaitOutcomes(t *testing.T, when string, all map[string]outcome) {
	t.Helper()
	c.poll(t, fmt.Sprintf("%s: it is %+v", when, all), func() (bool, string) {
		ok, state := true, ""
		for name, want := range all {
			is := c.outcomeOf(t, name)
			ok = ok && is.admitted == want.admitted && is.evicted == want.evicted && is.bound == want.bound && (want.racks == 0 || is.racks == want.racks) &&
				(want.check == "" || is.check == want.check) && (!want.unchecked || is.check == "") && strings.Contains(is.says, want.says)
			state += fmt.Sprintf("%s is %+v; ", name, is)
		}
		return ok, state
	})
}

// runsWith is the outcome of a Job that runs with so many pods.
func runsWith(pods int) outcome { return outcome{admitted: true, bound: pods, check: placeable.Ready} }

// again is the outcome of a Job that runs with so many pods after Kueue had stopped it.
func again(pods int) outcome {
	is := runsWith(pods)
	is.evicted = true
	return is
}

// alone makes pods of one GPU each that Kueue does not know.
func alone(name, class string, count int) func(*testing.T, *gangCluster) {
	return func(t *testing.T, c *gangCluster) {
		c.createSingles(t, name, count, 10, func(p *v1.Pod) {
			p.Spec.PriorityClassName = class
			p.Spec.TerminationGracePeriodSeconds = new(int64(1))
		})
	}
}

// kueueExamples applies examples/kueue as it stands.
func kueueExamples(t *testing.T, c *gangCluster) {
	t.Cleanup(func() { c.unqueue(t, "") })
	for _, file := range []string{"namespace.yaml", "job.yaml", "jobset.yaml"} {
		c.applyExample(t, "../../examples/kueue/"+file)
	}
	c.awaitOutcomes(t, "examples", map[string]outcome{
		"halves": runsWith(4), "training": {admitted: true, bound: 4, racks: 1, check: placeable.Ready},
	})
	job, err := c.objects.Resource(jobSets).Namespace(c.namespace).Get(t.Context(), "training", metav1.GetOptions{})
	must.OK(t, err)
	if suspended, _, _ := unstructured.NestedBool(job.Object, "spec", "suspend"); suspended {
		t.Error("the JobSet is suspended")
	}
}
