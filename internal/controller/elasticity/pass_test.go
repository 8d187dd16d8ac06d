package elasticity

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus/testutil"
	v1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	dynamicfake "k8s.io/client-go/dynamic/fake"
	"k8s.io/client-go/informers"
	kubefake "k8s.io/client-go/kubernetes/fake"
	clientscheme "k8s.io/client-go/kubernetes/scheme"
	k8stesting "k8s.io/client-go/testing"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/events"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/tandem-gpu/tandem/internal/cluster/podgroup"
	"github.com/tandem-gpu/tandem/internal/controller/snapshot"
	"github.com/tandem-gpu/tandem/internal/testkit"
	configv1 "github.com/tandem-gpu/tandem/pkg/api/config/v1"
	"github.com/tandem-gpu/tandem/pkg/api/v1alpha1"
	"github.com/tandem-gpu/tandem/pkg/resize"
	"github.com/tandem-gpu/tandem/test/must"
)

// world is a Controller of node n1. Its informers have what the API has at the start of each pass.
type world struct {
	*Controller
	*testing.T
	kube    *kubefake.Clientset
	objects client.Client
	dynamic *dynamicfake.FakeDynamicClient
	gangs   *fakeGangs
	at      time.Time
	// fraction of a second, by which passes come later than their number says.
	fraction time.Duration
	said     *events.FakeRecorder
	// evicted are the pods that were evicted, by name; each has a deletion timestamp then.
	evicted []string
	// refuse says why the API server refuses a request for an object, nil for no error.
	refuse func(verb, name string) error
	// condenser makes pods what the informers of the program keep of them.
	condenser snapshot.Condenser
}

// fakeGangs are gangs by the label of their pods, or by a PodGroup where they are in groups.
type fakeGangs struct {
	sizes map[podgroup.Ref][]int // nil for gangs of 4 that are not elastic
	pods  []*v1.Pod
	// fields says that all gangs are resized by the fields of their owners.
	fields bool
	// done are the members of gangs that are done. They lower the least number.
	done map[podgroup.Ref]int
	// problems of gangs, as the set of gangs has them.
	problems map[podgroup.Ref]*podgroup.Problem
}

const groupLabel = "scheduling.x-k8s.io/pod-group"

func (f *fakeGangs) Synced() bool { return true }

func (f *fakeGangs) Of(pod *v1.Pod) (podgroup.Ref, bool) {
	if name := pod.Labels[groupLabel]; name != "" {
		return podgroup.Ref{Source: podgroup.XK8s, Namespace: pod.Namespace, Name: name}, true
	}
	name := pod.Labels[v1alpha1.LabelGang]
	if pod.Spec.SchedulingGroup != nil {
		return podgroup.Ref{Source: podgroup.Native, Namespace: pod.Namespace, Name: name}, true
	}
	return ref(name), name != ""
}

func (f *fakeGangs) Gang(r podgroup.Ref) (*podgroup.Gang, error) {
	g := &podgroup.Gang{Ref: r, MinCount: 4, Sizes: f.sizes[r], SizeFields: f.fields, Created: noon.Add(-time.Hour)}
	if g.Sizes != nil {
		g.MinCount = g.Sizes[0]
	}
	g.Done = f.done[r]
	g.MinCount -= g.Done
	for _, p := range f.pods {
		if of, _ := f.Of(p); of == r && p.Status.Phase != v1.PodSucceeded {
			g.Members = append(g.Members, p)
		}
	}
	if len(g.Members) == 0 {
		return nil, &podgroup.Problem{Message: "no member exists", Waits: true}
	}
	if problem := f.problems[r]; problem != nil {
		return g, problem
	}
	return g, nil
}

func (f *fakeGangs) Elastic() (refs []podgroup.Ref) {
	for r, sizes := range f.sizes {
		if g, _ := f.Gang(r); sizes != nil && g != nil {
			refs = append(refs, r)
		}
	}
	slices.SortFunc(refs, podgroup.Ref.Compare)
	return refs
}

// newWorld returns a controller of a node with so many GPUs, of the Job train and of the gang train, which runs with 2, 4 or 8
// members.
func newWorld(t *testing.T, gpus int, pods ...*v1.Pod) *world {
	t.Helper()
	w := &world{T: t, at: noon, said: events.NewFakeRecorder(100), refuse: func(string, string) error { return nil }}
	w.gangs = &fakeGangs{sizes: map[podgroup.Ref][]int{ref("train"): {2, 4, 8}}}
	node := &v1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n1", Labels: map[string]string{v1.LabelHostname: "n1"}}}
	node.Status.Allocatable = v1.ResourceList{v1.ResourceCPU: resource.MustParse("64"), v1.ResourceMemory: resource.MustParse("64Gi"),
		v1.ResourcePods: resource.MustParse("500"), v1alpha1.ResourceVGPU: resource.MustParse("1000")}
	w.kube = kubefake.NewClientset(node, jobOf("train", 8))
	for _, p := range pods {
		must.OK(t, w.kube.Tracker().Add(p))
	}
	w.kube.PrependReactor("create", "pods", w.evict)
	w.dynamic = dynamicfake.NewSimpleDynamicClient(clientscheme.Scheme)
	scheme := runtime.NewScheme()
	must.OK(t, v1alpha1.AddToScheme(scheme))
	w.objects = fake.NewClientBuilder().WithScheme(scheme).WithStatusSubresource(&v1alpha1.ElasticTarget{}).WithObjects(gpuNode(gpus)).
		WithInterceptorFuncs(w.interceptors()).Build()
	w.start()
	return w
}

