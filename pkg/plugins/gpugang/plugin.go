package gpugang

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/client-go/dynamic"
	fwk "k8s.io/kube-scheduler/framework"
	frameworkruntime "k8s.io/kubernetes/pkg/scheduler/framework/runtime"

	"github.com/tandem-gpu/tandem/internal/cluster/podgroup"
	"github.com/tandem-gpu/tandem/internal/scheduler/machine"
	"github.com/tandem-gpu/tandem/pkg/api/config"
	"github.com/tandem-gpu/tandem/pkg/gang"
	"github.com/tandem-gpu/tandem/pkg/placement"
	"github.com/tandem-gpu/tandem/pkg/reservation"
	"github.com/tandem-gpu/tandem/pkg/vgpu"
)

// Name of the plugin in the scheduler's configuration.
const Name = "GPUGang"

// Shares knows who holds which device, and keeps room: the plugin GPUShare.
type Shares interface {
	// Ledgers returns the ledger of each node, nil for those without devices unless also returns true for them. The
	// error says in words what GPUShare has not read yet.
	Ledgers(ctx context.Context, pod *v1.Pod, nodes []fwk.NodeInfo, also func(node string) bool) ([]*vgpu.Node, error)
	// Policy is what places are ranked by.
	Policy() placement.Policy
	// Request returns the request of a pod; the error says in words why no node can take it.
	Request(pod *v1.Pod) (vgpu.Request, error)
	// Losses returns the losses of a gang of the pod's workload by its spread, each level once; nil without a
	// declaration.
	Losses(pod *v1.Pod) []gang.Loss
	// Held returns the hold of a pod, and Stands whether the pod could have that room on the node now.
	Held(uid vgpu.UID) (vgpu.Hold, bool)
	Stands(uid vgpu.UID, node fwk.NodeInfo) bool
	// Plans sets the function that knows the members of gangs: only holds keep their room.
	Plans(member func(pod *v1.Pod) bool)
	// Assigned returns the devices of a pod, and whether it has any. Unresolved returns the devices of its unresolved
	// binds: no other pod gets them, and the pod gets no others on those nodes.
	Assigned(pod *v1.Pod) (vgpu.Assignment, bool)
	Unresolved(uid vgpu.UID) []vgpu.Assignment
	// UnresolvedBinds counts the pods with unresolved binds. When the count falls, room has come free.
	UnresolvedBinds() int
}

// Gangs knows which pods form a gang: a *podgroup.Set.
type Gangs interface {
	// Of returns the gang that a pod names, and whether it names one.
	Of(pod *v1.Pod) (podgroup.Ref, bool)
	// Gang returns what the API says of a gang. The error is a *podgroup.Problem.
	Gang(ref podgroup.Ref) (*podgroup.Gang, error)
	// Began returns when an object first made a member of a gang, and whether others make members too.
	Began(ref podgroup.Ref, o podgroup.Origin) (at time.Time, several bool)
	// See makes a pod known at once, before the informer does.
	See(pod *v1.Pod)
	// OnChange has a function called whenever a gang or its members changed.
	OnChange(told func(podgroup.Ref))
	// Queues reports whether the scheduler's queue knows the gangs of a source itself.
	Queues(source podgroup.Source) bool
	// Elastic returns the elastic gangs that have members.
	Elastic() []podgroup.Ref
	// Synced reports whether the plugin has read all existing objects.
	Synced() bool
}

// Plugin is GPUGang.
type Plugin struct {
	handle  fwk.Handle
	args    *config.GPUGangArgs
	shares  func() Shares
	gangs   Gangs
	machine *machine.Machine
	// unresolved is the number of UnresolvedBinds at the last step.
	unresolved int
	claim      sync.Once
	unplaced   unplaced
	// active says that this process schedules: it has tried a member of a gang.
	active atomic.Bool
	// targets writes what the scheduler tells in ElasticTargets, nil where it tells nothing.
	targets dynamic.Interface
	// topologyCache is for the scheduling cycle alone.
	topology topologyCache
	// inVain, freeSlots, warned and yielding are for the scheduling cycle alone. freeSlots are those of each node at the last placement
	// beside a running gang that lacks members; warned are pods with a warning about the name of their gang.
	inVain    map[podgroup.Ref]*patience
	freeSlots map[string]int64
	warned    map[types.UID]time.Time
	yielding  bool
	metrics   *metricSet
	now       func() time.Time
}

