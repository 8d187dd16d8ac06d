package refusals

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"
	batchv1 "k8s.io/api/batch/v1"
	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/informers"
	kubefake "k8s.io/client-go/kubernetes/fake"
	k8stesting "k8s.io/client-go/testing"
	"k8s.io/client-go/tools/events"

	"github.com/tandem-gpu/tandem/internal/cluster/kube"
	"github.com/tandem-gpu/tandem/internal/controller/snapshot"
	"github.com/tandem-gpu/tandem/internal/testkit"
	"github.com/tandem-gpu/tandem/pkg/api/v1alpha1"
	"github.com/tandem-gpu/tandem/pkg/vgpu"
	"github.com/tandem-gpu/tandem/test/fakecluster"
	"github.com/tandem-gpu/tandem/test/must"
)

const words = "pod default/p, container main: the assignment does not fit beside the pods that run: no room" + kube.CreateAgain

// world is the controller at work in a bubble, with what it evicted, by name and time.
type world struct {
	*Controller
	t       *testing.T
	api     *kubefake.Clientset
	said    *events.FakeRecorder
	began   time.Time
	evicted []string
}

// start starts the controller with pods and their Jobs, in a bubble.
func start(t *testing.T, objects ...runtime.Object) *world {
	t.Helper()
	w := &world{t: t, api: kubefake.NewClientset(), said: events.NewFakeRecorder(100), began: time.Now()}
	for _, o := range objects {
		must.OK(t, w.api.Tracker().Add(o))
	}
	w.api.PrependReactor("create", "pods", func(a k8stesting.Action) (bool, runtime.Object, error) {
		if a.GetSubresource() != "eviction" {
			return false, nil, nil
		}
		name := a.(k8stesting.CreateAction).GetObject().(metav1.Object).GetName()
		w.evicted = append(w.evicted, fmt.Sprintf("%s after %v", name, time.Since(w.began).Round(time.Second)))
		return true, nil, w.api.Tracker().Delete(v1.SchemeGroupVersion.WithResource("pods"), "default", name)
	})
	factory := informers.NewSharedInformerFactoryWithOptions(w.api, 0, informers.WithTransform((&snapshot.Condenser{}).Condense))
	w.Controller = New(Options{Informers: factory, Kube: w.api, Recorder: w.said})
	factory.StartWithContext(t.Context())
	go func() { _ = w.Start(t.Context()) }()
	return w
}

// after lets time of the bubble pass, and compares what was evicted so far.
func (w *world) after(d time.Duration, evicted ...string) {
	w.t.Helper()
	time.Sleep(d)
	synctest.Wait()
	if strings.Join(w.evicted, ", ") != strings.Join(evicted, ", ") {
		w.t.Errorf("evicted %q, want %q", w.evicted, evicted)
	}
}

// events returns what was said since the last call.
func (w *world) events() (all []string) {
	for {
		select {
		case e := <-w.said.Events:
			all = append(all, e)
		default:
			return all
		}
	}
}

// refused returns a pod of a ReplicaSet that the agent of n1 refuses to start.
func refused(t *testing.T, name string) *v1.Pod {
	t.Helper()
	p := fakecluster.Pod(name, 2)
	a := testkit.Assignment(t, testkit.Node(t, "n1", testkit.A100, 1), 0, "default/"+name, vgpu.Slots(2))
	a.UID, a.Containers[0].Name = vgpu.UID(p.UID), p.Spec.Containers[0].Name
	raw, err := kube.EncodeAssignment(a)
	must.OK(t, err)
	p.Annotations = map[string]string{v1alpha1.AnnotationAssignment: raw}
	p.OwnerReferences = []metav1.OwnerReference{{APIVersion: "apps/v1", Kind: "ReplicaSet", Name: "r", UID: "r", Controller: new(true)}}
	p.Spec.NodeName, p.Spec.RestartPolicy, p.Status.Phase = "n1", v1.RestartPolicyAlways, v1.PodPending
	p.Status.ContainerStatuses = []v1.ContainerStatus{{Name: "main", State: v1.ContainerState{Waiting: &v1.ContainerStateWaiting{
		Reason: "CreateContainerConfigError", Message: "device plugin PreStartContainer rpc failed with err: rpc error: code = FailedPrecondition desc = " + words,
	}}}}
	return p
}

