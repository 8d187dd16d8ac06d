package integration

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"

	"github.com/tandem-gpu/tandem/internal/cluster/podgroup"
	"github.com/tandem-gpu/tandem/internal/sandbox"
	"github.com/tandem-gpu/tandem/pkg/api/v1alpha1"
	"github.com/tandem-gpu/tandem/test/must"
)

// elasticPlays have Kubernetes' own controller of Jobs, and kubelets.
func elasticPlays() []play {
	both := []podgroup.Source{podgroup.Label, podgroup.Native}
	return []play{
		{name: "a job shrinks for another and grows back", run: growsAndShrinks, modes: both, real: nativeOnly},
		{name: "a job shrinks for the last members of a gang", run: shrinksForTheLast, modes: labelOnly},
		{name: "a job shrinks for one of a high priority", run: shrinksForUrgent, modes: both},
		{name: "the example runs", run: elasticExample, modes: labelOnly, real: labelOnly},
		{name: "twenty shrinks", run: twentyShrinks, modes: labelOnly},
		{name: "the example of size fields runs", run: fieldsExample, modes: labelOnly, real: labelOnly},
		{name: "a Job is resized by its fields", run: resizedJob, modes: labelOnly, real: labelOnly},
		{name: "a StatefulSet is resized by its scale", run: resizedStatefulSet, modes: labelOnly, real: labelOnly},
		{name: "owners whose fields are not written", run: refusedFields, modes: labelOnly},
		{name: "a user holds the size of a job", run: heldJob, modes: labelOnly},
		{name: "a job states a rate", run: statesRate, modes: labelOnly},
		{name: "owners that the controller refuses", run: refusedOwners, modes: labelOnly},
		{name: "a worker that ends well when it is evicted", run: completedWorker, modes: labelOnly},
		{name: "a target edited by hand", run: editedTarget, modes: labelOnly, real: labelOnly, needs: "its admission policies"},
		{name: "controller and scheduler are killed", run: killedBoth, modes: labelOnly, real: labelOnly},
	}
}

// runElastic runs kubelets and the controller until the test ends.
func runElastic(t *testing.T, c *gangCluster) {
	t.Helper()
	c.startKubelets(t)
	c.startController(t)
	t.Cleanup(func() {
		select {
		case <-c.controller.Done():
			t.Errorf("the controller ended: %v\n%s", c.controller.Err(), c.controller.Tail(60))
		default:
		}
		c.controller.Stop(0)
	})
}

// startController starts the controller. It elects no leader: one that was killed would be waited for.
func (c *gangCluster) startController(t *testing.T, more ...string) {
	t.Helper()
	process := c.world.startController(t, more...)
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("the controller said:\n%s", process.Tail(60))
		}
	})
	c.controller = process
}

// startController starts the controller as it is built, under its account.
func (w onPlane) startController(t *testing.T, more ...string) program {
	t.Helper()
	binary := sandbox.ProgramForTest(t, "controller")
	kubeconfig, err := w.plane.ServiceAccount(life(t), "tandem-system", "tandem-controller")
	must.OK(t, err)
	w.starts++
	flags := append([]string{
		"--kubeconfig=" + kubeconfig, "--leader-elect=false", "--metrics-bind-address=0", "--health-probe-bind-address=0",
		"--elastic-interval=1s", "--elastic-notice=1s", "--elastic-max-moves=100",
	}, more...)
	process, err := supervise(w.plane.Processes(), fmt.Sprintf("controller-%d", w.starts), func() *exec.Cmd { return exec.Command(binary, flags...) })
	must.OK(t, err)
	return process
}

// endsWell is the label of pods that end with exit code 0 when they are deleted.
const endsWell = "example.com/ends-well"

// startKubelets runs what kubelets do with the pods on their nodes: they run, and one that is deleted fails and is gone.
func (c *gangCluster) startKubelets(t *testing.T) {
	t.Helper()
	c.withPods(t, c.asKubelet)
}