// start starts a controller that remembers nothing.
func (w *world) start() {
	w.Helper()
	var err error
	w.Controller, err = New(Options{
		Kube: w.kube, Dynamic: w.dynamic, Informers: informers.NewSharedInformerFactory(w.kube, 0), Client: w.objects, Reader: w.objects, Gangs: w.gangs, Recorder: w.said,
		SchedulerName: v1alpha1.SchedulerName, Preferred: configv1.DefaultPreferredTopology(), Every: time.Second, Notice: 5 * time.Second, AdmitWithin: 2 * time.Minute, Now: func() time.Time { return w.at },
	})
	must.OK(w, err)
}

// gpuNode returns the GPUNode of n1.
func gpuNode(gpus int) *v1alpha1.GPUNode {
	g := &v1alpha1.GPUNode{ObjectMeta: metav1.ObjectMeta{Name: "n1"}}
	for _, d := range testkit.A100.Devices("n1", gpus) {
		g.Status.Devices = append(g.Status.Devices, v1alpha1.GPUDevice{
			ID: string(d.ID), Index: int32(d.Index), Model: d.Model, Slots: int32(d.Slots), Memory: *resource.NewQuantity(int64(d.Memory), resource.BinarySI),
			Contexts: int32(d.Contexts), Health: v1alpha1.Healthy,
		})
	}
	g.Status.Conditions = []metav1.Condition{{Type: v1alpha1.ConditionReady, Status: metav1.ConditionTrue}}
	return g
}

// interceptors refuse the requests that the test wants refused.
func (w *world) interceptors() interceptor.Funcs {
	return interceptor.Funcs{
		Update: func(ctx context.Context, c client.WithWatch, o client.Object, opts ...client.UpdateOption) error {
			if err := w.refuse("update", o.GetName()); err != nil {
				return err
			}
			return c.Update(ctx, o, opts...)
		},
		Delete: func(ctx context.Context, c client.WithWatch, o client.Object, opts ...client.DeleteOption) error {
			if err := w.refuse("delete", o.GetName()); err != nil {
				return err
			}
			return c.Delete(ctx, o, opts...)
		},
		SubResourcePatch: func(ctx context.Context, c client.Client, sub string, o client.Object, patch client.Patch, opts ...client.SubResourcePatchOption) error {
			if err := w.refuse(sub, o.GetName()); err != nil {
				return err
			}
			return c.SubResource(sub).Patch(ctx, o, patch, opts...)
		},
	}
}

// evict marks a pod as the API server does.
func (w *world) evict(action k8stesting.Action) (bool, runtime.Object, error) {
	create, isCreate := action.(k8stesting.CreateAction)
	if !isCreate || action.GetSubresource() != "eviction" {
		return false, nil, nil
	}
	e := create.GetObject().(*policyv1.Eviction)
	if err := w.refuse("evict", e.Name); err != nil {
		return true, nil, err
	}
	stored, err := w.kube.Tracker().Get(v1.SchemeGroupVersion.WithResource("pods"), "ns", e.Name) // a reactor must not ask the clientset
	must.OK(w, err)
	p := stored.(*v1.Pod).DeepCopy()
	if e.DeleteOptions == nil || e.DeleteOptions.Preconditions == nil || *e.DeleteOptions.Preconditions.UID != p.UID {
		w.Errorf("pod %s is evicted whatever its UID", e.Name)
	}
	w.evicted = append(w.evicted, e.Name)
	p.DeletionTimestamp = &metav1.Time{Time: w.at}
	return true, nil, w.kube.Tracker().Update(v1.SchemeGroupVersion.WithResource("pods"), p, "ns")
}

func (w *world) pod(name string) *v1.Pod {
	w.Helper()
	p, err := w.kube.CoreV1().Pods("ns").Get(w.Context(), name, metav1.GetOptions{})
	must.OK(w, err)
	return p
}

// put makes or changes pods.
func (w *world) put(pods ...*v1.Pod) {
	w.Helper()
	for _, p := range pods {
		if w.kube.Tracker().Update(v1.SchemeGroupVersion.WithResource("pods"), p, "ns") != nil {
			must.OK(w, w.kube.Tracker().Add(p))
		}
	}
}

func (w *world) drop(pods ...*v1.Pod) {
	w.Helper()
	for _, p := range pods {
		must.OK(w, w.kube.Tracker().Delete(v1.SchemeGroupVersion.WithResource("pods"), "ns", p.Name))
	}
}

// try makes a pass so many seconds after noon.
func (w *world) try(after int) error {
	w.Helper()
	w.at = seconds(after).Add(w.fraction)
	pods, err := w.kube.CoreV1().Pods("").List(w.Context(), metav1.ListOptions{})
	must.OK(w, err)
	nodes, err := w.kube.CoreV1().Nodes().List(w.Context(), metav1.ListOptions{})
	must.OK(w, err)
	jobs, err := w.kube.BatchV1().Jobs("").List(w.Context(), metav1.ListOptions{})
	must.OK(w, err)
	var list, more, last []any
	w.gangs.pods = nil
	for i := range pods.Items {
		kept, err := w.condenser.Condense(&pods.Items[i])
		must.OK(w, err)
		w.gangs.pods = append(w.gangs.pods, kept.(*v1.Pod))
		list = append(list, kept)
	}
	for i := range nodes.Items {
		more = append(more, &nodes.Items[i])
	}
	for i := range jobs.Items {
		last = append(last, &jobs.Items[i])
	}
	f := w.options.Informers
	must.OK(w, f.Core().V1().Pods().Informer().GetStore().Replace(list, ""))
	must.OK(w, f.Core().V1().Nodes().Informer().GetStore().Replace(more, ""))
	must.OK(w, f.Batch().V1().Jobs().Informer().GetStore().Replace(last, ""))
	return w.Pass(w.Context())
}

// pass makes a pass that must not fail.
func (w *world) pass(after int) {
	w.Helper()
	must.OK(w, w.try(after))
}

