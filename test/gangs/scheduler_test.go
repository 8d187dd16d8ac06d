package gangs

import (
	"context"
	"fmt"
	"slices"
	"testing/synctest"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/tools/events"
	fwk "k8s.io/kube-scheduler/framework"
	"k8s.io/kubernetes/pkg/scheduler"
	schedulerconfig "k8s.io/kubernetes/pkg/scheduler/apis/config"
	"k8s.io/kubernetes/pkg/scheduler/apis/config/latest"
	"k8s.io/kubernetes/pkg/scheduler/framework/plugins/queuesort"
	frameworkruntime "k8s.io/kubernetes/pkg/scheduler/framework/runtime"

	"github.com/tandem-gpu/tandem/internal/cluster/podgroup"
	"github.com/tandem-gpu/tandem/internal/scheduler/machine"
	"github.com/tandem-gpu/tandem/pkg/api/config"
	_ "github.com/tandem-gpu/tandem/pkg/api/config/scheme" // the plugins' arguments
	"github.com/tandem-gpu/tandem/pkg/api/v1alpha1"
	"github.com/tandem-gpu/tandem/pkg/plugins/gpugang"
	"github.com/tandem-gpu/tandem/pkg/plugins/gpupreempt"
	"github.com/tandem-gpu/tandem/pkg/plugins/gpushare"
	"github.com/tandem-gpu/tandem/test/fakecluster"
)

// Spans of the plugins' arguments: shorter than usual ones, since every second of them is played.
const (
	placementDeadline = 60 * time.Second
	drainAfter        = 20 * time.Second
	drainTimeout      = 5 * time.Minute
	bindTimeout       = 10 * time.Second
)

// forEver is after how long the scheduler tries pods again that nothing woke: a lost wake-up is not to be made good.
const forEver = 1000 * time.Hour

// kit is a scheduler with its plugins.
type kit struct {
	// native: the scheduler and the API know the PodGroup of Kubernetes. The feature gate is set by the test.
	native bool
	// elastic: the API has ElasticTargets, and the controller runs.
	elastic bool
	// control starts a controller that is not production's.
	control func(*world) error
	// gangs is the plugin for gangs, "" for none.
	gangs string
	// stock: preemption is the scheduler's own.
	stock bool
	// simulated: the scheduler takes the pods in the order of the simulator, and only once it has seen all that happened at an instant.
	simulated bool
	// make returns a plugin that is not production's.
	make frameworkruntime.PluginFactory
}

// production returns the kit with the plugins of production.
func production(native bool) kit { return kit{native: native, gangs: gpugang.Name} }

// nativeVersion is the version of Kubernetes' PodGroup that is served, "" for none.
func (k kit) nativeVersion() string {
	if k.native {
		return nativeGroups.Version
	}
	return ""
}

// scheduling is a scheduler that runs.
type scheduling struct {
	scheduler *scheduler.Scheduler
	share     *gpushare.Plugin
	gang      *gpugang.Plugin
	preempt   *gpupreempt.Plugin
	stop      func()
}

// startScheduling runs the real scheduler against the API server until stop.
func startScheduling(ctx context.Context, a *api, k kit) (*scheduling, error) {
	if err := fakecluster.SetGates(); err != nil {
		return nil, err
	}
	ctx, cancel := context.WithCancel(ctx)
	client := clientset{a.core, a}
	informers := scheduler.NewInformerFactory(client, 0, nil)
	recorders := func(string) events.EventRecorderLogger { return newRecorder(a) }
	r := &scheduling{}
	options := []scheduler.Option{scheduler.WithPodMaxInUnschedulablePodsDuration(forEver)}
	if k.simulated {
		options = append(options, scheduler.WithPodMaxBackoffSeconds(0))
	}
	s, err := scheduler.New(ctx, client, informers, nil, recorders, append(options,
		scheduler.WithProfiles(k.profile()), scheduler.WithFrameworkOutOfTreeRegistry(r.plugins(a, k)))...)
	if err != nil {
		cancel()
		return nil, err
	}
	r.scheduler = s
	if r.gang != nil { // once all plugins know each other
		go r.gang.Run(ctx)
	}
	if r.preempt != nil {
		go r.preempt.Run(ctx)
	}
	s.NextEntity = a.watched(ctx, s.NextEntity)
	if k.simulated {
		s.NextEntity = patient(ctx, s, s.NextEntity)
	}
	informers.Start(ctx.Done())
	informers.WaitForCacheSync(ctx.Done())
	if err := s.WaitForHandlersSync(ctx); err != nil {
		cancel()
		return nil, err
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		s.Run(ctx)
	}()
	r.stop = func() {
		cancel()
		<-done
		for _, p := range s.Profiles { // those do not wait for the context
			p.IterateOverWaitingPods(func(w fwk.WaitingPod) { w.Reject("", "the scheduler ended") })
		}
		informers.Shutdown()
		synctest.Wait()
	}
	return r, nil
}

