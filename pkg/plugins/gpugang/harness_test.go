package gpugang

import (
	"context"
	"fmt"
	"maps"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	utilfeature "k8s.io/apiserver/pkg/util/feature"
	"k8s.io/client-go/dynamic"
	dynamicfake "k8s.io/client-go/dynamic/fake"
	clienttesting "k8s.io/client-go/testing"
	"k8s.io/client-go/tools/events"
	fwk "k8s.io/kube-scheduler/framework"
	"k8s.io/kubernetes/pkg/features"
	"k8s.io/kubernetes/pkg/scheduler"
	schedulerconfig "k8s.io/kubernetes/pkg/scheduler/apis/config"
	"k8s.io/kubernetes/pkg/scheduler/apis/config/latest"
	frameworkruntime "k8s.io/kubernetes/pkg/scheduler/framework/runtime"
	"k8s.io/kubernetes/pkg/scheduler/profile"

	"github.com/tandem-gpu/tandem/test/bubble"
	"github.com/tandem-gpu/tandem/test/fakeapi"

	"github.com/tandem-gpu/tandem/internal/podgroup"
	"github.com/tandem-gpu/tandem/pkg/api/config"
	_ "github.com/tandem-gpu/tandem/pkg/api/config/scheme"
	"github.com/tandem-gpu/tandem/pkg/api/v1alpha1"
	"github.com/tandem-gpu/tandem/pkg/plugins/gpushare"
)

const rack = "topology.kubernetes.io/rack"

