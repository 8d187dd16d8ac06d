package notebooks

import (
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
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tandem-gpu/tandem/internal/controller/passes"
	"github.com/tandem-gpu/tandem/pkg/contest"
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
	// Notice is the time from the warning to the end. For a notebook with a shorter idle time it is half of that.
	Notice time.Duration
	// Now is the clock; nil is the real one. Pace is how many times as fast it runs as the real one, by which the Controller looks; 0 is 1.
	Now  func() time.Time
	Pace int
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
	passes.Loop
	options      Options
	statefulSets appslisters.StatefulSetLister
	deployments  appslisters.DeploymentLister
	autoscalers  autoscalinglisters.HorizontalPodAutoscalerLister
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
	// replicas are what was written into the workload.
	replicas contest.Number
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
		http: newHTTP(), memory: map[types.UID]*memory{}, metrics: newMetrics(), now: o.Now,
	}
	c.Loop = passes.Loop{Over: "notebooks", Every: o.Every, Make: c.Pass, CountFailure: c.metrics.failures.Inc, Synced: []cache.InformerSynced{
		sets.Informer().HasSynced, deployments.Informer().HasSynced, autoscalers.Informer().HasSynced,
	}}
	if c.now == nil {
		c.now = time.Now
	}
	return c, nil
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