// plugins makes the plugins as their factories do, with clients in memory.
func (r *scheduling) plugins(a *api, k kit) frameworkruntime.Registry {
	room := machine.New(func() machine.Shares { return r.share })
	registry := frameworkruntime.Registry{
		gpushare.Name: func(ctx context.Context, args runtime.Object, h fwk.Handle) (fwk.Plugin, error) {
			p, err := gpushare.NewWithClient(ctx, args, h, a.dynamic)
			r.share = p
			return p, err
		},
		gpugang.Name: func(ctx context.Context, args runtime.Object, h fwk.Handle) (fwk.Plugin, error) {
			set, err := podgroup.New(ctx, podgroup.Options{
				Pods: h.SharedInformerFactory().Core().V1().Pods().Informer(), Dynamic: a.dynamic, Client: h.ClientSet(),
				Served: podgroup.Served{Native: k.nativeVersion(), XK8s: true, Elastic: k.elastic}, Queued: k.native,
			})
			if err != nil {
				return nil, err
			}
			o := gpugang.Options{Gangs: set, Shares: func() gpugang.Shares { return r.share }, Machine: room}
			if k.elastic {
				o.Targets = a.dynamic
			}
			p, err := gpugang.New(ctx, args, h, o)
			if err != nil {
				return nil, err
			}
			r.gang = p
			return p, nil
		},
	}
	if !k.stock {
		registry[gpupreempt.Name] = func(ctx context.Context, args runtime.Object, h fwk.Handle) (fwk.Plugin, error) {
			p, err := gpupreempt.New(ctx, args, h, gpupreempt.Options{Shares: func() gpupreempt.Shares { return r.share }, Machine: room})
			if err != nil {
				return nil, err
			}
			r.preempt = p
			return p, nil
		}
	}
	if k.make != nil {
		registry[k.gangs] = k.make
	}
	if k.simulated {
		registry[arrivalSort{}.Name()] = newArrivalSort
	}
	return registry
}

// profile is the stock profile with the plugins, set as deploy/ sets them.
func (k kit) profile() schedulerconfig.KubeSchedulerProfile {
	defaults, err := latest.Default()
	if err != nil {
		panic(fmt.Sprintf("read the default configuration: %v", err))
	}
	p := defaults.Profiles[0]
	multi := &p.Plugins.MultiPoint
	if k.simulated {
		multi.Enabled = slices.DeleteFunc(multi.Enabled, func(s schedulerconfig.Plugin) bool { return s.Name == queuesort.Name })
		p.Plugins.QueueSort.Enabled = []schedulerconfig.Plugin{{Name: arrivalSort{}.Name()}}
	}
	after := []schedulerconfig.Plugin{{Name: gpushare.Name}}
	p.Plugins.Bind.Enabled = append(slices.Clone(after), p.Plugins.Bind.Enabled...)
	if !k.stock {
		after = append(after, schedulerconfig.Plugin{Name: gpupreempt.Name})
		multi.Enabled = append(slices.DeleteFunc(multi.Enabled, func(s schedulerconfig.Plugin) bool { return s.Name == "DefaultPreemption" }),
			schedulerconfig.Plugin{Name: gpupreempt.Name})
	}
	if k.gangs != "" {
		multi.Enabled = append(multi.Enabled, schedulerconfig.Plugin{Name: k.gangs})
	}
	if k.gangs == gpugang.Name {
		after = append(after, schedulerconfig.Plugin{Name: gpugang.Name})
		p.Plugins.Bind.Enabled = append([]schedulerconfig.Plugin{{Name: gpugang.Name}}, p.Plugins.Bind.Enabled...)
		p.Plugins.Permit.Disabled = append(p.Plugins.Permit.Disabled, schedulerconfig.Plugin{Name: "GangScheduling"})
		p.Plugins.PodGroupPostFilter.Enabled = append(slices.Clone(after[1:]), p.Plugins.PodGroupPostFilter.Enabled...)
	}
	p.Plugins.PostFilter.Enabled = append(after, p.Plugins.PostFilter.Enabled...)
	multi.Enabled = append(multi.Enabled, schedulerconfig.Plugin{Name: gpushare.Name, Weight: 2000})
	for _, pc := range p.PluginConfig {
		if fit, ok := pc.Args.(*schedulerconfig.NodeResourcesFitArgs); ok {
			fit.IgnoredResources = []string{v1alpha1.ResourceVGPU, v1alpha1.ResourceMemory}
		}
	}
	if !k.stock {
		p.PluginConfig = append(p.PluginConfig, schedulerconfig.PluginConfig{Name: gpupreempt.Name, Args: preemptArgs()})
	}
	p.PluginConfig = append(p.PluginConfig,
		schedulerconfig.PluginConfig{Name: gpushare.Name, Args: shareArgs()}, schedulerconfig.PluginConfig{Name: gpugang.Name, Args: gangArgs()})
	return p
}

func shareArgs() *config.GPUShareArgs {
	return &config.GPUShareArgs{
		Policy: "tandem", BindTimeout: metav1.Duration{Duration: bindTimeout},
		PodsWithoutGPUs: config.SkipPods, MixHalfLife: metav1.Duration{Duration: 24 * time.Hour},
		Interference: config.InterferenceArgs{Model: "default", Learning: config.LearningDisabled, MaxProfiles: 10000},
		Weights:      config.CostWeights{Fragmentation: 100, Interference: 100, Heterogeneity: 100},
		Sharing:      config.SharingWhenScarce, ScarceBelowPercent: 10, Lifetimes: config.LifetimesEnabled,
	}
}

func preemptArgs() *config.GPUPreemptArgs {
	return &config.GPUPreemptArgs{
		Mode: config.PreemptionEnabled, PodDisruptionBudgets: config.BudgetsPreferred, MaxSteps: 4096,
		MinimumRuntime: metav1.Duration{}, Protected: config.ProtectedPods{Namespaces: []string{metav1.NamespaceSystem}},
	}
}

func gangArgs() *config.GPUGangArgs {
	return &config.GPUGangArgs{
		PlacementDeadline: metav1.Duration{Duration: placementDeadline}, DrainAfter: metav1.Duration{Duration: drainAfter},
		DrainTimeout: metav1.Duration{Duration: drainTimeout},
		Drain:        config.DrainEnabled, MaxDomains: 32, PreferredTopology: preferredTopology,
	}
}