// A pod that its agent refuses for two minutes is evicted once, and an event says why.
func TestRefusedPodIsEvicted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := start(t, refused(t, "p"))
		w.after(patience - time.Second)
		if got := w.events(); len(got) > 0 {
			t.Errorf("said %q too early", got)
		}
		w.after(every, "p after 2m0s")
		w.after(time.Hour, "p after 2m0s")
		got := w.events()
		if len(got) != 1 || !strings.Contains(got[0], "Warning StartRefused the agent of node n1 has refused to start it for 2m0s: "+words+"; it is evicted") {
			t.Errorf("said %q", got)
		}
		if n := testutil.ToFloat64(w.evictions.WithLabelValues(resultEvicted)); n != 1 {
			t.Errorf("%v evictions are counted", n)
		}
	})
}

// Pods that stay: one that starts meanwhile, one of which a container runs, one of an operator that may count the eviction as a failure, a bare one, one whose refusal ends by itself, and one without devices.
func TestPodsThatStay(t *testing.T) {
	for name, c := range map[string]struct {
		change func(p *v1.Pod)
		says   string
	}{
		"beside one that runs": {func(p *v1.Pod) {
			p.Status.ContainerStatuses = append(p.Status.ContainerStatuses, v1.ContainerStatus{Name: "side", State: v1.ContainerState{Running: &v1.ContainerStateRunning{}}})
		}, "it is not evicted, since a container of it has run"},
		"has run before": {func(p *v1.Pod) { p.Status.ContainerStatuses[0].RestartCount = 1 }, "it is not evicted, since a container of it has run"},
		"of a Job of Volcano": {func(p *v1.Pod) {
			p.OwnerReferences[0].APIVersion, p.OwnerReferences[0].Kind, p.Spec.RestartPolicy = "batch.volcano.sh/v1alpha1", "Job", v1.RestartPolicyOnFailure
		}, "it is not evicted, since its Job may count that as a failure: create that again"},
		"of a Job of Volcano, restarts always": {func(p *v1.Pod) {
			p.OwnerReferences[0].APIVersion, p.OwnerReferences[0].Kind = "batch.volcano.sh/v1alpha1", "Job"
		}, "it is not evicted, since its Job may count that as a failure: create that again"},
		"of a PyTorchJob": {func(p *v1.Pod) {
			p.OwnerReferences[0].APIVersion, p.OwnerReferences[0].Kind = "kubeflow.org/v1", "PyTorchJob"
		}, "it is not evicted, since its PyTorchJob may count that as a failure"},
		"of a RayCluster, restarts never": {func(p *v1.Pod) {
			p.OwnerReferences[0].APIVersion, p.OwnerReferences[0].Kind, p.Spec.RestartPolicy = "ray.io/v1", "RayCluster", v1.RestartPolicyNever
		}, "it is not evicted, since the pods of its RayCluster do not always restart: delete the pod, and KubeRay makes another one"},
		"bare":             {func(p *v1.Pod) { p.OwnerReferences = nil }, "it is not evicted, since nothing would make it anew"},
		"MPS is not ready": {func(p *v1.Pod) { p.Status.ContainerStatuses[0].State.Waiting.Message += " soon" }, ""},
		"bound by another": {func(p *v1.Pod) { p.Annotations = nil }, ""},
		"on its way out":   {func(p *v1.Pod) { p.DeletionTimestamp, p.Finalizers = &metav1.Time{Time: time.Now()}, []string{"x/y"} }, ""},
		"without vGPUs":    {func(p *v1.Pod) { p.Spec.Containers[0].Resources.Limits = nil }, ""},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				p := refused(t, "p")
				c.change(p)
				w := start(t, p)
				w.after(time.Hour)
				got := w.events()
				if said := len(got) == 1 && strings.Contains(got[0], c.says); said != (c.says != "") || len(got) > 1 {
					t.Errorf("said %q, want %q", got, c.says)
				}
			})
		})
	}
}