// target returns the target of a gang, nil for none.
func (w *world) target(name string) *v1alpha1.ElasticTarget {
	w.Helper()
	target := &v1alpha1.ElasticTarget{}
	err := w.objects.Get(w.Context(), client.ObjectKey{Namespace: "ns", Name: name}, target)
	if apierrors.IsNotFound(err) {
		return nil
	}
	must.OK(w, err)
	return target
}

// check compares the target of a gang.
func (w *world) check(name string, workers int32, reason string) {
	w.Helper()
	target := w.target(name)
	if target == nil || target.Spec.Workers != workers || target.Status.Reason != reason {
		w.Errorf("gang %s should have %d members, %s: %+v", name, workers, reason, target)
	}
}

// notices returns when the members of a gang leave, by the seconds after noon, for those that leave.
func (w *world) notices() map[string]string {
	w.Helper()
	notices := map[string]string{}
	pods, err := w.kube.CoreV1().Pods("").List(w.Context(), metav1.ListOptions{})
	must.OK(w, err)
	for i := range pods.Items {
		if said, told := pods.Items[i].Annotations[v1alpha1.AnnotationLeaving]; told {
			notices[pods.Items[i].Name] = said
		}
	}
	return notices
}

// events returns what was told since the last call.
func (w *world) events() (list []string) {
	for len(w.said.Events) > 0 {
		list = append(list, <-w.said.Events)
	}
	return list
}

// same compares two values.
func (w *world) same(what string, want, got any) {
	w.Helper()
	if diff := cmp.Diff(want, got); diff != "" {
		w.Errorf("%s (-want +got):\n%s", what, diff)
	}
}

// rigid returns the members of a gang of 4 that waits.
func rigid(t *testing.T) []*v1.Pod { return members(t, "rigid", 4, 0, 0) }

const at5, at25 = "2026-01-31T12:00:05Z", "2026-01-31T12:00:25Z"

// leavers are the notices to the last four members of train.
func leavers(at string) map[string]string {
	return map[string]string{"train-4": at, "train-5": at, "train-6": at, "train-7": at}
}

func TestPass(t *testing.T) {
	w := newWorld(t, 8, members(t, "train", 8, 2, 0)...)
	w.pass(0)
	w.check("train", 8, "Idle")
	target := w.target("train")
	w.same("spec", v1alpha1.ElasticTargetSpec{Source: "label", Min: 2, Max: 8, Workers: 8}, target.Spec)
	if target.Status.Workers != 2 || !target.Status.Since.Time.Equal(noon) || len(target.Status.Moves) > 0 ||
		!meta.IsStatusConditionTrue(target.Status.Conditions, v1alpha1.ConditionResizable) ||
		meta.IsStatusConditionTrue(target.Status.Conditions, v1alpha1.ConditionAdmitted) {
		t.Errorf("status %+v", target.Status)
	}
	w.same("events", []string(nil), w.events())

	// The scheduler places the others.
	w.put(members(t, "train", 8, 8, 0)...)
	w.pass(10)
	w.check("train", 8, "AtMost")
	if s := w.target("train").Status; s.Workers != 8 || !s.Since.Time.Equal(noon) || !meta.IsStatusConditionTrue(s.Conditions, v1alpha1.ConditionAdmitted) {
		t.Errorf("status %+v", s)
	}

	w.put(rigid(t)...)
	w.pass(20)
	w.check("train", 4, "ForWaiting")
	if s := w.target("train").Status; !s.Since.Time.Equal(seconds(20)) || len(s.Moves) != 1 {
		t.Errorf("status %+v", s)
	}
	w.same("events", []string{"Normal ElasticShrink shrinks from 8 to 4 members: gang ns/rigid waits for a place; expected rate -43 %"}, w.events()) // (1/2)^0.8 = 0.57
	w.same("notices", leavers(at25), w.notices())
	w.pass(24)
	w.same("evicted before the notice is over", []string(nil), w.evicted)
	w.pass(25)
	w.same("evicted", []string{"train-4", "train-5", "train-6", "train-7"}, w.evicted)
	w.pass(26)
	w.check("train", 4, "NoRoom") // until those that leave have ended
	w.same("evicted once", 4, len(w.evicted))

	// The other gang has gone, and the Job makes its members anew.
	w.drop(rigid(t)...)
	w.put(members(t, "train", 8, 4, 0)...)
	w.pass(40)
	w.check("train", 4, "Steady") // the GPUs came and went within 20 s, and a change costs a minute
	w.pass(240)
	w.check("train", 8, "Idle")
	w.same("events", []string{"Normal ElasticGrow grows from 4 to 8 members: GPUs are idle that no waiting job can use; expected rate +74 %"}, w.events()) // 2^0.8 = 1.74
	if got := testutil.ToFloat64(w.metrics.moves.WithLabelValues("ForWaiting")) + testutil.ToFloat64(w.metrics.moves.WithLabelValues("Idle")); got != 2 {
		t.Errorf("%v moves are counted", got)
	}
	if got := testutil.ToFloat64(w.metrics.evictions.WithLabelValues(evictionDone)); got != 4 {
		t.Errorf("%v evictions are counted", got)
	}
}

// shrinking returns a gang of 8 members that all run, with a target, for which a gang of four waits.
func shrinking(t *testing.T) *world {
	w := newWorld(t, 8, append(members(t, "train", 8, 8, 0), rigid(t)...)...)
	must.OK(t, w.objects.Create(t.Context(), targetOf("train", 2, 8, 8)))
	return w
}

