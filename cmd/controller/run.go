package main

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/dynamic/dynamicinformer"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/klog/v2"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/healthz"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/metrics"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"

	"github.com/tandem-gpu/tandem/internal/cluster/podgroup"
	"github.com/tandem-gpu/tandem/internal/cluster/served"
	"github.com/tandem-gpu/tandem/internal/controller/absence"
	"github.com/tandem-gpu/tandem/internal/controller/capacity"
	"github.com/tandem-gpu/tandem/internal/controller/elasticity"
	"github.com/tandem-gpu/tandem/internal/controller/fleets"
	"github.com/tandem-gpu/tandem/internal/controller/notebooks"
	"github.com/tandem-gpu/tandem/internal/controller/placeable"
	"github.com/tandem-gpu/tandem/internal/controller/refusals"
	"github.com/tandem-gpu/tandem/internal/version"
	"github.com/tandem-gpu/tandem/pkg/api/v1alpha1"
)

// patience with an API server that does not answer at start. After it the program ends and says why.
var patience = served.Patience{Within: time.Minute, First: time.Second, Most: 10 * time.Second, Note: noteUnanswered}

func noteUnanswered(err error, pause time.Duration) {
	if pause > 0 {
		klog.ErrorS(err, "The API server does not say what it serves", "askingAgainIn", pause)
	}
}

// lookEvery is the pause between two looks whether the API server serves other PodGroups than at start.
const lookEvery = 30 * time.Second

// run runs the controller until ctx ends, or until the API server serves other resources than at start: then the program
// ends, to be started anew.
func (s *settings) run(ctx context.Context) error {
	ctrl.SetLogger(klog.Background())
	config, err := s.connection()
	if err != nil {
		return err
	}
	client, err := discovery.NewDiscoveryClientForConfig(config)
	if err != nil {
		return fmt.Errorf("connect to the API server: %w", err)
	}
	has, err := served.Await(ctx, client, patience, s.resources()...)
	if err != nil {
		return fmt.Errorf("find out what the API server serves: %w", err)
	}
	m, err := s.manager(config)
	if err != nil {
		return fmt.Errorf("make a manager: %w", err)
	}
	if err := s.addFeatures(ctx, m, config, has); err != nil {
		return err
	}
	ctx, end := context.WithCancel(ctx)
	defer end()
	go func() {
		if _, changed := served.Changed(ctx, client, has, lookEvery); changed {
			klog.InfoS("Ending to be started anew: the API server serves other resources than at start")
			end()
		}
	}()
	return m.Start(ctx)
}

// resources returns those whose absence the features can do without.
func (s *settings) resources() []schema.GroupVersionResource {
	all := append(podgroup.Resources(), v1alpha1.InferenceFleets)
	if slices.Contains(s.features, featurePlaceable) {
		all = append(all, placeable.Workloads)
	}
	return all
}

// connection returns how to reach the API server.
func (s *settings) connection() (*rest.Config, error) {
	config, err := clientcmd.BuildConfigFromFlags("", s.kubeconfig)
	if err != nil {
		return nil, fmt.Errorf("--kubeconfig: find the API server: %w", err)
	}
	config.QPS, config.Burst, config.UserAgent = s.qps, s.burst, "tandem-controller"
	return config, nil
}

// manager returns a manager with leader election, metrics and probes.
func (s *settings) manager(config *rest.Config) (manager.Manager, error) {
	scheme := runtime.NewScheme()
	if err := v1alpha1.AddToScheme(scheme); err != nil {
		return nil, err
	}
	m, err := ctrl.NewManager(config, ctrl.Options{
		Scheme: scheme, LeaderElection: s.leaderElect, LeaderElectionID: "tandem-controller", LeaderElectionNamespace: s.leaderNamespace,
		LeaderElectionReleaseOnCancel: true,
		Metrics:                       metricsserver.Options{BindAddress: s.metricsAddress}, HealthProbeBindAddress: s.probesAt,
		Cache: cache.Options{DefaultTransform: s.condenser.Condense},
	})
	if err != nil {
		return nil, err
	}
	if err := m.AddHealthzCheck("ping", healthz.Ping); err != nil {
		return nil, err
	}
	built := prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: version.Metric, Help: version.MetricHelp}, version.MetricLabels())
	built.WithLabelValues(version.Get().Values()...).Set(1)
	if err := metrics.Registry.Register(built); err != nil {
		return nil, err
	}
	return m, nil
}

// shared is what features read and write the API server with.
type shared struct {
	manager manager.Manager
	kube    kubernetes.Interface
	dynamic dynamic.Interface
	// informers are started when all features have said what they read.
	informers informers.SharedInformerFactory
	// fleets says that the feature inference is on.
	fleets bool
	// now is the clock, and pace how many times as fast as the real one it runs; nil is the real one.
	now  func() time.Time
	pace int
}

