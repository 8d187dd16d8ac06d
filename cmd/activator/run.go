package main

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/client-go/tools/events"
	"k8s.io/klog/v2"

	"github.com/tandem-gpu/tandem/internal/activator"
	"github.com/tandem-gpu/tandem/internal/version"
)

const (
	// headersWithin bounds the time in which a client sends the headers of a request, and mostHeaders bounds their bytes. The same time bounds the
	// body of a request that the activator refuses. The body of a request for a notebook may take longer.
	headersWithin = 10 * time.Second
	mostHeaders   = 1 << 16
	// endWithin is how long requests may go on when the program ends. The kubelet waits 30 seconds.
	endWithin = 20 * time.Second
)

// run serves until ctx ends.
func (s *settings) run(ctx context.Context) error {
	config, err := clientcmd.BuildConfigFromFlags("", s.kubeconfig)
	if err != nil {
		return fmt.Errorf("--kubeconfig: find the API server: %w", err)
	}
	config.QPS, config.Burst, config.UserAgent = s.qps, s.burst, "tandem-activator"
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		return err
	}
	o := s.activator
	o.Kube, o.Informers = client, informers.NewSharedInformerFactoryWithOptions(client, 0, informers.WithTransform(activator.Condense))
	broadcaster := events.NewBroadcaster(&events.EventSinkImpl{Interface: client.EventsV1()})
	if err := broadcaster.StartRecordingToSinkWithContext(ctx); err != nil {
		return err
	}
	defer broadcaster.Shutdown()
	o.Recorder = broadcaster.NewRecorder(runtime.NewScheme(), "tandem-activator")
	a, err := activator.New(o)
	if err != nil {
		return err
	}
	probes, err := probes(a)
	if err != nil {
		return err
	}
	o.Informers.StartWithContext(ctx)
	return serve(ctx, s.front(a), server(s.probes, probes))
}

// front returns the server of the proxy.
func (s *settings) front(a *activator.Activator) *http.Server {
	front := server(s.address, a)
	front.ConnState = activator.NewBounded(s.activator.MostConnections).State
	return front
}

func server(address string, h http.Handler) *http.Server {
	return &http.Server{Addr: address, Handler: h, ReadHeaderTimeout: headersWithin, ReadTimeout: headersWithin, MaxHeaderBytes: mostHeaders, IdleTimeout: 2 * time.Minute}
}

// probes answers the kubelet and Prometheus.
func probes(a *activator.Activator) (http.Handler, error) {
	registry := prometheus.NewRegistry()
	built := prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: version.Metric, Help: version.MetricHelp}, version.MetricLabels())
	built.WithLabelValues(version.Get().Values()...).Set(1)
	for _, c := range append(a.Collectors(), built) {
		if err := registry.Register(c); err != nil {
			return nil, err
		}
	}
	mux := http.NewServeMux()
	mux.Handle("/metrics", promhttp.HandlerFor(registry, promhttp.HandlerOpts{}))
	mux.HandleFunc("/healthz", func(w http.ResponseWriter, _ *http.Request) { _, _ = fmt.Fprintln(w, "ok") })
	mux.HandleFunc("/readyz", func(w http.ResponseWriter, _ *http.Request) {
		if err := a.Ready(); err != nil {
			http.Error(w, err.Error(), http.StatusServiceUnavailable)
		}
	})
	return mux, nil
}

// serve runs servers until ctx ends or one of them fails.
func serve(ctx context.Context, servers ...*http.Server) error {
	failed := make(chan error, len(servers))
	for _, s := range servers {
		go func() { failed <- s.ListenAndServe() }()
	}
	var err error
	select {
	case err = <-failed:
	case <-ctx.Done():
		klog.InfoS("Ending")
	}
	end, cancel := context.WithTimeout(context.WithoutCancel(ctx), endWithin)
	defer cancel()
	for _, s := range servers {
		if stop := s.Shutdown(end); stop != nil && !errors.Is(stop, context.DeadlineExceeded) {
			err = errors.Join(err, stop)
		}
	}
	return err
}
