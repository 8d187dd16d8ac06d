package main

import (
	"context"
	"fmt"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/dynamic"
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
	"github.com/tandem-gpu/tandem/internal/controller/elasticity"
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
	has, err := served.Await(ctx, client, patience, podgroup.Resources()...)
	if err != nil {
		return fmt.Errorf("find out what the API server serves: %w", err)
	}
	if !has[v1alpha1.ElasticTargets] {
		return fmt.Errorf("the API server does not serve %s: apply the CustomResourceDefinitions (deploy/crds)", v1alpha1.ElasticTargets.GroupResource())
	}
	m, err := s.manager(config)
	if err != nil {
		return fmt.Errorf("make a manager: %w", err)
	}
	if err := s.addElastic(ctx, m, config, podgroup.ServedOf(has)); err != nil {
		return fmt.Errorf("start the feature %s: %w", featureElastic, err)
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

// addElastic adds the feature that sizes elastic gangs.
func (s *settings) addElastic(ctx context.Context, m manager.Manager, config *rest.Config, groups podgroup.Served) error {
	kube, err := kubernetes.NewForConfig(config)
	if err != nil {
		return err
	}
	objects, err := dynamic.NewForConfig(config)
	if err != nil {
		return err
	}
	factory := informers.NewSharedInformerFactoryWithOptions(kube, 0, informers.WithTransform(s.condenser.Condense))
	gangs, err := podgroup.New(ctx, podgroup.Options{Pods: factory.Core().V1().Pods().Informer(), Served: groups, Dynamic: objects})
	if err != nil {
		return err
	}
	o := s.elasticity
	o.Kube, o.Dynamic, o.Informers, o.Gangs = kube, objects, factory, gangs
	o.Client, o.Reader = m.GetClient(), m.GetClient()
	o.Recorder = m.GetEventRecorder("tandem-controller")
	c, err := elasticity.New(o)
	if err != nil {
		return err
	}
	for _, collector := range c.Collectors() {
		if err := metrics.Registry.Register(collector); err != nil {
			return err
		}
	}
	factory.StartWithContext(ctx)
	if err := m.AddReadyzCheck(featureElastic, c.Ready); err != nil {
		return err
	}
	return m.Add(c)
}