// A member without its notice is evicted at the time of the notice all the same, and is told again.
func TestNoticeRemoved(t *testing.T) {
	w := shrinking(t)
	w.pass(0)
	w.same("notices", leavers(at5), w.notices())
	p := w.pod("train-7")
	delete(p.Annotations, v1alpha1.AnnotationLeaving)
	w.put(p)
	w.pass(3)
	w.same("notices again", leavers(at5), w.notices())
	p = w.pod("train-7")
	delete(p.Annotations, v1alpha1.AnnotationLeaving)
	w.put(p)
	p = w.pod("train-6")
	p.Annotations[v1alpha1.AnnotationLeaving] = "2030-01-01T00:00:00Z"
	w.put(p)
	w.pass(5)
	w.same("evicted", []string{"train-4", "train-5", "train-6", "train-7"}, w.evicted)
}

// A member that may stay again has no notice, and a later notice starts anew.
func TestNoticeTakenBack(t *testing.T) {
	w := shrinking(t)
	w.pass(0)
	w.drop(rigid(t)...)
	w.pass(3)
	w.check("train", 8, "Idle")
	w.same("notices", map[string]string{}, w.notices())
	w.pass(6)
	w.put(rigid(t)...)
	w.pass(20)
	w.same("later notices", leavers(at25), w.notices())
	w.same("evicted", []string(nil), w.evicted)
}

// A controller that starts keeps to what an earlier one told, as long as that is not later than its own notice.
func TestNoticeOfEarlierProcess(t *testing.T) {
	w := shrinking(t)
	for name, said := range map[string]string{"train-5": "2026-01-31T12:00:02Z", "train-6": "2026-01-31T11:00:00Z", "train-7": "2026-01-31T13:00:00Z"} {
		p := w.pod(name)
		p.Annotations[v1alpha1.AnnotationLeaving] = said
		w.put(p)
	}
	w.pass(0)
	w.same("evicted at once", []string{"train-6"}, w.evicted)
	w.start()
	w.pass(2)
	w.same("evicted", []string{"train-6", "train-5"}, w.evicted)
	w.pass(5)
	w.same("evicted in the end", []string{"train-6", "train-5", "train-4", "train-7"}, w.evicted)
}

func conflict(name string) error {
	return apierrors.NewConflict(v1alpha1.ElasticTargets.GroupResource(), name, errors.New("changed"))
}

// A request that the API server refuses for one gang is an error of the pass. The other gangs are served, and the next pass tries again.
func TestPassFailsInPart(t *testing.T) {
	w := newWorld(t, 16, append(members(t, "train", 8, 2, 0), members(t, "a", 8, 2, 2)...)...)
	w.gangs.sizes[ref("a")] = []int{2, 4, 8}
	must.OK(t, w.kube.Tracker().Add(jobOf("a", 8)))
	must.OK(t, w.objects.Create(t.Context(), targetOf("train", 2, 8, 2)))
	must.OK(t, w.objects.Create(t.Context(), targetOf("a", 2, 8, 2)))
	w.refuse = func(verb, name string) error {
		if verb == "update" && name == "a" {
			return conflict(name)
		}
		return nil
	}
	if err := w.try(0); err == nil || !strings.HasPrefix(err.Error(), "gang ns/a: change its ElasticTarget: ") || strings.Contains(err.Error(), "ns/train") {
		t.Errorf("%v", err)
	}
	w.check("train", 8, "Idle")
	w.check("a", 2, "")
	w.refuse = func(string, string) error { return nil }
	w.pass(10)
	w.check("a", 8, "Idle")
}

// A disruption budget puts off the eviction of one member. The others leave, and the next pass tries again.
func TestBudget(t *testing.T) {
	w := shrinking(t)
	w.pass(0)
	w.refuse = func(verb, name string) error {
		if verb == "evict" && name == "train-5" {
			return apierrors.NewTooManyRequests("the disruption budget", 10)
		}
		return nil
	}
	if err := w.try(5); err == nil || !strings.Contains(err.Error(), "evict pod train-5: ") {
		t.Errorf("%v", err)
	}
	w.same("evicted", []string{"train-4", "train-6", "train-7"}, w.evicted)
	w.refuse = func(string, string) error { return nil }
	w.pass(6)
	w.same("evicted in the end", []string{"train-4", "train-6", "train-7", "train-5"}, w.evicted)
	if got := testutil.ToFloat64(w.metrics.evictions.WithLabelValues(evictionBudget)); got != 1 {
		t.Errorf("%v evictions are counted that a budget forbade", got)
	}
}

// An eviction that a disruption budget forbids is an event, once for each change, and a part of the condition Admitted.
func TestBudgetIsTold(t *testing.T) {
	w := shrinking(t)
	w.pass(0)
	w.events()
	w.refuse = func(verb, name string) error {
		if verb != "evict" || name < "train-6" {
			return nil
		}
		err := apierrors.NewTooManyRequests("Cannot evict pod as it would violate the pod's disruption budget.", 0)
		err.ErrStatus.Details.Causes = append(err.ErrStatus.Details.Causes, metav1.StatusCause{
			Type: policyv1.DisruptionBudgetCause, Message: "The disruption budget at-least-six needs 6 healthy pods and has 6 currently",
		})
		return err
	}
	const why = "pod train-6 must leave, and stays: The disruption budget at-least-six needs 6 healthy pods and has 6 currently"
	admitted := func() string {
		return meta.FindStatusCondition(w.target("train").Status.Conditions, v1alpha1.ConditionAdmitted).Message
	}
	for _, at := range []int{5, 15, 25} {
		if w.try(at) == nil {
			t.Errorf("at %d the pass does not fail", at)
		}
	}
	w.same("events", []string{"Warning ElasticEvictionRefused " + why + "; the controller tries again in each pass"}, w.events())
	if got := admitted(); !strings.HasSuffix(got, "; "+why) {
		t.Errorf("Admitted: %s", got)
	}
	w.refuse = func(string, string) error { return nil }
	w.pass(35)
	w.pass(45)
	w.same("further events", []string(nil), w.events())
	if got := admitted(); strings.Contains(got, "budget") {
		t.Errorf("Admitted in the end: %s", got)
	}
}