// ofJob makes a refused pod one of the Job of jobOf.
func ofJob(p *v1.Pod) *v1.Pod {
	p.OwnerReferences[0].APIVersion, p.OwnerReferences[0].Kind, p.Spec.RestartPolicy = "batch/v1", "Job", v1.RestartPolicyNever
	p.Labels, p.Finalizers = map[string]string{batchv1.ControllerUidLabel: "r"}, []string{batchv1.JobTrackingFinalizer}
	return p
}

// jobOf returns a Job with a backoffLimit, with rules for failures.
func jobOf(limit int32, rules ...batchv1.PodFailurePolicyRule) *batchv1.Job {
	j := &batchv1.Job{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "r", UID: "r"}, Spec: batchv1.JobSpec{BackoffLimit: &limit}}
	if rules != nil {
		j.Spec.PodFailurePolicy = &batchv1.PodFailurePolicy{Rules: rules}
	}
	return j
}

// on returns a rule for pods that are evicted, or for programs that end with the code 42.
func on(action batchv1.PodFailurePolicyAction, evicted bool) (r batchv1.PodFailurePolicyRule) {
	r.Action = action
	if evicted {
		r.OnPodConditions = []batchv1.PodFailurePolicyOnPodConditionsPattern{{Type: v1.DisruptionTarget, Status: v1.ConditionTrue}}
	} else {
		r.OnExitCodes = &batchv1.PodFailurePolicyOnExitCodesRequirement{Operator: batchv1.PodFailurePolicyOnExitCodesOpIn, Values: []int32{42}}
	}
	return r
}

