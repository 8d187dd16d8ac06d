package elasticity

import (
	"fmt"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	appslisters "k8s.io/client-go/listers/apps/v1"
	autoscalinglisters "k8s.io/client-go/listers/autoscaling/v2"
	batchlisters "k8s.io/client-go/listers/batch/v1"
	corelisters "k8s.io/client-go/listers/core/v1"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/events"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tandem-gpu/tandem/internal/cluster/podgroup"
	"github.com/tandem-gpu/tandem/internal/controller/passes"
	"github.com/tandem-gpu/tandem/internal/controller/profiles"
	"github.com/tandem-gpu/tandem/internal/controller/snapshot"
	"github.com/tandem-gpu/tandem/pkg/elastic"
)

// everything selects all objects.
var everything = labels.Everything()

// Gangs knows which pods form a gang: a *podgroup.Set.
type Gangs interface {
	// Of returns the gang that a pod names, and whether it names one.
	Of(pod *v1.Pod) (podgroup.Ref, bool)
	// Gang returns what the API says of a gang. The error is a *podgroup.Problem.
	Gang(ref podgroup.Ref) (*podgroup.Gang, error)
	// Elastic returns the elastic gangs that have members.
	Elastic() []podgroup.Ref
	// Synced reports whether all existing objects are read.
	Synced() bool
}

// Options are what a Controller works with.
type Options struct {
	// Kube evicts pods. Informers read pods, nodes and the owners of pods; the caller starts them.
	Kube      kubernetes.Interface
	Informers informers.SharedInformerFactory
	// Dynamic reads and writes the objects that make the members of gangs which are resized by the fields of these objects.
	Dynamic dynamic.Interface
	// Client writes ElasticTargets, Reader reads these, GPUNodes and WorkloadProfiles.
	Client client.Client
	Reader client.Reader
	// Fleets reads InferenceFleets, for the devices that they will need; nil where no controller sizes them.
	Fleets client.Reader
	// Gangs knows which pods form a gang.
	Gangs Gangs
	// Recorder writes events about gangs.
	Recorder events.EventRecorder
	// SchedulerName is that of the pods whose waiting counts.
	SchedulerName string
	// Preferred are the levels that gangs prefer which name none: preferredTopology of the scheduler's GPUGang.
	Preferred []string
	// Elastic holds the settings of package elastic.
	Elastic elastic.Config
	// Every is the time between two passes, Notice the time between the notice to a member and its eviction. A target
	// that the scheduler cannot reach goes back to what runs after AdmitWithin.
	Every, Notice, AdmitWithin time.Duration
	// Now is the clock; nil is the real one.
	Now func() time.Time
}

// listers read the informers' stores.
type listers struct {
	pods        corelisters.PodLister
	nodes       corelisters.NodeLister
	jobs        batchlisters.JobLister
	replicaSets appslisters.ReplicaSetLister
	// statefulSets and deployments may run parameter servers; StatefulSets may make members too.
	statefulSets appslisters.StatefulSetLister
	deployments  appslisters.DeploymentLister
	autoscalers  autoscalinglisters.HorizontalPodAutoscalerLister
}

// Controller keeps elastic gangs at the right size.
type Controller struct {
	passes.Loop
	options     Options
	gangs       Gangs
	scheduler   string
	listers     *listers
	reader      snapshot.Reader
	profiles    profiles.Profiles
	memory      map[podgroup.Ref]*memory
	completions *completions
	lengths     *lengths
	// rigid are the objects of which an event said that their rate has no effect, as long as they have such pods.
	rigid map[types.UID]bool
	// unmade are the variants of fleets whose replicas have no pods yet.
	unmade  map[variantOf]unmadeWait
	metrics *metricSet
	now     func() time.Time
}

// usualGrace is the grace period of pods that state none. Members with a longer one give their devices back later than was counted on.
const usualGrace = 30 * time.Second

// New returns a controller that has not read anything. An error names the option that is not legal.
func New(o Options) (*Controller, error) {
	switch {
	case o.Every < time.Second || o.Every > time.Hour:
		return nil, fmt.Errorf("the time between two passes is %v, legal is 1s to 1h", o.Every)
	case o.Notice < 0 || o.Notice > time.Hour:
		return nil, fmt.Errorf("the notice to members is %v, legal is 0s to 1h", o.Notice)
	case o.AdmitWithin < 0:
		return nil, fmt.Errorf("targets go back after %v, legal is 0s or more", o.AdmitWithin)
	}
	if err := o.Elastic.Validate(); err != nil {
		return nil, err
	}
	if o.Elastic.GiveBack == 0 {
		o.Elastic.GiveBack = max(elastic.DefaultGiveBack, (o.Notice + 2*o.Every + usualGrace).Seconds())
	}
	core, apps := o.Informers.Core().V1(), o.Informers.Apps().V1()
	jobs, autoscalers := o.Informers.Batch().V1().Jobs(), o.Informers.Autoscaling().V2().HorizontalPodAutoscalers()
	c := &Controller{
		options: o, gangs: o.Gangs, scheduler: o.SchedulerName, memory: map[podgroup.Ref]*memory{},
		metrics: newMetrics(), now: o.Now,
		listers: &listers{
			pods: core.Pods().Lister(), nodes: core.Nodes().Lister(), jobs: jobs.Lister(), replicaSets: apps.ReplicaSets().Lister(),
			statefulSets: apps.StatefulSets().Lister(), deployments: apps.Deployments().Lister(), autoscalers: autoscalers.Lister(),
		},
	}
	c.Loop = passes.Loop{Over: "elastic gangs", Every: o.Every, Make: c.Pass, CountFailure: c.metrics.failed, Synced: []cache.InformerSynced{
		core.Pods().Informer().HasSynced, core.Nodes().Informer().HasSynced, jobs.Informer().HasSynced,
		apps.ReplicaSets().Informer().HasSynced, apps.StatefulSets().Informer().HasSynced, apps.Deployments().Informer().HasSynced, autoscalers.Informer().HasSynced, o.Gangs.Synced,
	}}
	if c.now == nil {
		c.now = time.Now
	}
	var err error
	if c.lengths, err = newLengths(&o.Elastic); err != nil {
		return nil, fmt.Errorf("predict how long gangs take: %w", err)
	}
	c.completions = &completions{now: c.now}
	if _, err := core.Pods().Informer().AddEventHandler(c.completions.handler()); err != nil {
		return nil, fmt.Errorf("watch pods: %w", err)
	}
	return c, nil
}
