package gpupreempt

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"sync"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/client-go/dynamic"
	dynamicfake "k8s.io/client-go/dynamic/fake"
	clienttesting "k8s.io/client-go/testing"
	"k8s.io/client-go/tools/events"
	fwk "k8s.io/kube-scheduler/framework"
	"k8s.io/kubernetes/pkg/scheduler"
	frameworkruntime "k8s.io/kubernetes/pkg/scheduler/framework/runtime"
	"k8s.io/kubernetes/pkg/scheduler/profile"

	"github.com/tandem-gpu/tandem/test/fakeapi"

	"github.com/tandem-gpu/tandem/internal/kube"
	"github.com/tandem-gpu/tandem/internal/podgroup"
	"github.com/tandem-gpu/tandem/pkg/api/config"
	_ "github.com/tandem-gpu/tandem/pkg/api/config/scheme"
	"github.com/tandem-gpu/tandem/pkg/api/v1alpha1"
	"github.com/tandem-gpu/tandem/pkg/plugins/gpugang"
	"github.com/tandem-gpu/tandem/pkg/plugins/gpushare"
	"github.com/tandem-gpu/tandem/pkg/vgpu"
)

const rack = "topology.kubernetes.io/rack"

// cluster is an API in memory with a scheduler that runs GPUShare, GPUGang and GPUPreempt in the profile "default-scheduler".
// Pods that are deleted stay for as long as the test wants: see leave.
type cluster struct {
	t        testing.TB
	client   *fakeapi.Clientset
	dynamic  dynamic.Interface
	args     config.GPUPreemptArgs
	gangArgs config.GPUGangArgs
	// clock is that of the plugins and of the API.
	clock clock

	mu sync.Mutex
	// full are the pods of which the API server refuses any patch, since their annotations are too long.
	full map[string]bool
	// refuse answers the deletion of a pod with an error, where it returns one.
	refuse func(pod string) error
	// evicted are the pods that somebody but the test deleted, in that order.
	evicted []string

	plugin *Plugin
	stop   func()
}

type clock struct {
	mu    sync.Mutex
	ahead time.Duration
}

func (c *clock) now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return time.Now().Add(c.ahead)
}

func (c *clock) pass(d time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.ahead += d
}

// newCluster returns a cluster with nodes n1, n2, … of as many devices as given, of 10 slots and 40 GiB each, and a scheduler.
// Nodes 1 and 2 are in rack r1, 3 and 4 in r2, and so on.
func newCluster(t testing.TB, devices ...int) *cluster {
	c := prepareCluster(t, devices...)
	c.start()
	return c
}

func prepareCluster(t testing.TB, devices ...int) *cluster {
	client := fakeapi.NewClientset()
	c := &cluster{t: t, client: client, args: config.GPUPreemptArgs{
		Mode: config.PreemptionEnabled, EvictionsPerMinute: 1000, PodDisruptionBudgets: config.BudgetsPreferred, MaxSteps: 4096,
		Protected: config.ProtectedPods{Namespaces: []string{metav1.NamespaceSystem}},
	}, gangArgs: config.GPUGangArgs{
		PlacementDeadline: metav1.Duration{Duration: 5 * time.Minute}, DrainAfter: metav1.Duration{Duration: time.Minute},
		Drain: config.DrainEnabled, DrainTimeout: metav1.Duration{Duration: time.Hour}, MaxDomains: 32, PreferredTopology: []string{v1.LabelHostname, rack},
	}}
	client.PrependReactor("create", "pods", c.bind)
	client.PrependReactor("delete", "pods", c.delete)
	client.PrependReactor("patch", "pods", c.patch)
	lists := map[schema.GroupVersionResource]string{
		v1alpha1.GPUNodes: "GPUNodeList", v1alpha1.GroupVersion.WithResource("workloadprofiles"): "WorkloadProfileList",
	}
	c.dynamic = dynamicfake.NewSimpleDynamicClientWithCustomListKinds(runtime.NewScheme(), lists)
	for i, count := range devices {
		c.createNode(fmt.Sprintf("n%d", i+1), fmt.Sprintf("r%d", i/2+1), count)
	}
	return c
}

var podResource = v1.SchemeGroupVersion.WithResource("pods")

