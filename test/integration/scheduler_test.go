package integration

import (
	"context"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/events"
	"k8s.io/kubernetes/pkg/scheduler"
	schedulerconfig "k8s.io/kubernetes/pkg/scheduler/apis/config"
	"k8s.io/kubernetes/pkg/scheduler/apis/config/latest"
	frameworkruntime "k8s.io/kubernetes/pkg/scheduler/framework/runtime"
	"k8s.io/kubernetes/pkg/scheduler/profile"

	"github.com/tandem-gpu/tandem/pkg/api/config"
	_ "github.com/tandem-gpu/tandem/pkg/api/config/scheme" // the plugin's arguments, for the scheduler's configuration
	"github.com/tandem-gpu/tandem/pkg/api/v1alpha1"
	"github.com/tandem-gpu/tandem/pkg/plugins/gpushare"
	"github.com/tandem-gpu/tandem/test/cluster"
	"github.com/tandem-gpu/tandem/test/must"
)

// startScheduler runs the stock scheduler with the plugin until the test ends. Changes are to the plugin's arguments.
func startScheduler(t *testing.T, api *rest.Config, changes ...func(*config.GPUShareArgs)) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	api = rest.CopyConfig(api)
	api.QPS = -1
	client, err := kubernetes.NewForConfig(api) // no client of the tests: the scheduler sees each failure
	if err != nil {
		cancel()
		t.Fatal(err)
	}
	factory := scheduler.NewInformerFactory(client, 0, nil)
	// A scheduler drops an event that the API server cannot take in time, and some tests wait for one.
	broadcaster := events.NewBroadcaster(&events.EventSinkImpl{Interface: clientFor(t, api).EventsV1()})
	s, err := scheduler.New(ctx, client, factory, nil, profile.NewRecorderFactory(broadcaster),
		scheduler.WithKubeConfig(api), scheduler.WithProfiles(schedulerProfile(t, changes)),
		scheduler.WithFrameworkOutOfTreeRegistry(frameworkruntime.Registry{gpushare.Name: gpushare.New}),
		scheduler.WithPodInitialBackoffSeconds(1), scheduler.WithPodMaxBackoffSeconds(1))
	if err != nil {
		cancel()
		t.Fatal(err)
	}
	broadcaster.StartRecordingToSink(ctx.Done())
	factory.Start(ctx.Done())
	factory.WaitForCacheSync(ctx.Done())
	if err := s.WaitForHandlersSync(ctx); err != nil {
		cancel()
		t.Fatal(err)
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		s.Run(ctx)
	}()
	t.Cleanup(func() {
		cancel()
		<-done
		broadcaster.Shutdown()
	})
}

func schedulerProfile(t *testing.T, changes []func(*config.GPUShareArgs)) schedulerconfig.KubeSchedulerProfile {
	t.Helper()
	defaults, err := latest.Default()
	must.OK(t, err)
	p := defaults.Profiles[0]
	p.Plugins.MultiPoint.Enabled = append(p.Plugins.MultiPoint.Enabled, schedulerconfig.Plugin{Name: gpushare.Name, Weight: 10000})
	p.Plugins.Bind.Enabled = append([]schedulerconfig.Plugin{{Name: gpushare.Name}}, p.Plugins.Bind.Enabled...)
	args := &config.GPUShareArgs{
		Policy: "packed", BindTimeout: metav1.Duration{Duration: bindTimeout},
		PodsWithoutGPUs: config.SkipPods, MixHalfLife: metav1.Duration{Duration: 24 * time.Hour},
		Interference: config.InterferenceArgs{Model: "default", Learning: config.LearningEnabled, MaxProfiles: 10000},
		Weights:      config.CostWeights{Fragmentation: 100, Interference: 100, Heterogeneity: 100},
		Sharing:      config.SharingWhenScarce, ScarceBelowPercent: 10, Lifetimes: config.LifetimesEnabled,
	}
	for _, change := range changes {
		change(args)
	}
	p.PluginConfig = append(p.PluginConfig, schedulerconfig.PluginConfig{Name: gpushare.Name, Args: args})
	for _, pc := range p.PluginConfig {
		if fit, ok := pc.Args.(*schedulerconfig.NodeResourcesFitArgs); ok {
			fit.IgnoredResources = []string{v1alpha1.ResourceVGPU, v1alpha1.ResourceMemory}
		}
	}
	return p
}

func clientFor(t *testing.T, api *rest.Config) kubernetes.Interface {
	t.Helper()
	api = patient(api)
	api.QPS = -1
	client, err := kubernetes.NewForConfig(api)
	must.OK(t, err)
	return client
}

func podInformer(client kubernetes.Interface) cache.SharedIndexInformer {
	return informers.NewSharedInformerFactory(client, 0).Core().V1().Pods().Informer()
}

// createNode creates a ready Node and its GPUNode.
func createNode(t *testing.T, api *rest.Config, g *v1alpha1.GPUNode) {
	t.Helper()
	err := cluster.AddNode(life(t), clientFor(t, api), g.Name, nil, v1.ResourceList{
		v1.ResourceCPU: resource.MustParse("1000"), v1.ResourceMemory: resource.MustParse("1Ti"), v1.ResourcePods: resource.MustParse("500"),
		v1alpha1.ResourceVGPU: resource.MustParse("1000"),
	})
	must.OK(t, err)
	createGPUNode(t, api, g)
}

func createGPUNode(t *testing.T, api *rest.Config, g *v1alpha1.GPUNode) {
	t.Helper()
	client, err := dynamic.NewForConfig(patient(api))
	must.OK(t, err)
	must.OK(t, cluster.AddGPUNode(life(t), client, g))
}

func createPod(t *testing.T, client kubernetes.Interface, name string, slots int) {
	t.Helper()
	limits := v1.ResourceList{v1alpha1.ResourceVGPU: *resource.NewQuantity(int64(slots), resource.DecimalSI)}
	_, err := client.CoreV1().Pods("default").Create(t.Context(), &v1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: v1.PodSpec{Containers: []v1.Container{{
			Name: "main", Image: "none", Resources: v1.ResourceRequirements{Limits: limits},
		}}},
	}, metav1.CreateOptions{})
	must.OK(t, err)
}

// poll asks until the answer is yes, and fails with the last state.
func poll(t *testing.T, what string, ask func(context.Context) (bool, string)) {
	t.Helper()
	if err := pollByClock(t.Context(), func() (bool, string) { return ask(t.Context()) }); err != nil {
		t.Fatalf("waiting until %s: %v", what, err)
	}
}