// withPods calls a function for each pod, again and again until the test ends. A call that fails is made again in the next round.
func (c *gangCluster) withPods(t *testing.T, do func(context.Context, *v1.Pod)) {
	t.Helper()
	ctx, cancel := context.WithCancel(life(t))
	done := make(chan struct{})
	go func() {
		defer close(done)
		for ctx.Err() == nil {
			pods, err := c.admin.CoreV1().Pods(metav1.NamespaceAll).List(ctx, metav1.ListOptions{})
			for i := 0; err == nil && i < len(pods.Items); i++ {
				do(ctx, &pods.Items[i])
			}
			select {
			case <-ctx.Done():
			case <-time.After(100 * time.Millisecond):
			}
		}
	}()
	t.Cleanup(func() { cancel(); <-done })
}

func (c *gangCluster) asKubelet(ctx context.Context, p *v1.Pod) {
	phase := p.Status.Phase
	switch {
	case p.Spec.NodeName == "":
		return
	case p.DeletionTimestamp == nil && phase == v1.PodPending:
		phase = v1.PodRunning
	case p.DeletionTimestamp != nil && phase != v1.PodFailed && phase != v1.PodSucceeded:
		if phase = v1.PodFailed; p.Labels[endsWell] != "" {
			phase = v1.PodSucceeded
		}
	}
	pods := c.admin.CoreV1().Pods(p.Namespace)
	if phase != p.Status.Phase {
		patch, _ := json.Marshal(map[string]any{"status": map[string]any{"phase": phase}}) // a map of words
		if _, err := pods.Patch(ctx, p.Name, types.StrategicMergePatchType, patch, metav1.PatchOptions{}, "status"); err != nil {
			return
		}
	}
	if p.DeletionTimestamp != nil {
		_ = pods.Delete(ctx, p.Name, metav1.DeleteOptions{GracePeriodSeconds: new(int64(0)), Preconditions: &metav1.Preconditions{UID: &p.UID}})
	}
}

// elasticJob returns an indexed Job that is an elastic gang of 2 members up to a number of them, with so many slots each.
func (c *gangCluster) elasticJob(name string, slots, most int) *batchv1.Job {
	pod := c.member(testGang{name: name, min: 2, slots: slots}, 0)
	annotate(pod, most)
	if pod.Labels == nil {
		pod.Labels = map[string]string{}
	}
	pod.Labels[v1alpha1.LabelProfile] = name
	pod.Spec.RestartPolicy = v1.RestartPolicyNever
	pod.Spec.TerminationGracePeriodSeconds = new(int64(1))
	return &batchv1.Job{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: batchv1.JobSpec{
			Completions: new(int32(most)), Parallelism: new(int32(most)), BackoffLimit: new(int32(0)), CompletionMode: new(batchv1.IndexedCompletion),
			PodFailurePolicy: &batchv1.PodFailurePolicy{Rules: []batchv1.PodFailurePolicyRule{{
				Action:          batchv1.PodFailurePolicyActionIgnore,
				OnPodConditions: []batchv1.PodFailurePolicyOnPodConditionsPattern{{Type: v1.DisruptionTarget, Status: v1.ConditionTrue}},
			}}},
			Template: v1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: pod.Labels, Annotations: pod.Annotations}, Spec: pod.Spec},
		},
	}
}