// bind does what the API server does with a Binding.
func (c *cluster) bind(action clienttesting.Action) (bool, runtime.Object, error) {
	if action.GetSubresource() != "binding" {
		return false, nil, nil
	}
	b := action.(clienttesting.CreateAction).GetObject().(*v1.Binding)
	object, err := c.client.Tracker().Get(podResource, action.GetNamespace(), b.Name)
	if err != nil {
		return true, nil, err
	}
	pod := object.(*v1.Pod).DeepCopy()
	if pod.UID != b.UID && b.UID != "" || pod.Spec.NodeName != "" {
		return true, nil, apierrors.NewConflict(v1.Resource("pods/binding"), b.Name, fmt.Errorf("it is on node %q", pod.Spec.NodeName))
	}
	c.place(pod, b.Target.Name, b.Annotations)
	return true, b, c.client.Tracker().Update(podResource, pod, pod.Namespace)
}

// place notes that a pod got its node and runs.
func (c *cluster) place(pod *v1.Pod, node string, annotations map[string]string) {
	pod.Spec.NodeName = node
	if pod.Annotations == nil {
		pod.Annotations = map[string]string{}
	}
	maps.Copy(pod.Annotations, annotations)
	now := metav1.NewTime(c.clock.now())
	pod.Status.Conditions = []v1.PodCondition{{Type: v1.PodScheduled, Status: v1.ConditionTrue, LastTransitionTime: now}}
	pod.Status.StartTime = &now
}

// delete does what the API server does with the deletion of a pod that runs: the pod stays until its kubelet is done with it.
func (c *cluster) delete(action clienttesting.Action) (bool, runtime.Object, error) {
	d := action.(clienttesting.DeleteActionImpl)
	object, err := c.client.Tracker().Get(podResource, d.Namespace, d.Name)
	if err != nil {
		return true, nil, err
	}
	pod := object.(*v1.Pod).DeepCopy()
	if p := d.DeleteOptions.Preconditions; p != nil && p.UID != nil && *p.UID != pod.UID {
		return true, nil, apierrors.NewConflict(v1.Resource("pods"), d.Name, fmt.Errorf("the UID is %s", pod.UID))
	}
	if now := d.DeleteOptions.GracePeriodSeconds; now != nil && *now == 0 {
		return false, nil, nil
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.refuse != nil {
		if err := c.refuse(pod.Name); err != nil {
			return true, nil, err
		}
	}
	if pod.DeletionTimestamp == nil { // the stock scheduler asks again where it has not seen yet that the pod leaves
		c.evicted = append(c.evicted, pod.Name)
	}
	if pod.Spec.NodeName == "" {
		return false, nil, nil
	}
	grace := kube.GracePeriod(pod)
	if now := d.DeleteOptions.GracePeriodSeconds; now != nil {
		grace = time.Duration(*now) * time.Second
	}
	at := metav1.NewTime(c.clock.now().Add(grace))
	if pod.DeletionTimestamp == nil {
		pod.DeletionTimestamp = &at
	}
	return true, nil, c.client.Tracker().Update(podResource, pod, pod.Namespace)
}

// patch refuses patches that name another UID than that of the pod, as the API server does.
func (c *cluster) patch(action clienttesting.Action) (bool, runtime.Object, error) {
	a := action.(clienttesting.PatchAction)
	var named struct{ Metadata struct{ UID types.UID } }
	object, err := c.client.Tracker().Get(podResource, a.GetNamespace(), a.GetName())
	if err != nil {
		return true, nil, err
	}
	if err := json.Unmarshal(a.GetPatch(), &named); err != nil {
		return true, nil, err
	}
	if c.full[a.GetName()] {
		errs := field.ErrorList{field.TooLong(field.NewPath("metadata", "annotations"), "", 256<<10)}
		return true, nil, apierrors.NewInvalid(schema.GroupKind{Kind: "Pod"}, a.GetName(), errs)
	}
	if uid := object.(*v1.Pod).UID; named.Metadata.UID != "" && named.Metadata.UID != uid {
		return true, nil, apierrors.NewConflict(v1.Resource("pods"), a.GetName(), fmt.Errorf("the UID is %s", uid))
	}
	return false, nil, nil
}

// refuseDeletes has deletions answered by fn from now on.
func (c *cluster) refuseDeletes(fn func(pod string) error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.refuse = fn
}

// victims returns who was evicted so far, by name.
func (c *cluster) victims() []string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.Sorted(slices.Values(c.evicted))
}