// A pod of a Job is evicted where that cannot fail the Job, and else an event says why it stays and what helps.
func TestPodsOfJobs(t *testing.T) {
	with := func(j *batchv1.Job, change func(j *batchv1.Job)) *batchv1.Job {
		change(j)
		return j
	}
	perIndex := func(j *batchv1.Job) { j.Spec.BackoffLimit, j.Spec.BackoffLimitPerIndex = nil, new(int32(1)) }
	failures := func(n string) func(p *v1.Pod) {
		return func(p *v1.Pod) { p.Annotations[batchv1.JobIndexFailureCountAnnotation] = n }
	}
	for name, c := range map[string]struct {
		job    *batchv1.Job
		change func(p *v1.Pod)
		// other changes another pod of the Job, which is not refused.
		other func(p *v1.Pod)
		// unread says that the controller may not read the Job.
		unread bool
		// stays is what the event says, "" for a pod that is evicted.
		stays string
		// inVain says that no podFailurePolicy would help.
		inVain bool
	}{
		"evictions are ignored":     {job: jobOf(0, on(batchv1.PodFailurePolicyActionIgnore, true))},
		"ignored before exit codes": {job: jobOf(0, on(batchv1.PodFailurePolicyActionIgnore, true), on(batchv1.PodFailurePolicyActionFailJob, false))},
		"ignored after exit codes":  {job: jobOf(9, on(batchv1.PodFailurePolicyActionFailJob, false), on(batchv1.PodFailurePolicyActionIgnore, true)), stays: "a rule of the podFailurePolicy of its Job may fail"},
		"evictions fail the Job":    {job: jobOf(9, on(batchv1.PodFailurePolicyActionFailJob, true)), stays: "a rule of the podFailurePolicy of its Job may fail"},
		"evictions fail the index":  {job: jobOf(9, on(batchv1.PodFailurePolicyActionFailIndex, true)), stays: "a rule of the podFailurePolicy of its Job may fail"},
		"evictions count":           {job: jobOf(1, on(batchv1.PodFailurePolicyActionCount, true))},
		"room for one":              {job: jobOf(1)},
		"no limit is said":          {job: with(jobOf(0), func(j *batchv1.Job) { j.Spec.BackoffLimit = nil })},
		"no failure is taken":       {job: jobOf(0), stays: "one more failure could fail its Job, whose backoffLimit is 0: create the Job again"},
		"failures are used up":      {job: with(jobOf(3), func(j *batchv1.Job) { j.Status.Failed = 3 }), stays: "whose backoffLimit is 3"},
		"failures are used up, not yet summed": {job: with(jobOf(3), func(j *batchv1.Job) {
			j.Status.Failed, j.Status.UncountedTerminatedPods = 2, &batchv1.UncountedTerminatedPods{Failed: []types.UID{"x"}}
		}), stays: "whose backoffLimit is 3"},
		"another pod leaves":                {job: jobOf(1), other: func(p *v1.Pod) { p.DeletionTimestamp = &metav1.Time{Time: time.Now()} }, stays: "whose backoffLimit is 1"},
		"another pod has failed":            {job: jobOf(1), other: func(p *v1.Pod) { p.Status.Phase = v1.PodFailed }, stays: "whose backoffLimit is 1"},
		"another failure is counted":        {job: with(jobOf(2), func(j *batchv1.Job) { j.Status.Failed = 1 }), other: func(p *v1.Pod) { p.Status.Phase, p.Finalizers = v1.PodFailed, nil }},
		"room for the index":                {job: with(jobOf(0), perIndex), change: failures("0")},
		"no room for the index":             {job: with(jobOf(0), perIndex), change: failures("1"), stays: "one more failure could fail its index of the Job, whose backoffLimitPerIndex is 1"},
		"failures of the index are unknown": {job: with(jobOf(0), perIndex), stays: "could fail its index"},
		"another controller":                {job: with(jobOf(9), func(j *batchv1.Job) { j.Spec.ManagedBy = new("kueue.x-k8s.io/multikueue") }), stays: "its Job is managed by kueue.x-k8s.io/multikueue, which may count that as a failure: create the Job again", inVain: true},
		"the Job is gone":                   {job: with(jobOf(9), func(j *batchv1.Job) { j.Name = "s" }), stays: "its Job does not exist, so nothing would make it anew: delete it", inVain: true},
		"another Job of the name":           {job: with(jobOf(9), func(j *batchv1.Job) { j.UID = "s" }), stays: "its Job does not exist, so nothing would make it anew: delete it", inVain: true},
		"the Job may not be read":           {job: jobOf(9), unread: true, stays: "its Job may count that as a failure, and the controller may not read it", inVain: true},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				p := ofJob(refused(t, "p"))
				if c.change != nil {
					c.change(p)
				}
				objects := []runtime.Object{p, c.job}
				if c.other != nil {
					o := ofJob(refused(t, "q"))
					o.UID, o.Status.ContainerStatuses = "q", nil
					c.other(o)
					objects = append(objects, o)
				}
				w := start(t, objects...)
				if c.unread {
					w.api.PrependReactor("get", "jobs", func(k8stesting.Action) (bool, runtime.Object, error) {
						return true, nil, apierrors.NewForbidden(batchv1.Resource("jobs"), "r", errors.New("by a test"))
					})
				}
				if c.stays == "" {
					w.after(patience+every, "p after 2m0s")
					return
				}
				w.after(time.Hour)
				got := w.events()
				if len(got) != 1 || !strings.Contains(got[0], "it is not evicted, since ") || !strings.Contains(got[0], c.stays) {
					t.Fatalf("said %q, want %q once", got, c.stays)
				}
				if strings.Contains(got[0], "a podFailurePolicy whose") == c.inVain {
					t.Errorf("said %q; that a podFailurePolicy would not help is %t", got, c.inVain)
				}
			})
		})
	}
}