func TestRefusalIn(t *testing.T) {
	for want, err := range map[string]error{
		"": apierrors.NewTooManyRequests("the server has received too many requests", 1),
		"Cannot evict pod as it would violate the pod's disruption budget.": apierrors.NewTooManyRequests("Cannot evict pod as it would violate the pod's disruption budget.", 10),
		"This pod has more than one PodDisruptionBudget, which the eviction subresource does not support.": &apierrors.StatusError{ErrStatus: metav1.Status{
			Code: 500, Reason: metav1.StatusReasonInternalError, Message: "This pod has more than one PodDisruptionBudget, which the eviction subresource does not support."}},
		`pods "a" is forbidden: by a policy`: apierrors.NewForbidden(v1.Resource("pods"), "a", errors.New("by a policy")),
	} {
		if got := refusalIn(fmt.Errorf("evict pod a: %w", err)); got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
	if got := refusalIn(nil); got != "" {
		t.Error(got)
	}
}

// The target of a gang that is gone stays for a while, also where this controller never saw the gang.
func TestForget(t *testing.T) {
	pods := members(t, "train", 8, 2, 0)
	w := newWorld(t, 8, pods...)
	must.OK(t, w.objects.Create(t.Context(), targetOf("unknown", 2, 8, 2)))
	w.pass(0)
	w.check("unknown", 2, reasonGone)
	w.drop(pods...)
	w.pass(1)
	if got := w.target("train").Status; got.Workers != 0 || got.Reason != reasonGone ||
		got.Message != "no member of this gang exists; the target is removed at 12:10:00 UTC unless members come back" {
		t.Errorf("the target of a gang that is gone: %+v", got)
	}
	w.pass(599)
	if w.target("train") == nil || w.target("unknown") == nil || len(w.memory) != 2 {
		t.Errorf("a target is gone after 599 s; %d gangs are remembered", len(w.memory))
	}
	w.put(pods...)
	w.pass(600)
	if got := w.target("train"); got == nil || got.Status.Reason == reasonGone || got.Status.Workers != 2 || w.target("unknown") != nil {
		t.Error("after 600 s the target of the gang that came back should stay, and the other one go")
	}
	w.drop(pods...)
	w.pass(1199)
	if w.target("train") == nil {
		t.Error("the time does not start with the last pass that saw the gang")
	}
	w.put(pods...)
	delete(w.gangs.sizes, ref("train")) // its annotation is not legal any more
	w.pass(1199)
	if got := w.target("train").Status; got.Reason != "Invalid" || got.Message != "the gang has members and is not elastic, or what it declares is not legal: "+
		"the events of its pods say more; the target is removed at 12:20:00 UTC unless that changes" {
		t.Errorf("the target of a gang that is not elastic any more: %+v", got)
	}
	w.pass(1200)
	if w.target("train") != nil || len(w.memory) != 0 {
		t.Errorf("the target stays; %d gangs are remembered", len(w.memory))
	}
}

// A gang whose name has the target of another gang is left alone.
func TestOtherSource(t *testing.T) {
	w := newWorld(t, 8, append(members(t, "train", 8, 8, 0), rigid(t)...)...)
	other := targetOf("train", 2, 8, 2)
	other.Spec.Source = string(podgroup.XK8s)
	must.OK(t, w.objects.Create(t.Context(), other))
	w.pass(0)
	w.pass(10)
	w.same("target", other.Spec, w.target("train").Spec)
	w.same("evicted", []string(nil), w.evicted)
	w.same("notices", map[string]string{}, w.notices())
}

// A member that ended well when it was evicted does not come back, so no further member leaves.
func TestWorkerCompleted(t *testing.T) {
	w := shrinking(t)
	completed := member("train", 9)
	completed.Status.Phase = v1.PodSucceeded
	w.completions.see(completed) // it ended by itself
	if got := w.completions.of("uid-train"); got != "" {
		t.Errorf("pod %s was not told to leave", got)
	}
	completed.Annotations[v1alpha1.AnnotationLeaving] = at5
	w.completions.handler().OnDelete(cache.DeletedFinalStateUnknown{Obj: completed}) // no pass has seen it
	w.pass(0)
	w.check("train", 8, reasonFixed)
	if c := meta.FindStatusCondition(w.target("train").Status.Conditions, v1alpha1.ConditionResizable); c == nil || c.Reason != reasonWorkerCompleted || !strings.Contains(c.Message, "pod train-9 ended with exit code 0") {
		t.Errorf("%+v", c)
	}
	w.same("notices", map[string]string{}, w.notices())
	w.pass(700)
	if got := w.completions.of("uid-train"); got != "train-9" {
		t.Errorf("while its Job has pods %q is remembered", got)
	}
	w.drop(w.gangs.pods...)
	w.pass(701)
	if got := w.completions.of("uid-train"); got != "" {
		t.Errorf("%s is remembered of a Job without pods", got)
	}
}

// A controller that restarts still knows it, by the condition, until the Job is made anew. That the size could not change for another reason long before makes no difference.
func TestWorkerCompletedBeforeARestart(t *testing.T) {
	w := shrinking(t)
	target := w.target("train")
	setCondition(&target.Status, v1alpha1.ConditionResizable, false, reasonOwnerMissing, "Job train does not exist", metav1.NewTime(noon.Add(-2*time.Hour)))
	must.OK(t, w.objects.Status().Update(t.Context(), target))
	completed := member("train", 9)
	completed.Status.Phase = v1.PodSucceeded
	completed.Annotations[v1alpha1.AnnotationLeaving] = at5
	w.completions.see(completed)
	w.pass(0)
	w.start()
	w.pass(10)
	w.check("train", 8, reasonFixed)
	w.same("notices", map[string]string{}, w.notices())
	w.hold("paused")
	w.pass(12)
	w.check("train", 8, reasonPaused)
	w.start()
	w.hold("")
	w.pass(14)
	w.check("train", 8, reasonFixed)
	for _, p := range members(t, "train", 8, 8, 0) {
		p.CreationTimestamp = metav1.NewTime(seconds(15))
		w.put(p)
	}
	w.pass(20)
	if w.target("train").Status.Reason == reasonFixed {
		t.Errorf("the members of another Job count as completed: %+v", w.target("train").Status)
	}
}

// One of the members is made anew after an hour, and the scheduler has no place for it while the old one ends: the gang keeps its size.
func TestMissingForAMoment(t *testing.T) {
	pods := members(t, "train", 8, 8, 0)
	w := newWorld(t, 8, pods...)
	must.OK(t, w.objects.Create(t.Context(), targetOf("train", 2, 8, 8)))
	w.pass(0)
	w.pass(3600)
	anew := member("train", 7)
	anew.UID = "uid-anew"
	w.drop(pods[7])
	w.put(anew)
	target := w.target("train")
	target.Status.Scheduler = &v1alpha1.ElasticTargetAdmission{Workers: 8, Message: "no node has a GPU"}
	must.OK(t, w.objects.Status().Update(t.Context(), target))
	for _, at := range []int{3610, 3720} {
		w.pass(at)
		if got := w.target("train").Spec.Workers; got != 8 {
			t.Fatalf("after %d s the target is %d", at-3600, got)
		}
	}
	w.pass(3730)
	w.check("train", 4, reasonNotAdmitted)
}

// All nodes of a GPU model are cordoned while a gang runs there, and other work waits: the pass goes on.
func TestNoDevicesLeft(t *testing.T) {
	waits := members(t, "rigid", 2, 0, 0)
	for _, p := range waits {
		p.Spec.Priority = new(int32(10))
	}
	w := newWorld(t, 8, append(members(t, "train", 8, 8, 0), waits...)...)
	must.OK(t, w.objects.Create(t.Context(), targetOf("train", 2, 8, 8)))
	node, err := w.kube.CoreV1().Nodes().Get(t.Context(), "n1", metav1.GetOptions{})
	must.OK(t, err)
	node.Spec.Unschedulable = true
	must.OK(t, w.kube.Tracker().Update(v1.SchemeGroupVersion.WithResource("nodes"), node, ""))
	w.pass(0)
	w.pass(10)
	if w.target("train").Spec.Workers < 2 {
		t.Errorf("the target is %d", w.target("train").Spec.Workers)
	}
}

// A gang that is not elastic and lacks one member wants room for one, and not for all.
func TestGangLacksOneMember(t *testing.T) {
	w := newWorld(t, 12, append(members(t, "train", 8, 8, 4), members(t, "rigid", 4, 3, 0)...)...)
	must.OK(t, w.objects.Create(t.Context(), targetOf("train", 2, 8, 8)))
	w.pass(0)
	if got := w.target("train").Spec.Workers; got != 8 {
		t.Errorf("one GPU is free for one member, and the target is %d", got)
	}
}

// A gang that was away when the controller started has its history when it comes back.
func TestHistoryOfAGangThatWasAway(t *testing.T) {
	w := newWorld(t, 8)
	target := targetOf("train", 2, 8, 2)
	target.Status.Resizes, target.Status.ResizeSeconds = 3, new(int32(40))
	must.OK(t, w.objects.Create(t.Context(), target))
	must.OK(t, w.objects.Status().Update(t.Context(), target))
	w.pass(0)
	w.put(members(t, "train", 8, 2, 0)...)
	w.pass(10)
	if s := w.target("train").Status; s.Resizes != 3 {
		t.Errorf("it has %d resizes", s.Resizes)
	}
	if m := w.memory[ref("train")]; m.served > 1e6 {
		t.Errorf("its members are taken to have run for %v s", m.served)
	}
}

// Without a notice a member is told that it leaves all the same, and evicted at once.
func TestNoNotice(t *testing.T) {
	w := shrinking(t)
	w.options.Notice = 0
	w.pass(0)
	w.same("notices", leavers("2026-01-31T12:00:00Z"), w.notices())
	if len(w.evicted) != 4 {
		t.Errorf("evicted are %v", w.evicted)
	}
}

// A member that could not be told is not evicted.
func TestNotToldNotEvicted(t *testing.T) {
	w := shrinking(t)
	w.options.Notice = 0
	w.kube.PrependReactor("patch", "pods", func(k8stesting.Action) (bool, runtime.Object, error) {
		return true, nil, apierrors.NewTooManyRequests("later", 1)
	})
	if err := w.try(0); err == nil || len(w.evicted) > 0 {
		t.Errorf("evicted are %v, the error is %v", w.evicted, err)
	}
}

// A gang that has changed its size too often keeps the target while a member of it comes back.
func TestSettlingStays(t *testing.T) {
	w := newWorld(t, 8, members(t, "train", 8, 7, 0)...)
	w.gangs.sizes[ref("train")] = []int{2, 7, 8, 9}
	target := targetOf("train", 2, 9, 8)
	target.Status.Since = &metav1.Time{Time: seconds(-10)}
	for i := range 4 {
		target.Status.Moves = append(target.Status.Moves, metav1.Time{Time: seconds(-100 + i)})
	}
	must.OK(t, w.objects.Create(t.Context(), target))
	must.OK(t, w.objects.Status().Update(t.Context(), target))
	w.pass(0)
	w.check("train", 8, "Settling")
}

// If the first members have ended for good, the target counts them after two minutes, so that the last ones run. While they may come
// back it does not. A gang without an owner keeps its size, and one of members that differ is not decided on.
func TestFirstMembersAreGone(t *testing.T) {
	for name, change := range map[string]func(pods []*v1.Pod){
		"bare": func(pods []*v1.Pod) { pods[4].OwnerReferences, pods[5].OwnerReferences = nil, nil },
		"unlike": func(pods []*v1.Pod) {
			pods[5].Spec.Containers[0].Resources.Limits[v1alpha1.ResourceVGPU] = resource.MustParse("5")
		},
	} {
		t.Run(name, func(t *testing.T) {
			pods := members(t, "train", 6, 0, 0)
			change(pods)
			w := newWorld(t, 8, pods...)
			w.gangs.sizes[ref("train")] = []int{2, 3, 4, 5, 6}
			must.OK(t, w.objects.Create(t.Context(), targetOf("train", 2, 6, 3)))
			w.drop(pods[:4]...)
			for _, after := range []int{0, 110, 120} {
				w.pass(after)
				if got := w.target("train").Spec.Workers; got > 3 {
					t.Errorf("after %d s the target is %d", after, got)
				}
			}
			w.pass(121)
			if got := w.target("train").Status.Message; !strings.HasSuffix(got, "; its first members are gone and do not come back, so the number counts them, for others to run") {
				t.Errorf("the message is %q", got)
			}
			w.pass(131)
			if got := w.target("train").Spec.Workers; got != 6 {
				t.Errorf("the target is %d", got)
			}
			w.put(pods[:4]...) // they come back after all
			w.pass(141)
			if got := w.memory[ref("train")].size.Phases()[0]; got != resize.Following || w.target("train").Spec.Workers == 6 && name == "bare" {
				t.Errorf("the first members are back: %v, %+v", got, w.target("train"))
			}
		})
	}
}

// A size that the scheduler found no places for is not asked for again at once: smaller ones are, and that one after five minutes, then ten.
func TestRefusedSizeWaits(t *testing.T) {
	w := newWorld(t, 8, members(t, "train", 8, 2, 0)...)
	refuse := func() {
		target := w.target("train")
		target.Status.Scheduler = &v1alpha1.ElasticTargetAdmission{Workers: target.Spec.Workers, Message: "no node has a GPU"}
		must.OK(t, w.objects.Status().Update(t.Context(), target))
	}
	must.OK(t, w.objects.Create(t.Context(), targetOf("train", 2, 8, 2)))
	w.options.Elastic.MaxMoves = 100
	at := 0
	step := func(after int, workers int32, reason string) {
		t.Helper()
		at += after
		w.pass(at)
		w.check("train", workers, reason)
	}
	step(0, 8, "Idle")
	refuse()
	step(121, 2, reasonNotAdmitted) // until 421
	step(10, 2, "Steady")           // it has just gone back
	step(200, 4, "Idle")
	refuse()
	step(121, 2, reasonNotAdmitted) // at 452, the second time: until 1052
	for at < 1040 {
		step(10, 2, reasonNotAdmitted)
	}
	if got, want := w.target("train").Status.Message, "it is not asked to have 4 members or more before 12:17 UTC, since the scheduler found no places for more members: no node has a GPU"; got != want {
		t.Errorf("the message is %q, want %q", got, want)
	}
	step(30, 8, "Idle")
	for i, p := range members(t, "train", 8, 8, 0) {
		if i >= 2 {
			w.put(p)
		}
	}
	step(10, 8, "AtMost")
	if w.memory[ref("train")].size.Phases()[2] != resize.Free {
		t.Error("the refusals are remembered although all members run")
	}
}

// A job has until then the GPUs that an inference fleet will need in half an hour: n1 has 8 GPUs, the job 2 of them, and the fleet will want 6.
// It gives them back two minutes before, and whatever the fleet needs beyond its least size.
func TestLendsWhatFleetsNeedLater(t *testing.T) {
	fleet := &v1alpha1.InferenceFleet{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "bert"}}
	fleet.Spec.Variants = []v1alpha1.FleetVariant{
		{Name: "a100", GPUModel: testkit.A100.Name, Slots: 5}, {Name: "unknown", GPUModel: "H900", Slots: 10}, {Name: "silent"},
	}
	later := func(at time.Time, replicas int32) []v1alpha1.FleetNeed {
		return []v1alpha1.FleetNeed{{From: metav1.NewTime(at), Replicas: replicas}}
	}
	fleet.Status.Variants = []v1alpha1.FleetVariantStatus{
		{Name: "silent", Later: later(noon, 99)}, {Name: "unknown", Later: later(noon, 99)}, {Name: "a100", Replicas: 2, Later: later(seconds(1800), 14)},
	}
	w := newWorld(t, 8, members(t, "train", 8, 2, 0)...)
	w.options.Elastic.MaxMoves, w.options.Elastic.GiveBack = 100, 120
	must.OK(t, w.objects.Create(t.Context(), targetOf("train", 2, 8, 2)))
	must.OK(t, w.objects.Create(t.Context(), fleet))
	w.pass(0)
	w.check("train", 8, "Idle") // nobody reads the fleet
	must.OK(t, w.objects.Delete(t.Context(), w.target("train")))
	must.OK(t, w.objects.Create(t.Context(), targetOf("train", 2, 8, 2)))
	w.options.Fleets = w.objects
	w.pass(10)
	w.check("train", 8, "Lent")
	for i, p := range members(t, "train", 8, 8, 0) {
		if i >= 2 {
			w.put(p)
		}
	}
	w.pass(1670)
	w.check("train", 8, "AtMost")
	w.pass(1680)
	w.check("train", 2, "ForReserved")
}

