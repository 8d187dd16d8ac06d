package fleets

import (
	"fmt"
	"net/http"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/informers"
	autoscalinglisters "k8s.io/client-go/listers/autoscaling/v2"
	corelisters "k8s.io/client-go/listers/core/v1"
	discoverylisters "k8s.io/client-go/listers/discovery/v1"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/events"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tandem-gpu/tandem/internal/controller/passes"
)

// Options are what a Controller works with.
type Options struct {
	// Informers read pods, Services, EndpointSlices and HorizontalPodAutoscalers; the caller starts them.
	Informers informers.SharedInformerFactory
	// Dynamic reads and writes scale targets and HTTPRoutes; Mapper knows the resources of the kinds.
	Dynamic dynamic.Interface
	Mapper  meta.RESTMapper
	// Client reads InferenceFleets, GPUNodes and WorkloadProfiles, and writes the status of fleets.
	Client client.Client
	// Prometheus carries the queries; nil is the network.
	Prometheus http.RoundTripper
	// Hosts are those, "host" or "host:port", that fleets may name in prometheusURL; none is any.
	Hosts []string
	// Recorder writes events about fleets.
	Recorder events.EventRecorder
	// Every is the time between two passes. Patience is how long fewer replicas must be enough before some leave; 0
	// stands for eight times the longest load time of the fleet, from 5 to 30 minutes.
	Every, Patience time.Duration
	// Now is the clock; nil is the real one.
	Now func() time.Time
}

// Controller keeps inference fleets at the right sizes.
type Controller struct {
	passes.Loop
	options     Options
	services    corelisters.ServiceLister
	slices      discoverylisters.EndpointSliceLister
	autoscalers autoscalinglisters.HorizontalPodAutoscalerLister
	pods        corelisters.PodLister
	scales      scales
	http        *http.Client
	memory      map[types.UID]*memory
	// slots are those of a device, by GPU model.
	slots   map[string]int32
	metrics *metricSet
	now     func() time.Time
}

// New returns a controller that has not read anything. An error names the option that is not legal.
func New(o Options) (*Controller, error) {
	switch {
	case o.Every < time.Second || o.Every > time.Hour:
		return nil, fmt.Errorf("the time between two passes is %v, legal is 1s to 1h", o.Every)
	case o.Patience != 0 && (o.Patience < time.Minute || o.Patience > 24*time.Hour):
		return nil, fmt.Errorf("the patience is %v, legal is 0s, and 1m to 24h", o.Patience)
	}
	services, slices := o.Informers.Core().V1().Services(), o.Informers.Discovery().V1().EndpointSlices()
	autoscalers, pods := o.Informers.Autoscaling().V2().HorizontalPodAutoscalers(), o.Informers.Core().V1().Pods()
	c := &Controller{
		options: o, services: services.Lister(), slices: slices.Lister(), autoscalers: autoscalers.Lister(), pods: pods.Lister(),
		scales: scales{client: o.Dynamic, mapper: o.Mapper}, http: newHTTP(o.Prometheus, o.Hosts), memory: map[types.UID]*memory{}, slots: map[string]int32{}, metrics: newMetrics(), now: o.Now,
	}
	c.Loop = passes.Loop{Over: "inference fleets", Every: o.Every, Make: c.Pass, CountFailure: c.metrics.failed, Synced: []cache.InformerSynced{
		services.Informer().HasSynced, slices.Informer().HasSynced, autoscalers.Informer().HasSynced, pods.Informer().HasSynced,
	}}
	if c.now == nil {
		c.now = time.Now
	}
	return c, nil
}