// A pass evicts no more pods of a Job than the failures that the Job still takes. The others go when it takes more.
func TestEvictionsEndWithTheBackoffLimit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		j := jobOf(3)
		j.Status.Failed = 1
		objects := []runtime.Object{j}
		for i := range 4 {
			p := ofJob(refused(t, fmt.Sprint("p", i)))
			p.UID = types.UID(p.Name)
			objects = append(objects, p)
		}
		w := start(t, objects...)
		time.Sleep(patience + time.Second)
		if len(w.evicted) != 2 {
			t.Fatalf("evicted %q", w.evicted)
		}
		change := func(limit, failed int32) {
			j := jobOf(limit)
			j.Status.Failed = failed
			must.OK(t, w.api.Tracker().Update(batchv1.SchemeGroupVersion.WithResource("jobs"), j, "default"))
		}
		change(3, 3)
		w.after(time.Hour, w.evicted...)
		change(5, 3)
		time.Sleep(time.Hour)
		if len(w.evicted) != 4 {
			t.Errorf("evicted %q", w.evicted)
		}
	})
}

// A policy keeps the controller's account from evicting in some namespaces, or the account lacks the right: an event says so, once, and each attempt
// counts as failed.
func TestEvictionIsForbidden(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := start(t, refused(t, "p"))
		w.api.PrependReactor("create", "pods", func(k8stesting.Action) (bool, runtime.Object, error) {
			return true, nil, apierrors.NewForbidden(v1.Resource("pods"), "p", errors.New("ValidatingAdmissionPolicy 'tandem-account-evictions'"))
		})
		w.after(time.Hour)
		if got := w.events(); len(got) != 1 || !strings.Contains(got[0], "it is not evicted, since the API server refuses that") || !strings.Contains(got[0], "tandem-account-evictions") {
			t.Errorf("said %q", got)
		}
		if n := testutil.ToFloat64(w.evictions.WithLabelValues(resultFailed)); n < 2 {
			t.Errorf("%v evictions have failed", n)
		}
	})
}

// A pod that starts before its time, and one that the informer still shows as refused, are not evicted.
func TestPodThatStartsIsNotEvicted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := start(t, refused(t, "p"), refused(t, "q"))
		w.after(patience - time.Minute)
		p := refused(t, "p")
		p.Status.ContainerStatuses[0].State = v1.ContainerState{Running: &v1.ContainerStateRunning{}}
		must.OK(t, w.api.Tracker().Update(v1.SchemeGroupVersion.WithResource("pods"), p, "default"))
		w.api.PrependReactor("get", "pods", func(k8stesting.Action) (bool, runtime.Object, error) {
			q := refused(t, "q")
			q.Status.ContainerStatuses[0].State = v1.ContainerState{Running: &v1.ContainerStateRunning{}}
			return true, q, nil
		})
		w.after(time.Hour)
	})
}

// The pods of an owner that are refused at once have one cause, and are evicted together.
func TestPodsOfOneCauseAreEvictedTogether(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var pods []runtime.Object
		for i := range 10 {
			p := refused(t, fmt.Sprint("p", i))
			p.UID = types.UID(p.Name)
			pods = append(pods, p)
		}
		w := start(t, pods...)
		time.Sleep(patience + every)
		synctest.Wait()
		if len(w.evicted) != len(pods) {
			t.Errorf("evicted %q", w.evicted)
		}
	})
}

// The pods of an owner that are refused again and again are evicted less and less often.
func TestEvictionsOfAnOwnerBecomeRare(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := start(t, refused(t, "p0"))
		time.Sleep(every / 2) // between two passes: no pod comes at the instant of one
		for i := range 5 {
			for waited := time.Duration(0); len(w.evicted) <= i && waited < 2*mostPatience; waited += every {
				time.Sleep(every)
			}
			next := refused(t, fmt.Sprint("p", i+1))
			next.UID = types.UID(next.Name)
			must.OK(t, w.api.Tracker().Add(next))
		}
		w.after(0, "p0 after 2m0s", "p1 after 6m10s", "p2 after 14m20s", "p3 after 30m30s", "p4 after 1h2m40s")
	})
}
