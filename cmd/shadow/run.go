package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"time"

	"k8s.io/apiserver/pkg/server/mux"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/component-base/metrics"
	"k8s.io/component-base/metrics/legacyregistry"
	"k8s.io/klog/v2"

	"github.com/tandem-gpu/tandem/internal/cluster/guarded"
	"github.com/tandem-gpu/tandem/internal/cluster/served"
	"github.com/tandem-gpu/tandem/internal/shadow/recorder"
	"github.com/tandem-gpu/tandem/internal/shadow/reports"
	"github.com/tandem-gpu/tandem/internal/version"
)

// patience with an API server that does not answer at start. After it the program ends and says why.
var patience = served.Patience{Within: time.Minute, First: time.Second, Most: 10 * time.Second}

// run records and serves until ctx ends, and prints the last report.
func (s *settings) run(ctx context.Context, out io.Writer) error {
	facts, err := s.watch(ctx)
	if err != nil {
		return err
	}
	source := reports.NewSource(facts.Report, time.Now)
	stopped, err := s.serve(ctx, source)
	if err != nil {
		return err
	}
	<-ctx.Done()
	<-stopped
	r, err := facts.Report()
	if err != nil {
		return err
	}
	return reports.Write(out, r, s.schedulerName, s.output)
}

// watch returns what records the facts of the cluster.
func (s *settings) watch(ctx context.Context) (*recorder.Recorder, error) {
	config, err := clientcmd.BuildConfigFromFlags("", s.kubeconfig)
	if err != nil {
		return nil, fmt.Errorf("--kubeconfig: find the API server: %w", err)
	}
	config.UserAgent = "tandem-shadow"
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		return nil, fmt.Errorf("connect to the API server: %w", err)
	}
	custom, err := dynamic.NewForConfig(config)
	if err != nil {
		return nil, fmt.Errorf("connect to the API server: %w", err)
	}
	has, err := served.Await(ctx, client.Discovery(), patience, recorder.Resources()...)
	if err != nil {
		return nil, fmt.Errorf("find out what the API server serves: %w", err)
	}
	core, err := s.config()
	if err != nil {
		return nil, err
	}
	return recorder.Watch(ctx, recorder.Options{
		Config: core, SchedulerName: s.schedulerName, ShareAnnotation: s.shareAnnotation, Now: time.Now,
	}, recorder.Cluster{Client: client, Dynamic: custom, Served: has, Every: s.every})
}

// serve opens the port. The channel is closed when it is shut.
func (s *settings) serve(ctx context.Context, source *reports.Source) (<-chan struct{}, error) {
	if s.port == 0 {
		shut := make(chan struct{})
		close(shut)
		return shut, nil
	}
	how, err := guarded.New(s.flags, s.port)
	if err != nil {
		return nil, fmt.Errorf("serve reports: %w", err)
	}
	if err := errors.Join(reports.Register(source), serveVersion()); err != nil {
		return nil, fmt.Errorf("serve metrics: %w", err)
	}
	paths := mux.NewPathRecorderMux("tandem-shadow")
	paths.Handle(reports.Path, &reports.Handler{Source: source, Asks: how.Authorizer(), Name: s.schedulerName})
	paths.Handle("/metrics", legacyregistry.Handler())
	for _, path := range []string{"/livez", "/readyz"} {
		paths.HandleFunc(path, alive)
	}
	stopped, err := how.Serve(ctx, paths)
	if err != nil {
		return nil, fmt.Errorf("--secure-port: serve reports on port %d: %w", s.port, err)
	}
	klog.InfoS("Serving reports", "port", s.port, "path", reports.Path)
	return stopped, nil
}

// serveVersion adds Tandem's version to the metrics.
func serveVersion() error {
	g := metrics.NewGaugeVec(&metrics.GaugeOpts{Name: version.Metric, Help: version.MetricHelp, StabilityLevel: metrics.ALPHA}, version.MetricLabels())
	if err := legacyregistry.Register(g); err != nil {
		return err
	}
	g.WithLabelValues(version.Get().Values()...).Set(1)
	return nil
}

// alive answers that the program runs: its port is open once its caches are full.
func alive(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "ok\n") }