// startJob makes a Job whose workers join and leave while it runs.
func (c *gangCluster) startJob(t *testing.T, job *batchv1.Job) {
	t.Helper()
	c.joinsAtOnce(t, job.Name)
	c.createPodGroup(t, testGang{name: job.Name, min: 2})
	if _, err := c.admin.BatchV1().Jobs(c.namespace).Create(t.Context(), job, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
}

// joinsAtOnce makes a WorkloadProfile of members that join and leave while the others run.
func (c *gangCluster) joinsAtOnce(t *testing.T, name string) {
	t.Helper()
	profile := &unstructured.Unstructured{Object: map[string]any{"spec": map[string]any{"scaling": map[string]any{"resizeTime": "0s"}}}}
	profile.SetGroupVersionKind(v1alpha1.GroupVersion.WithKind("WorkloadProfile"))
	profile.SetName(name)
	if _, err := c.objects.Resource(v1alpha1.WorkloadProfiles).Namespace(c.namespace).Create(t.Context(), profile, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
}

// target returns the ElasticTarget of a gang, the zero value where there is none.
func (c *gangCluster) target(t *testing.T, name string) (target v1alpha1.ElasticTarget) {
	t.Helper()
	object, err := c.objects.Resource(v1alpha1.ElasticTargets).Namespace(c.namespace).Get(life(t), name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return target
	}
	if err == nil {
		err = runtime.DefaultUnstructuredConverter.FromUnstructured(object.Object, &target)
	}
	must.OK(t, err)
	return target
}

// indexesOf returns which members of an indexed Job have a node and are not about to end.
func (c *gangCluster) indexesOf(t *testing.T, gang string) map[string]bool {
	t.Helper()
	indexes := map[string]bool{}
	for _, p := range c.members(t, gang) {
		if p.Spec.NodeName != "" && p.DeletionTimestamp == nil && p.Status.Phase != v1.PodFailed {
			indexes[p.Labels[batchv1.JobCompletionIndexAnnotation]] = true
		}
	}
	return indexes
}

// awaitWorkers waits until a job runs with its first members, so many of them, and its target says so.
func (c *gangCluster) awaitWorkers(t *testing.T, job string, count int) {
	t.Helper()
	want := map[string]bool{}
	for i := range count {
		want[fmt.Sprint(i)] = true
	}
	c.poll(t, fmt.Sprintf("job %s has %d workers", job, count), func() (bool, string) {
		indexes, target := c.indexesOf(t, job), c.target(t, job)
		return maps.Equal(indexes, want) && target.Spec.Workers == int32(count) && target.Status.Workers == int32(count),
			fmt.Sprintf("workers %v, target %+v, %s: %s, %+v; pods %s", indexes, target.Spec, target.Status.Reason, target.Status.Message,
				target.Status.Scheduler, c.phases(t, job))
	})
}

// checkRunning checks that no share is given twice among the pods that run. One that has failed uses no device any more.
func (c *gangCluster) checkRunning(t *testing.T) {
	t.Helper()
	checkLedger(t, slices.DeleteFunc(c.boundPods(t), func(p v1.Pod) bool { return p.Status.Phase == v1.PodFailed }), c.gpus)
}

// phases says of each member of a gang where it is.
func (c *gangCluster) phases(t *testing.T, gang string) string {
	t.Helper()
	var all []string
	for _, p := range c.members(t, gang) {
		all = append(all, fmt.Sprintf("%s %s on %q, leaving %v", p.Name, p.Status.Phase, p.Spec.NodeName, p.DeletionTimestamp != nil))
	}
	return strings.Join(all, "; ")
}

// elasticExample applies examples/elastic as it stands: all four members run on idle GPUs.
func elasticExample(t *testing.T, c *gangCluster) {
	root, err := sandbox.Root()
	must.OK(t, err)
	c.applyExample(t, filepath.Join(root, "examples", "elastic", "indexed-job.yaml"))
	c.awaitWorkers(t, "elastic", 4)
}

// checkJob checks that no member of a job counts as failed.
func (c *gangCluster) checkJob(t *testing.T, name string) {
	t.Helper()
	job, err := c.admin.BatchV1().Jobs(c.namespace).Get(t.Context(), name, metav1.GetOptions{})
	must.OK(t, err)
	if job.Status.Failed != 0 || len(job.Status.Conditions) != 0 {
		t.Errorf("job %s has %d failed pods and the conditions %v", name, job.Status.Failed, job.Status.Conditions)
	}
}

// growsAndShrinks shrinks by one member: Kubernetes' controller of Jobs makes an evicted member again after 10 seconds, and
// waits twice as long for each further one, whether it counts as failed or not.
func growsAndShrinks(t *testing.T, c *gangCluster) {
	c.startJob(t, c.elasticJob("train", 10, 8))
	c.awaitWorkers(t, "train", 8)

	// 9 of the 16 GPUs for another gang of the same priority: nobody is preempted for it.
	c.create(t, testGang{name: "rigid", members: 9, min: 9, slots: 10})
	c.awaitGang(t, "rigid", 9)
	c.awaitWorkers(t, "train", 7)
	c.awaitSaid(t, "shrinks from 8 to 7 members: gang "+c.namespace+"/rigid waits for a place")

	c.deletePods(t, "rigid")
	c.awaitWorkers(t, "train", 8)
	c.awaitSaid(t, "grows from 7 to 8 members: GPUs are idle that no waiting job can use; expected rate +")
	c.checkJob(t, "train")
	c.checkRunning(t)
}

// shrinksForTheLast: two of four members have succeeded, another one is lost, and the job has taken their GPUs. It gives one back for the member that comes again.
func shrinksForTheLast(t *testing.T, c *gangCluster) {
	last := testGang{name: "last", members: 4, min: 4, slots: 10}
	c.create(t, last)
	c.awaitGang(t, "last", 4)
	c.startJob(t, c.elasticJob("train", 10, 16))
	c.awaitWorkers(t, "train", 12)
	for _, name := range []string{"last-0", "last-1"} {
		_, err := c.admin.CoreV1().Pods(c.namespace).Patch(t.Context(), name, types.StrategicMergePatchType, []byte(`{"status":{"phase":"Succeeded"}}`), metav1.PatchOptions{}, "status")
		must.OK(t, err)
	}
	c.deletePod(t, "last-2")
	c.awaitWorkers(t, "train", 15)
	c.createMembers(t, last, 2, 3)
	c.awaitWorkers(t, "train", 14)
	c.awaitSaid(t, "shrinks from 15 to 14 members: gang "+c.namespace+"/last waits for a place")
	c.awaitPlace(t, "last-2")
}

// shrinksForUrgent: the scheduler preempts the surplus, from the last member on, and the controller's target follows.
func shrinksForUrgent(t *testing.T, c *gangCluster) {
	c.startJob(t, c.elasticJob("train", 10, 8))
	c.awaitWorkers(t, "train", 8)
	c.create(t, testGang{name: "urgent", members: 14, min: 14, slots: 10, class: high})
	c.awaitGang(t, "urgent", 14)
	c.awaitWorkers(t, "train", 2)
	c.checkJob(t, "train")
}

// twentyShrinks lets a Job give back a member for each of twenty pods. It has a backoffLimit of 0, so one failure would end it.
func twentyShrinks(t *testing.T, c *gangCluster) {
	c.startJob(t, c.elasticJob("train", 5, 32))
	c.awaitWorkers(t, "train", 32)
	for i := range 20 {
		c.submit(t, patientPod(fmt.Sprintf("single-%d", i), "", "", 5))
		c.awaitWorkers(t, "train", 31-i)
	}
	c.checkJob(t, "train")
	c.checkRunning(t)
}

// awaitCondition waits until a target says that its gang cannot be resized.
func (c *gangCluster) awaitCondition(t *testing.T, name, reason, text string) {
	t.Helper()
	c.poll(t, "target "+name+" has the condition "+reason, func() (bool, string) {
		target := c.target(t, name)
		for _, condition := range target.Status.Conditions {
			if condition.Type == v1alpha1.ConditionResizable {
				return condition.Status == metav1.ConditionFalse && condition.Reason == reason && strings.Contains(condition.Message, text),
					fmt.Sprint(condition)
			}
		}
		return false, fmt.Sprintf("%+v", target)
	})
}

// completedWorker: the Job counts a worker as completed that ends with exit code 0, and does not make it again. So no further one leaves.
func completedWorker(t *testing.T, c *gangCluster) {
	job := c.elasticJob("train", 10, 8)
	job.Spec.Template.Labels[endsWell] = "yes"
	c.startJob(t, job)
	c.awaitWorkers(t, "train", 8)
	c.create(t, testGang{name: "rigid", members: 9, min: 9, slots: 10})
	c.awaitGang(t, "rigid", 9)
	c.awaitCondition(t, "train", "WorkerCompleted", "pod train-7")
	c.poll(t, "the completed worker is counted and gone", func() (bool, string) { return len(c.namesOnNodes(t, "train")) == 7, c.phases(t, "train") })
	c.create(t, testGang{name: "late", members: 1, min: 1, slots: 10})
	time.Sleep(3 * time.Second) // nothing may happen in three passes, so there is nothing to wait for
	if got := c.namesOnNodes(t, "train"); len(got) != 7 {
		t.Errorf("the members on nodes are %v", got)
	}
}

func refusedOwners(t *testing.T, c *gangCluster) {
	careless := c.elasticJob("careless", 10, 8)
	careless.Spec.PodFailurePolicy = nil
	c.startJob(t, careless)
	kueue := c.elasticJob("kueue", 10, 8)
	kueue.Annotations = map[string]string{"kueue.x-k8s.io/elastic-job": "true"}
	c.startJob(t, kueue)
	for i := range 4 {
		p := c.member(testGang{name: "bare", min: 2, slots: 10}, i)
		annotate(p, 8)
		c.submit(t, p)
	}
	c.awaitCondition(t, "careless", "EvictionsCountAsFailures", "podFailurePolicy")
	c.awaitCondition(t, "kueue", "AnotherControllerOwnsTheSize", "kueue.x-k8s.io/elastic-job")
	c.awaitCondition(t, "bare", "NoOwner", "make them by a Job")
	for _, gang := range []string{"careless", "kueue", "bare"} {
		c.awaitGang(t, gang, 2)
	}
	time.Sleep(3 * time.Second) // The controller makes a pass each second. None of them may change a gang, and no event would say so.
	for _, gang := range []string{"careless", "kueue", "bare"} {
		if nodes := c.nodesOf(t, gang); placed(nodes) != 2 {
			t.Errorf("gang %s cannot be resized, and has %d members with a node", gang, placed(nodes))
		}
	}
}

// editedTarget: a person's change of a target does not last, and a target that is deleted comes back.
func editedTarget(t *testing.T, c *gangCluster) {
	c.startJob(t, c.elasticJob("train", 10, 8))
	c.awaitWorkers(t, "train", 8)
	targets := c.objects.Resource(v1alpha1.ElasticTargets).Namespace(c.namespace)
	if _, err := targets.Patch(t.Context(), "train", types.MergePatchType, []byte(`{"spec":{"workers":3}}`), metav1.PatchOptions{}); err == nil {
		t.Errorf("an administrator changed the target")
	}
	must.OK(t, targets.Delete(t.Context(), "train", metav1.DeleteOptions{}))
	c.awaitWorkers(t, "train", 8)
	c.checkJob(t, "train")
}

// annotate makes a member that of an elastic gang.
func annotate(p *v1.Pod, most int) {
	if p.Annotations == nil {
		p.Annotations = map[string]string{}
	}
	p.Annotations[v1alpha1.AnnotationElasticWorkers] = fmt.Sprint("2-", most)
}

// awaitTarget waits until the target of a gang says so many members.
func (c *gangCluster) awaitTarget(t *testing.T, gang string, count int32) {
	t.Helper()
	c.poll(t, fmt.Sprintf("the target of %s is %d", gang, count), func() (bool, string) {
		target := c.target(t, gang)
		return target.Spec.Workers == count, fmt.Sprintf("%+v", target.Spec)
	})
}

// killedBoth kills the controller between the new target and the eviction, and the scheduler between the new target and the
// placement. The next process goes on; meanwhile nobody loses a place.
func killedBoth(t *testing.T, c *gangCluster) {
	c.startJob(t, c.elasticJob("train", 10, 8))
	c.awaitWorkers(t, "train", 8)
	c.create(t, testGang{name: "rigid", members: 9, min: 9, slots: 10})
	c.awaitTarget(t, "train", 7)
	c.controller.Stop(0)
	time.Sleep(3 * time.Second) // The notice of one second passes. A controller that still ran would evict now.
	if indexes := c.indexesOf(t, "train"); len(indexes) < 7 {
		t.Errorf("without a controller the job has the members %v", indexes)
	}
	c.startController(t)
	c.awaitGang(t, "rigid", 9)
	c.awaitWorkers(t, "train", 7)

	c.deletePods(t, "rigid")
	c.awaitTarget(t, "train", 8)
	c.scheduler.Stop(0)
	c.startScheduler(t)
	c.awaitWorkers(t, "train", 8)
	c.checkJob(t, "train")
}
