package notebooks

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	appslisters "k8s.io/client-go/listers/apps/v1"
	autoscalinglisters "k8s.io/client-go/listers/autoscaling/v2"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/events"
	"k8s.io/klog/v2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tandem-gpu/tandem/pkg/notebook"
)

// Options are what a Controller works with.
type Options struct {
	// Informers read StatefulSets, Deployments and HorizontalPodAutoscalers; the caller starts them.
	Informers informers.SharedInformerFactory
	// Kube reads pods and Secrets, and writes scales and annotations of pods.
	Kube kubernetes.Interface
	// GPUNodes reads GPUNodes.
	GPUNodes client.Reader
	// Recorder writes events about workloads.
	Recorder events.EventRecorder
	// Every is the time between two looks at a notebook.
	Every time.Duration
	// Notice is the time from the warning to the end. Of a notebook with a shorter idle time it is half of that.
	Notice time.Duration
	// Now is the clock; nil is the real one.
	Now func() time.Time
}

// Bounds of Options.Every and Options.Notice.
const (
	LeastEvery  = time.Second
	MostEvery   = 10 * time.Minute
	LeastNotice = 10 * time.Second
	MostNotice  = 24 * time.Hour
)

// Controller parks idle notebooks.
type Controller struct {
	options      Options
	statefulSets appslisters.StatefulSetLister
	deployments  appslisters.DeploymentLister
	autoscalers  autoscalinglisters.HorizontalPodAutoscalerLister
	synced       []cache.InformerSynced
	http         *http.Client
	memory       map[types.UID]*memory
	metrics      *metricSet
	now          func() time.Time
}

// memory is what the controller knows of a workload from one pass to the next.
type memory struct {
	decided notebook.Memory
	// said is the last problem that an event told, and lost in how many looks in a row the notebook did not answer.
	said string
	lost int
}

// New returns a controller that has not read anything. An error names the option that is not legal.
func New(o Options) (*Controller, error) {
	switch {
	case o.Every < LeastEvery || o.Every > MostEvery:
		return nil, fmt.Errorf("the time between two looks is %v, legal is %v to %v", o.Every, LeastEvery, MostEvery)
	case o.Notice < LeastNotice || o.Notice > MostNotice:
		return nil, fmt.Errorf("the notice is %v, legal is %v to %v", o.Notice, LeastNotice, MostNotice)
	}
	sets, deployments := o.Informers.Apps().V1().StatefulSets(), o.Informers.Apps().V1().Deployments()
	autoscalers := o.Informers.Autoscaling().V2().HorizontalPodAutoscalers()
	c := &Controller{
		options: o, statefulSets: sets.Lister(), deployments: deployments.Lister(), autoscalers: autoscalers.Lister(),
		synced: []cache.InformerSynced{sets.Informer().HasSynced, deployments.Informer().HasSynced, autoscalers.Informer().HasSynced},
		http:   newHTTP(), memory: map[types.UID]*memory{}, metrics: newMetrics(), now: o.Now,
	}
	if c.now == nil {
		c.now = time.Now
	}
	return c, nil
}

// NeedLeaderElection makes a manager start the controller in one of several processes.
func (c *Controller) NeedLeaderElection() bool { return true }

// Ready returns an error until the controller has read the API server: a check for /readyz.
func (c *Controller) Ready(*http.Request) error {
	for _, synced := range c.synced {
		if !synced() {
			return errors.New("the objects of the API server are not read yet")
		}
	}
	return nil
}

// Start makes a pass every Options.Every until ctx ends.
func (c *Controller) Start(ctx context.Context) error {
	if !cache.WaitForCacheSync(ctx.Done(), c.synced...) {
		return errors.New("the API server was not read before the end")
	}
	tick := time.NewTicker(c.options.Every)
	defer tick.Stop()
	for {
		if err := c.Pass(ctx); err != nil && ctx.Err() == nil {
			c.metrics.failures.Inc()
			klog.FromContext(ctx).Error(err, "A pass over the notebooks failed in part; the next one tries again")
		}
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
	}
}

// event writes an event about a workload.
func (c *Controller) event(v *visit, kind, reason, action, note string) {
	var related *v1.ObjectReference
	if v.pod != nil {
		related = &v1.ObjectReference{APIVersion: "v1", Kind: "Pod", Namespace: v.pod.Namespace, Name: v.pod.Name, UID: v.pod.UID}
	}
	if related == nil {
		c.options.Recorder.Eventf(v.Reference(), nil, kind, reason, action, "%s", note)
		return
	}
	c.options.Recorder.Eventf(v.Reference(), related, kind, reason, action, "%s", note)
}
