package fakecluster

import (
	"context"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	utilfeature "k8s.io/apiserver/pkg/util/feature"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/events"
	fwk "k8s.io/kube-scheduler/framework"
	"k8s.io/kubernetes/pkg/features"
	"k8s.io/kubernetes/pkg/scheduler"
	schedulerconfig "k8s.io/kubernetes/pkg/scheduler/apis/config"
	"k8s.io/kubernetes/pkg/scheduler/apis/config/latest"
	frameworkruntime "k8s.io/kubernetes/pkg/scheduler/framework/runtime"
	"k8s.io/kubernetes/pkg/scheduler/profile"

	"github.com/tandem-gpu/tandem/pkg/api/config"
	_ "github.com/tandem-gpu/tandem/pkg/api/config/scheme" // for the defaults of profiles
	"github.com/tandem-gpu/tandem/pkg/api/v1alpha1"
	"github.com/tandem-gpu/tandem/test/must"
)

// Profile returns the stock profile "default-scheduler", in which vGPUs are no concern of NodeResourcesFit.
func Profile(t testing.TB) schedulerconfig.KubeSchedulerProfile {
	defaults, err := latest.Default()
	must.OK(t, err)
	p := defaults.Profiles[0]
	for _, pc := range p.PluginConfig {
		if fit, ok := pc.Args.(*schedulerconfig.NodeResourcesFitArgs); ok {
			fit.IgnoredResources = []string{v1alpha1.ResourceVGPU, v1alpha1.ResourceMemory}
		}
	}
	return p
}

// ShareArgs returns the usual arguments of GPUShare, with policy packed.
func ShareArgs(bindTimeout time.Duration) *config.GPUShareArgs {
	return &config.GPUShareArgs{
		Policy: "packed", BindTimeout: metav1.Duration{Duration: bindTimeout},
		PodsWithoutGPUs: config.SkipPods, MixHalfLife: metav1.Duration{Duration: 24 * time.Hour},
		Interference: config.InterferenceArgs{Model: "default", Learning: config.LearningEnabled, MaxProfiles: 10000},
		Weights:      config.CostWeights{Fragmentation: 100, Interference: 100, Heterogeneity: 100},
		Sharing:      config.SharingWhenScarce, ScarceBelowPercent: 10, Lifetimes: config.LifetimesEnabled,
	}
}

// GangArgs returns the usual arguments of GPUGang, with all drains.
func GangArgs() config.GPUGangArgs {
	return config.GPUGangArgs{
		PlacementDeadline: metav1.Duration{Duration: 5 * time.Minute}, DrainAfter: metav1.Duration{Duration: time.Minute},
		Drain: config.DrainEnabled, DrainTimeout: metav1.Duration{Duration: time.Hour}, MaxDomains: 32, PreferredTopology: []string{v1.LabelHostname, Rack},
	}
}

// SetGates sets the feature gates that the scheduler sets whatever the API server serves.
func SetGates() error {
	return utilfeature.DefaultMutableFeatureGate.SetFromMap(map[string]bool{string(features.SchedulerPreQueueingHints): true})
}

// numberedEvents gives each event a name of its own. The names that client-go makes are of the time, and two events about one object at
// one instant of a bubble's clock would have the same one: the API server would refuse the second.
type numberedEvents struct {
	events.EventSinkImpl
	made atomic.Int64
}

// Create creates an event.
func (n *numberedEvents) Create(ctx context.Context, event *eventsv1.Event) (*eventsv1.Event, error) {
	event.Name = fmt.Sprintf("%s.%d", event.Name, n.made.Add(1))
	return n.EventSinkImpl.Create(ctx, event)
}

// Start runs a scheduler with plugins until stop or the end of the test. It also runs the loops of the plugins, each in
// a goroutine of its own, once the informers have synced.
func Start(t testing.TB, client kubernetes.Interface, p schedulerconfig.KubeSchedulerProfile, plugins frameworkruntime.Registry,
	beside ...func(context.Context)) (stop func()) {
	t.Helper()
	must.OK(t, SetGates())
	ctx, cancel := context.WithCancel(t.Context())
	informers := scheduler.NewInformerFactory(client, 0, nil)
	broadcaster := events.NewBroadcaster(&numberedEvents{EventSinkImpl: events.EventSinkImpl{Interface: client.EventsV1()}})
	s, err := scheduler.New(ctx, client, informers, nil, profile.NewRecorderFactory(broadcaster),
		scheduler.WithProfiles(p), scheduler.WithFrameworkOutOfTreeRegistry(plugins),
		scheduler.WithPodInitialBackoffSeconds(1), scheduler.WithPodMaxBackoffSeconds(1))
	if err == nil {
		err = broadcaster.StartRecordingToSinkWithContext(ctx)
	}
	if err == nil {
		informers.Start(ctx.Done())
		informers.WaitForCacheSync(ctx.Done())
		err = s.WaitForHandlersSync(ctx)
	}
	if err != nil {
		cancel()
		t.Fatal(err)
	}
	for _, run := range beside {
		go run(ctx)
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		s.Run(ctx)
	}()
	stop = func() {
		cancel()
		<-done
		for _, p := range s.Profiles { // those do not wait for the context
			p.IterateOverWaitingPods(func(w fwk.WaitingPod) { w.Reject("", "the scheduler ended") })
		}
		broadcaster.Shutdown()
		informers.Shutdown()
	}
	t.Cleanup(stop)
	return stop
}