// A fleet has just grown, and its Deployment has not made the pods of new replicas yet: the job does not take the GPUs that these will need. n1 has 8
// GPUs, the job 4 of them, and the fleet 2.
func TestFleetsKeepGPUsOfReplicasWithoutPods(t *testing.T) {
	replica := func(i int) *v1.Pod {
		p := member("bert", i)
		p.Labels = map[string]string{"app": "bert"}
		place(t, p, "n1", 4+i)
		return p
	}
	ended := replica(2)
	ended.Status.Phase = v1.PodFailed
	first := []*v1.Pod{replica(0), replica(1)}
	for _, tt := range []struct {
		name     string
		selector string
		pods     []*v1.Pod
		// replicas are what the fleet should have, at the seconds 0, 60 and so on.
		replicas []int32
		workers  int32
		reason   string
	}{
		{"no pods yet", "app=bert", first, []int32{4}, 4, "NoRoom"},
		{"a pod that has ended is none", "app=bert", append(slices.Clone(first), ended), []int32{4}, 4, "NoRoom"},
		{"one of two pods", "app=bert", append(slices.Clone(first), replica(2)), []int32{4}, 4, "NoRoom"},
		{"no job shrinks for them", "app=bert", first, []int32{99}, 4, "NoRoom"},
		{"not for long yet", "app=bert", first, []int32{4, 4}, 4, "NoRoom"},
		{"pods that never come", "app=bert", first, []int32{4, 4, 4}, 6, "Idle"},
		{"pods that never come for a number that changes", "app=bert", first, []int32{4, 5, 4}, 6, "Idle"},
		{"the selector is unknown", "", first, []int32{4}, 6, "Idle"},
		{"the selector is none", "=,=", first, []int32{4}, 6, "Idle"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			fleet := &v1alpha1.InferenceFleet{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "bert"}}
			fleet.Spec.Variants = []v1alpha1.FleetVariant{{Name: "a100", GPUModel: testkit.A100.Name, Slots: 10}}
			w := newWorld(t, 8, append(members(t, "train", 6, 4, 0), tt.pods...)...)
			w.gangs.sizes[ref("train")] = []int{2, 4, 6}
			w.options.Elastic.MaxMoves, w.options.Elastic.GiveBack, w.options.Fleets = 100, 120, w.objects
			must.OK(t, w.objects.Create(t.Context(), targetOf("train", 2, 6, 4)))
			must.OK(t, w.objects.Create(t.Context(), fleet))
			for i, replicas := range tt.replicas {
				fleet.Status.Variants = []v1alpha1.FleetVariantStatus{{Name: "a100", Replicas: replicas, Ready: 2, Selector: tt.selector}}
				must.OK(t, w.objects.Update(t.Context(), fleet))
				w.pass(60 * i)
			}
			w.check("train", tt.workers, tt.reason)
		})
	}
}