// addFeatures adds the features of the flag to a manager.
func (s *settings) addFeatures(ctx context.Context, m manager.Manager, config *rest.Config, has served.Set) error {
	with := shared{manager: m}
	var err error
	if with.now, with.pace, err = clock(); err != nil {
		return err
	}
	if with.kube, err = kubernetes.NewForConfig(config); err != nil {
		return err
	}
	if with.dynamic, err = dynamic.NewForConfig(config); err != nil {
		return err
	}
	with.informers = informers.NewSharedInformerFactoryWithOptions(with.kube, 0, informers.WithTransform(s.condenser.Condense))
	inference := slices.Contains(s.features, featureInference)
	with.fleets = inference && has[v1alpha1.InferenceFleets]
	if slices.Contains(s.features, featureElastic) {
		if !has[v1alpha1.ElasticTargets] {
			return fmt.Errorf("the API server does not serve %s: apply the CustomResourceDefinitions (deploy/crds)", v1alpha1.ElasticTargets.GroupResource())
		}
		if err := s.addElastic(ctx, with, podgroup.ServedOf(has)); err != nil {
			return fmt.Errorf("start the feature %s: %w", featureElastic, err)
		}
	}
	if with.fleets {
		if err := s.addInference(with); err != nil {
			return fmt.Errorf("start the feature %s: %w", featureInference, err)
		}
	} else if inference {
		klog.InfoS("The feature inference is off until the API server serves InferenceFleets: apply the CustomResourceDefinitions (deploy/crds)")
	}
	if slices.Contains(s.features, featureNotebooks) {
		if err := s.addNotebooks(with); err != nil {
			return fmt.Errorf("start the feature %s: %w", featureNotebooks, err)
		}
	}
	if err := s.addPlaceable(ctx, with, has); err != nil {
		return fmt.Errorf("start the feature %s: %w", featurePlaceable, err)
	}
	if slices.Contains(s.features, featureNodeMemory) {
		memory := capacity.New(capacity.Options{Informers: with.informers, Kube: with.kube, GPUNodes: m.GetClient()})
		if err := with.add(featureNodeMemory, memory); err != nil {
			return fmt.Errorf("start the feature %s: %w", featureNodeMemory, err)
		}
	}
	gone := absence.New(absence.Options{Informers: with.informers, Client: m.GetClient(), Now: with.now})
	if err := with.add("absence", gone); err != nil {
		return fmt.Errorf("watch for agents that are gone: %w", err)
	}
	refused := refusals.New(refusals.Options{
		Informers: with.informers, Kube: with.kube, Recorder: m.GetEventRecorder("tandem-controller"), Now: with.now,
	})
	if err := with.add("refusals", refused); err != nil {
		return fmt.Errorf("watch for pods whose start is refused: %w", err)
	}
	with.informers.StartWithContext(ctx)
	return nil
}

// addElastic adds the feature that sizes elastic gangs.
func (s *settings) addElastic(ctx context.Context, with shared, groups podgroup.Served) error {
	gangs, err := podgroup.New(ctx, podgroup.Options{Pods: with.informers.Core().V1().Pods().Informer(), Served: groups, Dynamic: with.dynamic, Client: with.kube})
	if err != nil {
		return err
	}
	o := s.elasticity
	o.Kube, o.Dynamic, o.Informers, o.Gangs = with.kube, with.dynamic, with.informers, gangs
	o.Client, o.Reader = with.manager.GetClient(), with.manager.GetClient()
	if with.fleets {
		o.Fleets = with.manager.GetClient()
	}
	o.Recorder, o.Now = with.manager.GetEventRecorder("tandem-controller"), with.now
	c, err := elasticity.New(o)
	if err != nil {
		return err
	}
	return with.add(featureElastic, c)
}

// addInference adds the feature that sizes inference fleets and divides their requests.
func (s *settings) addInference(with shared) error {
	o := s.fleets
	o.Informers, o.Dynamic, o.Mapper, o.Client = with.informers, with.dynamic, with.manager.GetRESTMapper(), with.manager.GetClient()
	o.Now = with.now
	o.Recorder = with.manager.GetEventRecorder("tandem-controller")
	c, err := fleets.New(o)
	if err != nil {
		return err
	}
	return with.add(featureInference, c)
}

// addNotebooks adds the feature that parks idle notebooks.
func (s *settings) addNotebooks(with shared) error {
	o := s.notebooks
	o.Informers, o.Kube, o.GPUNodes, o.Now, o.Pace = with.informers, with.kube, with.manager.GetClient(), with.now, with.pace
	o.Recorder = with.manager.GetEventRecorder("tandem-controller")
	c, err := notebooks.New(o)
	if err != nil {
		return err
	}
	return with.add(featureNotebooks, c)
}

// addPlaceable adds the feature that answers Kueue's AdmissionChecks, where it is on and Kueue is there.
func (s *settings) addPlaceable(ctx context.Context, with shared, has served.Set) error {
	if !slices.Contains(s.features, featurePlaceable) {
		return nil
	}
	if !has[placeable.Workloads] {
		klog.InfoS("The feature placeable is off until the API server serves Kueue's Workloads: install Kueue", "resource", placeable.Workloads.String())
		return nil
	}
	o := s.placeable
	o.Kueue = dynamicinformer.NewDynamicSharedInformerFactory(with.dynamic, 0)
	o.Informers, o.Dynamic, o.Reader, o.Now = with.informers, with.dynamic, with.manager.GetClient(), with.now
	o.Served = podgroup.ServedOf(has)
	c, err := placeable.New(o)
	if err != nil {
		return err
	}
	o.Kueue.Start(ctx.Done())
	return with.add(featurePlaceable, c)
}

// feature is the controller of a feature.
type feature interface {
	manager.Runnable
	Collectors() []prometheus.Collector
	Ready(*http.Request) error
}

// add adds a feature with its metrics and its check of readiness.
func (with *shared) add(name string, f feature) error {
	for _, collector := range f.Collectors() {
		if err := metrics.Registry.Register(collector); err != nil {
			return err
		}
	}
	if err := with.manager.AddReadyzCheck(name, f.Ready); err != nil {
		return err
	}
	return with.manager.Add(f)
}
