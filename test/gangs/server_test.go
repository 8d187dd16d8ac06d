package gangs

import (
	"context"
	"encoding/json"
	"fmt"
	"sync"
	"time"

	v1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	dynamicfake "k8s.io/client-go/dynamic/fake"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"

	"github.com/tandem-gpu/tandem/pkg/api/v1alpha1"
)

const (
	// namespace of everything.
	namespace = "default"
	// grace is how long a pod that runs takes to end.
	grace = 5 * time.Second
	// collectedAfter is how long a pod stays whose node is gone.
	collectedAfter = 3 * time.Second
)

var podResource = v1.SchemeGroupVersion.WithResource("pods")

// api is the API server in memory, and the kubelets: bound pods end, when told or when their time is over.
type api struct {
	core    *fake.Clientset
	dynamic *dynamicfake.FakeDynamicClient
	begin   time.Time
	// changed is called after each change of a pod's node or end, with no lock of the API server free.
	changed func(pod *v1.Pod, what string)
	// sized is called after each change of an ElasticTarget, likewise, with 0 for one that is gone.
	sized func(gang string, workers int)
	// lost reports whether a node is gone.
	lost func(node string) bool

	mu     sync.Mutex
	faults []*fault
	// pending are the effects that come late.
	pending []*effect
	// log is what happened.
	log []string
	// hit are the pods that a fault struck.
	hit map[string]bool
	// late are the pods that may have been bound after the scheduler had given up.
	late map[types.UID]bool
	// spins is what the scheduler tries without end, "" for nothing.
	spins string
	// refusals are when requests to remove a pod met a fault.
	refusals []time.Time
	// running is how long pods run that are bound from now on, 0 for what they say themselves.
	running time.Duration
}

// effect is something that happens later, unless it was brought forward.
type effect struct {
	once  sync.Once
	apply func()
}

func newAPI() *api {
	//nolint:staticcheck // the other constructor tracks who owns which field, which takes seconds
	a := &api{core: fake.NewSimpleClientset(), begin: time.Now(), hit: map[string]bool{}, late: map[types.UID]bool{}}
	drop := func(clienttesting.Action) (bool, runtime.Object, error) { return true, nil, nil }
	a.core.PrependReactor("*", "events", drop)
	a.core.PrependReactor("create", "pods", a.bind)
	a.core.PrependReactor("create", "pods", a.evict)
	a.core.PrependReactor("delete", "pods", a.remove)
	a.core.PrependReactor("patch", "pods", a.patch)
	a.dynamic = dynamicfake.NewSimpleDynamicClientWithCustomListKinds(runtime.NewScheme(), map[schema.GroupVersionResource]string{
		v1alpha1.GPUNodes: "GPUNodeList", v1alpha1.WorkloadProfiles: "WorkloadProfileList",
		nativeGroups: "PodGroupList", xk8sGroups: "PodGroupList", v1alpha1.ElasticTargets: "ElasticTargetList",
	})
	a.dynamic.PrependReactor("*", v1alpha1.ElasticTargets.Resource, a.target)
	return a
}

// say adds a line to the log.
func (a *api) say(format string, args ...any) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.sayLocked(format, args...)
}

func (a *api) sayLocked(format string, args ...any) {
	at := time.Since(a.begin).Round(10 * time.Millisecond)
	a.log = append(a.log, fmt.Sprintf("%8v  ", at)+fmt.Sprintf(format, args...))
}

// struck notes that a fault hit a pod. The caller holds the mutex.
func (a *api) struck(pod string) { a.hit[pod] = true }

// wasHit returns the pods that a fault struck since the last call.
func (a *api) wasHit() map[string]bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	hit := a.hit
	a.hit = map[string]bool{}
	return hit
}

// belated notes that a pod is about to be bound by a request that the scheduler may have given up.
func (a *api) belated(uid types.UID) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.late[uid] = true
}

func (a *api) isLate(uid types.UID) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.late[uid]
}

// later has something happen after a while, or with settle.
func (a *api) later(after time.Duration, apply func()) {
	e := &effect{apply: apply}
	a.mu.Lock()
	a.pending = append(a.pending, e)
	a.mu.Unlock()
	time.AfterFunc(after, func() { e.once.Do(e.apply) })
}

// settle has happen at once what is to happen later.
func (a *api) settle() {
	a.mu.Lock()
	pending := a.pending
	a.pending = nil
	a.mu.Unlock()
	for _, e := range pending {
		e.once.Do(e.apply)
	}
}

// pod returns a pod, nil where there is none.
func (a *api) pod(name string) *v1.Pod {
	object, err := a.core.Tracker().Get(podResource, namespace, name)
	if err != nil {
		return nil
	}
	return object.(*v1.Pod)
}