// cluster is an API in memory with a scheduler that runs GPUShare and GPUGang in the profile "default-scheduler".
type cluster struct {
	t       *testing.T
	client  *fakeapi.Clientset
	dynamic dynamic.Interface
	args    config.GPUGangArgs
	// moved is what the plugin's clock is ahead of the real one.
	clock clock

	mu sync.Mutex
	// refuse answers a Binding with an error, where it returns one.
	refuse func(pod string) error
	// evictions counts those that were asked for.
	evictions atomic.Int64
	// refuseEviction answers every eviction, where it is not nil.
	refuseEviction error

	plugin *Plugin
	shares *gpushare.Plugin
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
func newCluster(t *testing.T, devices ...int) *cluster {
	c := prepareCluster(t, devices...)
	c.start()
	return c
}

func prepareCluster(t *testing.T, devices ...int) *cluster {
	client := fakeapi.NewClientset()
	c := &cluster{t: t, client: client, args: config.GPUGangArgs{
		PlacementDeadline: metav1.Duration{Duration: 5 * time.Minute}, DrainAfter: metav1.Duration{Duration: time.Minute},
		Drain: config.DrainEnabled, DrainTimeout: metav1.Duration{Duration: time.Hour}, MaxDomains: 32, PreferredTopology: []string{v1.LabelHostname, rack},
	}}
	client.PrependReactor("create", "pods", c.bind)
	client.PrependReactor("create", "pods", c.evict)
	lists := map[schema.GroupVersionResource]string{
		v1alpha1.GPUNodes: "GPUNodeList", v1alpha1.GroupVersion.WithResource("workloadprofiles"): "WorkloadProfileList",
	}
	c.dynamic = dynamicfake.NewSimpleDynamicClientWithCustomListKinds(runtime.NewScheme(), lists)
	for i, count := range devices {
		c.createNode(fmt.Sprintf("n%d", i+1), fmt.Sprintf("r%d", i/2+1), count)
	}
	return c
}

// bind does what the API server does with a Binding, unless it is to be refused.
func (c *cluster) bind(action clienttesting.Action) (bool, runtime.Object, error) {
	if action.GetSubresource() != "binding" {
		return false, nil, nil
	}
	b := action.(clienttesting.CreateAction).GetObject().(*v1.Binding)
	c.mu.Lock()
	refuse := c.refuse
	c.mu.Unlock()
	if refuse != nil {
		if err := refuse(b.Name); err != nil {
			return true, nil, err
		}
	}
	object, err := c.client.Tracker().Get(v1.SchemeGroupVersion.WithResource("pods"), action.GetNamespace(), b.Name)
	if err != nil {
		return true, nil, err
	}
	pod := object.(*v1.Pod).DeepCopy()
	if pod.UID != b.UID && b.UID != "" || pod.Spec.NodeName != "" {
		return true, nil, apierrors.NewConflict(v1.Resource("pods/binding"), b.Name, fmt.Errorf("it is on node %q", pod.Spec.NodeName))
	}
	pod.Spec.NodeName = b.Target.Name
	if pod.Annotations == nil {
		pod.Annotations = map[string]string{}
	}
	maps.Copy(pod.Annotations, b.Annotations)
	now := metav1.NewTime(c.clock.now())
	pod.Status.Conditions = []v1.PodCondition{{Type: v1.PodScheduled, Status: v1.ConditionTrue, LastTransitionTime: now}}
	pod.Status.StartTime = &now
	return true, b, c.client.Tracker().Update(v1.SchemeGroupVersion.WithResource("pods"), pod, pod.Namespace)
}

// evict deletes the pod, as the API server does in the end.
func (c *cluster) evict(action clienttesting.Action) (bool, runtime.Object, error) {
	if action.GetSubresource() != "eviction" {
		return false, nil, nil
	}
	name := action.(clienttesting.CreateAction).GetObject().(metav1.Object).GetName()
	c.evictions.Add(1)
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.refuseEviction != nil {
		return true, nil, c.refuseEviction
	}
	return true, nil, c.client.Tracker().Delete(v1.SchemeGroupVersion.WithResource("pods"), action.GetNamespace(), name)
}

// refuseBinds has Bindings answered by fn from now on.
func (c *cluster) refuseBinds(fn func(pod string) error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.refuse = fn
}

// start runs a scheduler until stop or the end of the test.
func (c *cluster) start() {
	c.t.Helper()
	ctx, cancel := context.WithCancel(c.t.Context())
	informers := scheduler.NewInformerFactory(c.client, 0, nil)
	broadcaster := events.NewBroadcaster(&events.EventSinkImpl{Interface: c.client.EventsV1()})
	var shares *gpushare.Plugin
	built := make(chan *Plugin, 1)
	registry := frameworkruntime.Registry{
		gpushare.Name: func(ctx context.Context, args runtime.Object, h fwk.Handle) (fwk.Plugin, error) {
			var err error
			shares, err = gpushare.NewWithClient(ctx, args, h, c.dynamic)
			return shares, err
		},
		Name: func(ctx context.Context, args runtime.Object, h fwk.Handle) (fwk.Plugin, error) {
			set, err := podgroup.New(ctx, podgroup.Options{
				Pods: h.SharedInformerFactory().Core().V1().Pods().Informer(), Queued: utilfeature.DefaultFeatureGate.Enabled(features.GenericWorkload),
			})
			if err != nil {
				return nil, err
			}
			p, err := New(ctx, args, h, Options{Shares: func() Shares { return shares }, Gangs: set, Now: c.clock.now})
			built <- p
			return p, err
		},
	}
	s, err := scheduler.New(ctx, c.client, informers, nil, profile.NewRecorderFactory(broadcaster),
		scheduler.WithProfiles(c.profile()), scheduler.WithFrameworkOutOfTreeRegistry(registry),
		scheduler.WithPodInitialBackoffSeconds(1), scheduler.WithPodMaxBackoffSeconds(1))
	if err != nil {
		cancel()
		c.t.Fatal(err)
	}
	c.plugin, c.shares = <-built, shares
	broadcaster.StartRecordingToSink(ctx.Done())
	informers.Start(ctx.Done())
	informers.WaitForCacheSync(ctx.Done())
	if err := s.WaitForHandlersSync(ctx); err != nil {
		cancel()
		c.t.Fatal(err)
	}
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

// profile is the stock profile with the plugins, set as deploy/ sets them.
func (c *cluster) profile() schedulerconfig.KubeSchedulerProfile {
	defaults, err := latest.Default()
	if err != nil {
		c.t.Fatal(err)
	}
	p := defaults.Profiles[0]
	p.Plugins.MultiPoint.Enabled = append(p.Plugins.MultiPoint.Enabled,
		schedulerconfig.Plugin{Name: Name}, schedulerconfig.Plugin{Name: gpushare.Name, Weight: 10000})
	first := []schedulerconfig.Plugin{{Name: gpushare.Name}, {Name: Name}}
	p.Plugins.PostFilter.Enabled = append(first, p.Plugins.PostFilter.Enabled...)
	p.Plugins.Bind.Enabled = append([]schedulerconfig.Plugin{{Name: Name}, {Name: gpushare.Name}}, p.Plugins.Bind.Enabled...)
	shareArgs := &config.GPUShareArgs{
		Policy: "packed", BindTimeout: metav1.Duration{Duration: time.Second},
		PodsWithoutGPUs: config.SkipPods, MixHalfLife: metav1.Duration{Duration: 24 * time.Hour},
		Interference: config.InterferenceArgs{Model: "default", Learning: config.LearningEnabled, MaxProfiles: 10000},
		Weights:      config.CostWeights{Fragmentation: 100, Interference: 100, Heterogeneity: 100},
		Sharing:      config.SharingWhenScarce, ScarceBelowPercent: 10,
	}
	p.PluginConfig = append(p.PluginConfig, schedulerconfig.PluginConfig{Name: gpushare.Name, Args: shareArgs},
		schedulerconfig.PluginConfig{Name: Name, Args: &c.args})
	for _, pc := range p.PluginConfig {
		if fit, ok := pc.Args.(*schedulerconfig.NodeResourcesFitArgs); ok {
			fit.IgnoredResources = []string{v1alpha1.ResourceVGPU, v1alpha1.ResourceMemory}
		}
	}
	return p
}

// await waits until what is wanted is true and all that runs has come to rest.
func (c *cluster) await(what string, wanted func() bool) {
	c.t.Helper()
	if bubble.Await(wanted) {
		return
	}
	var all strings.Builder
	for _, p := range c.pods() {
		fmt.Fprintf(&all, "%s on %q: %s\n", p.Name, p.Spec.NodeName, message(&p))
	}
	c.t.Fatalf("waiting until %s for %v:\n%s", what, bubble.Patience, all.String())
}

func (c *cluster) awaitBound(prefix string, count int) map[string]string {
	c.t.Helper()
	c.await(fmt.Sprintf("%d pods %s are bound", count, prefix), func() bool { return len(c.bound(prefix)) == count })
	return c.bound(prefix)
}

// awaitMessage returns the message of the first pod whose name begins with a prefix and whose message has a text.
func (c *cluster) awaitMessage(prefix, text string) string {
	c.t.Helper()
	found := ""
	c.await("a pod "+prefix+" is refused because of "+text, func() bool {
		for _, p := range c.pods() {
			if strings.HasPrefix(p.Name, prefix) && strings.Contains(message(&p), text) {
				found = message(&p)
			}
		}
		return found != ""
	})
	return found
}

// checkWhole fails where a gang has some of its members bound and fewer than must run.
func (c *cluster) checkWhole(prefix string, least int) {
	c.t.Helper()
	if count := len(c.bound(prefix)); count != 0 && count < least {
		c.t.Errorf("%d members %s are bound of %d", count, prefix, least)
	}
}