// A tenant with many fleets, pods and a long selector uses up the comparisons of a pass, and its replicas count as made.
func TestChecksOfReplicasAreBounded(t *testing.T) {
	pods := make([]*v1.Pod, 1000)
	for i := range pods {
		pods[i] = &v1.Pod{}
	}
	u := &unmade{now: noon, patience: time.Minute, checks: 2500, waits: map[variantOf]unmadeWait{}, pods: map[string][]*v1.Pod{"ns": pods}}
	s := &v1alpha1.FleetVariantStatus{Name: "a100", Replicas: 3, Selector: "app=bert,tier=web"}
	if first, second := u.count("ns", "bert", s), u.count("ns", "gpt", s); first != 3 || second != 0 {
		t.Errorf("within the bound %d replicas lack pods, beyond it %d; want 3 and 0", first, second)
	}
}

// Events of one object become a series where they have one action: each change has its own.
func TestChangesHaveNames(t *testing.T) {
	if a, b, c := resizing(4, 2), resizing(2, 1), resizing(2, 4); a == b || a == c || a != "Resize4To2" {
		t.Errorf("%s, %s, %s", a, b, c)
	}
}

// The CPU of the hosts bounds a gang as its GPUs do: n1 has 64 CPUs, and each member takes 15.
func TestHostBoundsTheSize(t *testing.T) {
	pods := members(t, "train", 8, 2, 0)
	for _, p := range pods {
		p.Spec.Containers[0].Resources.Requests = v1.ResourceList{v1.ResourceCPU: resource.MustParse("15")}
	}
	w := newWorld(t, 8, pods...)
	must.OK(t, w.objects.Create(t.Context(), targetOf("train", 2, 8, 2)))
	w.pass(0)
	w.check("train", 4, "Idle")
}

// Members that leave or end give their devices back: the gang does not shrink any further for the pods that wait for them.
func TestLeavingMembersCountAsGone(t *testing.T) {
	for _, ending := range []bool{false, true} {
		pods := members(t, "train", 8, 8, 0)
		if ending {
			for _, p := range pods[4:] {
				p.DeletionTimestamp = &metav1.Time{Time: seconds(30)}
			}
		}
		single, other := member("single", 0), member("other", 0)
		single.Labels, other.Labels = nil, nil
		w := newWorld(t, 8, append(pods, single, other)...)
		must.OK(t, w.objects.Create(t.Context(), targetOf("train", 2, 8, 4)))
		w.pass(10)
		if target := w.target("train"); target.Spec.Workers != 4 {
			t.Errorf("ending %v: %+v", ending, target)
		}
		w.pass(100) // those that should have ended long ago keep their devices
		if target := w.target("train"); ending && target.Spec.Workers != 2 {
			t.Errorf("overdue: %+v", target)
		}
	}
}
