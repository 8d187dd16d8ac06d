package placeable

import (
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/dynamic/dynamicinformer"
	"k8s.io/client-go/informers"
	corelisters "k8s.io/client-go/listers/core/v1"
	schedulinglisters "k8s.io/client-go/listers/scheduling/v1"
	"k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tandem-gpu/tandem/internal/cluster/podgroup"
	"github.com/tandem-gpu/tandem/internal/cluster/victims"
	"github.com/tandem-gpu/tandem/internal/cluster/workloads"
	"github.com/tandem-gpu/tandem/internal/controller/passes"
	"github.com/tandem-gpu/tandem/internal/controller/profiles"
	"github.com/tandem-gpu/tandem/internal/controller/snapshot"
	"github.com/tandem-gpu/tandem/pkg/api/config"
)

// Options are what a Controller works with.
type Options struct {
	// Informers read pods, nodes, namespaces and PriorityClasses, Kueue reads the objects of Kueue; the caller starts both.
	Informers informers.SharedInformerFactory
	Kueue     dynamicinformer.DynamicSharedInformerFactory
	// Dynamic writes the answers.
	Dynamic dynamic.Interface
	// Reader reads GPUNodes and WorkloadProfiles.
	Reader client.Reader
	// Every is the time between two looks at the Workloads that wait for an answer.
	Every time.Duration
	// Patience is how long a Workload keeps its quota while other pods use what it needs.
	Patience time.Duration
	// Curves are those of the scheduler's arguments. The namespaces say whether their own curves count.
	Curves workloads.Curves
	// Served says which PodGroups the scheduler reads.
	Served podgroup.Served
	// Preemption are the arguments of the scheduler's GPUPreempt, or those without guards where the preemption of Kubernetes runs in its place; nil
	// where neither runs, and the check counts on no eviction.
	Preemption *config.GPUPreemptArgs
	// Now is the clock; nil is the real one.
	Now func() time.Time
}

// Bounds of Options.Every and Options.Patience.
const (
	LeastEvery   = time.Second
	MostEvery    = 10 * time.Minute
	MostPatience = 24 * time.Hour
)

// Controller answers the AdmissionChecks.
type Controller struct {
	passes.Loop
	options Options
	pods    corelisters.PodLister
	nodes   corelisters.NodeLister
	classes schedulinglisters.PriorityClassLister
	// workloads, checks and flavors list the objects of Kueue.
	workloads, checks, flavors cache.GenericLister
	reader                     snapshot.Reader
	profiles                   profiles.Profiles
	// guards say which pods the scheduler's preemption spares. They are nil if the scheduler evicts no pods.
	guards *victims.Guards
	// next is the place of the first Workload that the next pass looks at, where more wait than one pass looks at.
	next int
	// told is when the message of a Workload was last written.
	told    map[types.UID]time.Time
	metrics *metricSet
	now     func() time.Time
}

// New returns a controller that has not read anything. An error names the option that is not legal.
func New(o Options) (*Controller, error) {
	switch {
	case o.Every < LeastEvery || o.Every > MostEvery:
		return nil, fmt.Errorf("the time between two looks is %v, legal is %v to %v", o.Every, LeastEvery, MostEvery)
	case o.Patience < 0 || o.Patience > MostPatience:
		return nil, fmt.Errorf("the patience is %v, legal is 0s to %v", o.Patience, MostPatience)
	}
	guards, err := guardsOf(o.Preemption)
	if err != nil {
		return nil, err
	}
	namespaces := o.Informers.Core().V1().Namespaces()
	o.Curves.Own = func(name string) bool {
		namespace, err := namespaces.Lister().Get(name)
		return err == nil && workloads.AllowsOwnCurves(namespace)
	}
	core, classes := o.Informers.Core().V1(), o.Informers.Scheduling().V1().PriorityClasses()
	workloads, checks, flavors := o.Kueue.ForResource(Workloads), o.Kueue.ForResource(AdmissionChecks), o.Kueue.ForResource(ResourceFlavors)
	c := &Controller{
		options: o, pods: core.Pods().Lister(), nodes: core.Nodes().Lister(), classes: classes.Lister(),
		workloads: workloads.Lister(), checks: checks.Lister(), flavors: flavors.Lister(), told: map[types.UID]time.Time{}, metrics: newMetrics(), now: o.Now,
		guards: guards,
	}
	c.Loop = passes.Loop{Over: "Workloads of Kueue", Every: o.Every, Make: c.Pass, CountFailure: c.metrics.failures.Inc, Synced: []cache.InformerSynced{
		core.Pods().Informer().HasSynced, core.Nodes().Informer().HasSynced, namespaces.Informer().HasSynced, classes.Informer().HasSynced,
		workloads.Informer().HasSynced, checks.Informer().HasSynced, flavors.Informer().HasSynced,
	}}
	if c.now == nil {
		c.now = time.Now
	}
	return c, nil
}

// guardsOf returns which pods the scheduler never evicts, nil where it evicts none.
func guardsOf(args *config.GPUPreemptArgs) (*victims.Guards, error) {
	if args == nil || args.Mode != config.PreemptionEnabled {
		return nil, nil //nolint:nilnil // see above
	}
	return victims.NewGuards(args)
}