var (
	_ fwk.PreEnqueuePlugin         = (*Plugin)(nil)
	_ fwk.PreFilterPlugin          = (*Plugin)(nil)
	_ fwk.FilterPlugin             = (*Plugin)(nil)
	_ fwk.PostFilterPlugin         = (*Plugin)(nil)
	_ fwk.PodGroupPostFilterPlugin = (*Plugin)(nil)
	_ fwk.ReservePlugin            = (*Plugin)(nil)
	_ fwk.PermitPlugin             = (*Plugin)(nil)
	_ fwk.BindPlugin               = (*Plugin)(nil)
	_ fwk.PostBindPlugin           = (*Plugin)(nil)
	_ fwk.EnqueueExtensions        = (*Plugin)(nil)
	_ fwk.SignPlugin               = (*Plugin)(nil)
)

// Options is what the plugin stands on.
type Options struct {
	// Shares returns the plugin GPUShare of the same profile, nil where there is none. The plugin calls it when it
	// schedules a pod: the framework makes the plugins of a profile in no fixed order.
	Shares func() Shares
	// Gangs knows which pods form a gang.
	Gangs Gangs
	// Machine keeps the state of the gangs.
	Machine *machine.Machine
	// Targets writes into the ElasticTargets why members have no node; nil where the API server has none.
	Targets dynamic.Interface
	// Now is the clock; nil is the real one.
	Now func() time.Time
}

// NewFactory returns the factory of the plugin for a scheduler whose GPUShare is what shares returns.
func NewFactory(shares func() Shares, m *machine.Machine) frameworkruntime.PluginFactory {
	return func(ctx context.Context, args runtime.Object, handle fwk.Handle) (fwk.Plugin, error) {
		if _, err := legal(args); err != nil {
			return nil, err // before any request to the API server
		}
		set, err := podgroup.Watch(ctx, handle)
		if err != nil {
			return nil, fmt.Errorf("start plugin %s: %w", Name, err)
		}
		o := Options{Shares: shares, Gangs: set, Machine: m}
		if set.Served().Elastic {
			if o.Targets, err = dynamic.NewForConfig(handle.KubeConfig()); err != nil {
				return nil, fmt.Errorf("start plugin %s: %w", Name, err)
			}
		}
		p, err := New(ctx, args, handle, o)
		if err != nil {
			return nil, err
		}
		go p.Run(ctx)
		return p, nil
	}
}

// legal returns the arguments, or what is wrong with them.
func legal(object runtime.Object) (*config.GPUGangArgs, error) {
	args, ok := object.(*config.GPUGangArgs)
	if !ok {
		return nil, fmt.Errorf("start plugin %s: arguments of type %T, want GPUGangArgs", Name, object)
	}
	path := field.NewPath("pluginConfig").Key(Name).Child("args")
	if errs := config.ValidateGPUGangArgs(args, path); len(errs) > 0 {
		return nil, fmt.Errorf("start plugin %s: %w", Name, errs.ToAggregate())
	}
	return args, nil
}

// New returns the plugin. Deadlines, drains and retries need Run.
func New(ctx context.Context, object runtime.Object, handle fwk.Handle, o Options) (*Plugin, error) {
	args, err := legal(object)
	if err != nil {
		return nil, err
	}
	p := &Plugin{handle: handle, args: args, shares: o.Shares, gangs: o.Gangs, machine: o.Machine, now: o.Now, targets: o.Targets, metrics: newMetrics(), inVain: map[podgroup.Ref]*patience{}, warned: map[types.UID]time.Time{}}
	if p.now == nil {
		p.now = time.Now
	}
	p.machine.Join(machine.Joined{Handle: handle, Now: o.Now, Metrics: p.metrics, Gangs: o.Gangs, Started: p.started, Configure: func(c *reservation.Config) {
		c.Deadline, c.Drains, c.After = args.PlacementDeadline.Duration, drainsOf(args.Drain), args.DrainAfter.Duration
		c.Timeout, c.Began = args.DrainTimeout.Duration, p.now()
	}})
	p.metrics.register(ctx, p)
	p.gangs.OnChange(p.changed)
	return p, nil
}

// Name returns Name.
func (p *Plugin) Name() string { return Name }

// drainsOf returns the meaning of the argument drain: when the scheduler keeps room while pods end.
func drainsOf(mode string) gang.Drains {
	switch mode {
	case config.DrainEnabled:
		return gang.AllDrains
	case config.DrainBounded:
		return gang.BoundedDrains
	}
	return gang.NoDrains
}