// awaitVictims waits until so many pods were evicted, and returns them.
func (c *cluster) awaitVictims(count int) []string {
	c.t.Helper()
	c.await(fmt.Sprintf("%d pods are evicted", count), func() bool { return len(c.victims()) >= count })
	return c.victims()
}

// miss returns what is known of the preemptions for a pod that came to nothing.
func (c *cluster) miss(name string) miss {
	c.plugin.state.mu.Lock()
	defer c.plugin.state.mu.Unlock()
	return c.plugin.state.misses[vgpu.UID("uid-"+name)]
}

// leave has pods gone, at the end of their grace period or before.
func (c *cluster) leave(names ...string) {
	c.t.Helper()
	none := int64(0)
	for _, name := range names {
		if err := c.client.CoreV1().Pods("default").Delete(c.t.Context(), name, metav1.DeleteOptions{GracePeriodSeconds: &none}); err != nil {
			c.t.Fatal(err)
		}
	}
}

// start runs a scheduler until stop or the end of the test.
func (c *cluster) start() {
	c.t.Helper()
	ctx, cancel := context.WithCancel(c.t.Context())
	informers := scheduler.NewInformerFactory(c.client, 0, nil)
	broadcaster := events.NewBroadcaster(&events.EventSinkImpl{Interface: c.client.EventsV1()})
	var shares *gpushare.Plugin
	var gangs *gpugang.Plugin
	registry := frameworkruntime.Registry{
		gpushare.Name: func(ctx context.Context, args runtime.Object, h fwk.Handle) (_ fwk.Plugin, err error) {
			shares, err = gpushare.NewWithClient(ctx, args, h, c.dynamic)
			return shares, err
		},
		gpugang.Name: func(ctx context.Context, args runtime.Object, h fwk.Handle) (fwk.Plugin, error) {
			set, err := podgroup.New(ctx, podgroup.Options{Pods: h.SharedInformerFactory().Core().V1().Pods().Informer()})
			if err != nil {
				return nil, err
			}
			gangs, err = gpugang.New(ctx, args, h, gpugang.Options{Shares: func() gpugang.Shares { return shares }, Gangs: set, Now: c.clock.now})
			return gangs, err
		},
		Name: func(ctx context.Context, args runtime.Object, h fwk.Handle) (_ fwk.Plugin, err error) {
			o := Options{Shares: func() Shares { return shares }, Gangs: func() Gangs { return gangs }, Now: c.clock.now}
			c.plugin, err = New(ctx, args, h, o)
			return c.plugin, err
		},
	}
	s, err := scheduler.New(ctx, c.client, informers, nil, profile.NewRecorderFactory(broadcaster),
		scheduler.WithProfiles(c.profile()), scheduler.WithFrameworkOutOfTreeRegistry(registry),
		scheduler.WithPodInitialBackoffSeconds(1), scheduler.WithPodMaxBackoffSeconds(1))
	if err != nil {
		cancel()
		c.t.Fatal(err)
	}
	if err := broadcaster.StartRecordingToSinkWithContext(ctx); err != nil {
		cancel()
		c.t.Fatal(err)
	}
	informers.Start(ctx.Done())
	informers.WaitForCacheSync(ctx.Done())
	if err := s.WaitForHandlersSync(ctx); err != nil {
		cancel()
		c.t.Fatal(err)
	}
	go gangs.Run(ctx)
	go c.plugin.Run(ctx)
	done := make(chan struct{})
	go func() {
		defer close(done)
		s.Run(ctx)
	}()
	c.stop = func() {
		cancel()
		<-done
		for _, p := range s.Profiles { // those do not wait for the context
			p.IterateOverWaitingPods(func(w fwk.WaitingPod) { w.Reject("", "the scheduler ended") })
		}
		broadcaster.Shutdown()
		informers.Shutdown()
	}
	c.t.Cleanup(func() { c.stop() })
}