// bind does what the API server does with a Binding: node and annotations in one step, with the UID as a precondition. It
// runs under the lock of the API server, as remove.
func (a *api) bind(action clienttesting.Action) (bool, runtime.Object, error) {
	if action.GetSubresource() != "binding" {
		return false, nil, nil
	}
	b := action.(clienttesting.CreateAction).GetObject().(*v1.Binding)
	pod := a.pod(b.Name)
	if pod == nil {
		return true, nil, apierrors.NewNotFound(v1.Resource("pods"), b.Name)
	}
	if pod.UID != b.UID || pod.Spec.NodeName != "" || pod.DeletionTimestamp != nil {
		why := fmt.Errorf("pod has UID %s, is on node %q, deleted %v", pod.UID, pod.Spec.NodeName, pod.DeletionTimestamp)
		return true, nil, apierrors.NewConflict(v1.Resource("pods/binding"), b.Name, why)
	}
	pod = pod.DeepCopy()
	pod.Spec.NodeName = b.Target.Name
	for k, v := range b.Annotations {
		metav1.SetMetaDataAnnotation(&pod.ObjectMeta, k, v)
	}
	now := moment()
	pod.Status.Conditions = []v1.PodCondition{{Type: v1.PodScheduled, Status: v1.ConditionTrue, LastTransitionTime: now}}
	pod.Status.StartTime = &now
	err := a.core.Tracker().Update(podResource, pod, namespace)
	a.say("bind %s to %s", pod.Name, placeOf(pod))
	a.changed(pod, "bound")
	a.run(pod)
	return true, b, err
}

// run has a bound pod end when its time is over.
func (a *api) run(pod *v1.Pod) {
	name, uid, left := pod.Name, pod.UID, a.running
	if left == 0 {
		left, _ = time.ParseDuration(pod.Annotations[runsAnnotation])
	}
	if a.lost(pod.Spec.NodeName) {
		left = collectedAfter
	}
	if left > 0 {
		time.AfterFunc(left, func() { a.end(name, uid, "ended") })
	}
}

// end removes a pod unless it is gone already.
func (a *api) end(name string, uid any, how string) {
	if pod := a.pod(name); pod != nil && any(pod.UID) == uid {
		a.say("%s %s", how, name)
		_ = a.core.CoreV1().Pods(namespace).Delete(context.Background(), name, *metav1.NewDeleteOptions(0))
	}
}

// patch refuses a patch for a pod that is another one by now.
func (a *api) patch(action clienttesting.Action) (bool, runtime.Object, error) {
	p := action.(clienttesting.PatchAction)
	var wants struct {
		Metadata struct{ UID types.UID }
	}
	if err := json.Unmarshal(p.GetPatch(), &wants); err != nil {
		return true, nil, err
	}
	if pod := a.pod(p.GetName()); pod != nil && wants.Metadata.UID != "" && wants.Metadata.UID != pod.UID {
		return true, nil, apierrors.NewConflict(v1.Resource("pods"), p.GetName(), fmt.Errorf("its UID is %s", pod.UID))
	}
	return false, nil, nil
}

// remove begins the end of a pod: one that is bound takes its time, unless that is said to be none.
func (a *api) remove(action clienttesting.Action) (bool, runtime.Object, error) {
	del := action.(clienttesting.DeleteActionImpl)
	pod := a.pod(del.Name)
	if pod == nil {
		return true, nil, apierrors.NewNotFound(v1.Resource("pods"), del.Name)
	}
	if p := del.DeleteOptions.Preconditions; p != nil && p.UID != nil && *p.UID != pod.UID {
		return true, nil, apierrors.NewConflict(v1.Resource("pods"), del.Name, nil)
	}
	seconds := del.DeleteOptions.GracePeriodSeconds
	if now := seconds != nil && *seconds == 0; now || pod.Spec.NodeName == "" {
		err := a.core.Tracker().Delete(podResource, namespace, del.Name)
		a.changed(pod, "gone")
		return true, nil, err
	}
	return true, nil, a.ending(pod)
}

// ending gives a bound pod its time to end.
func (a *api) ending(pod *v1.Pod) error {
	if pod.DeletionTimestamp != nil {
		return nil
	}
	pod = pod.DeepCopy()
	now := moment()
	pod.DeletionTimestamp = &now
	a.say("ending %s", pod.Name)
	a.changed(pod, "ending")
	time.AfterFunc(grace, func() { a.end(pod.Name, pod.UID, "ended") })
	return a.core.Tracker().Update(podResource, pod, namespace)
}

// evict is pods/eviction. No budget guards pods here, but faults may.
func (a *api) evict(action clienttesting.Action) (bool, runtime.Object, error) {
	if action.GetSubresource() != "eviction" {
		return false, nil, nil
	}
	e := action.(clienttesting.CreateAction).GetObject().(*policyv1.Eviction)
	pod := a.pod(e.Name)
	if pod == nil {
		return true, nil, apierrors.NewNotFound(v1.Resource("pods"), e.Name)
	}
	if a.strike(evictFault, e.Name) != "" {
		return true, nil, apierrors.NewTooManyRequests("a budget is in the way", 1)
	}
	if o := e.DeleteOptions; o != nil && o.Preconditions != nil && o.Preconditions.UID != nil && *o.Preconditions.UID != pod.UID {
		return true, nil, apierrors.NewConflict(v1.Resource("pods/eviction"), e.Name, nil)
	}
	a.say("evict %s", e.Name)
	if pod.Spec.NodeName == "" {
		err := a.core.Tracker().Delete(podResource, namespace, e.Name)
		a.changed(pod, "gone")
		return true, nil, err
	}
	if pod.DeletionTimestamp == nil {
		pod = disrupted(pod)
	}
	return true, nil, a.ending(pod)
}

// moment is the time as the API has it, in whole seconds.
func moment() metav1.Time {
	now := metav1.Now()
	return now.Rfc3339Copy()
}
