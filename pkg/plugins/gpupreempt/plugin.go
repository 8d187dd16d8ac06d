package gpupreempt

import (
	"context"
	"fmt"
	"sync"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/validation/field"
	policylisters "k8s.io/client-go/listers/policy/v1"
	fwk "k8s.io/kube-scheduler/framework"
	"k8s.io/kubernetes/pkg/scheduler/framework/plugins/defaultpreemption"
	frameworkruntime "k8s.io/kubernetes/pkg/scheduler/framework/runtime"

	"github.com/tandem-gpu/tandem/internal/cluster/throttle"
	"github.com/tandem-gpu/tandem/internal/cluster/victims"
	"github.com/tandem-gpu/tandem/internal/scheduler/machine"
	"github.com/tandem-gpu/tandem/pkg/api/config"
	"github.com/tandem-gpu/tandem/pkg/gang"
	"github.com/tandem-gpu/tandem/pkg/placement"
	"github.com/tandem-gpu/tandem/pkg/preemption"
	"github.com/tandem-gpu/tandem/pkg/reservation"
	"github.com/tandem-gpu/tandem/pkg/vgpu"
)

// Name of the plugin in the scheduler's configuration.
const Name = "GPUPreempt"

// Shares knows who holds which device, and keeps room: the plugin GPUShare.
type Shares interface {
	// Ledgers returns the ledger of each node, nil for those without devices unless also returns true for them. The
	// error says in words what GPUShare has not read yet.
	Ledgers(ctx context.Context, pod *v1.Pod, nodes []fwk.NodeInfo, also func(node string) bool) ([]*vgpu.Node, error)
	// Policy is what places are ranked by.
	Policy() placement.Policy
	// Request returns the request of a pod; the error says in words why no node can take it.
	Request(pod *v1.Pod) (vgpu.Request, error)
	// Steps returns vgpu.Request.Steps of the pod for a search on the nodes alone that it selects.
	Steps(pod *v1.Pod, r *vgpu.Request) int
}

// Plugin is GPUPreempt.
type Plugin struct {
	handle fwk.Handle
	// requests is for evictions.
	requests *throttle.Client
	args     *config.GPUPreemptArgs
	shares   func() Shares

	now func() time.Time
	// core finds the victims: preemption.Victims.
	core    func(*gang.Cluster, *gang.Group, *preemption.Candidates, preemption.Config) (preemption.Plan, error)
	guards  *victims.Guards
	budgets policylisters.PodDisruptionBudgetLister
	// plain is the in-tree plugin, for pods without vGPUs.
	plain *defaultpreemption.DefaultPreemption
	// nominated has the nodes, by UID, that the in-tree plugin chose for pods: until the informer shows that the nominated node of the pod
	// has changed, or the pod has a node or is gone.
	nominated sync.Map
	machine   *machine.Machine
	notes     notes
	metrics   *metricSet
}

var (
	_ fwk.PreEnqueuePlugin  = (*Plugin)(nil)
	_ fwk.PostFilterPlugin  = (*Plugin)(nil)
	_ fwk.EnqueueExtensions = (*Plugin)(nil)

	_ fwk.PodGroupPostFilterPlugin = (*Plugin)(nil)
)

// Options is what the plugin stands on.
type Options struct {
	// Shares returns the plugin GPUShare of the same profile, nil where there is none. The plugin calls it when it
	// schedules a pod: the framework makes the plugins of a profile in no fixed order.
	Shares func() Shares
	// Machine keeps the state of the preemptions, and knows which pods form a gang.
	Machine *machine.Machine
	// Now is the clock; nil is the real one.
	Now func() time.Time
}

// NewFactory returns the factory of the plugin for a scheduler whose GPUShare is what shares returns.
func NewFactory(shares func() Shares, m *machine.Machine) frameworkruntime.PluginFactory {
	return func(ctx context.Context, args runtime.Object, handle fwk.Handle) (fwk.Plugin, error) {
		p, err := New(ctx, args, handle, Options{Shares: shares, Machine: m})
		if err != nil {
			return nil, err
		}
		go p.Run(ctx)
		return p, nil
	}
}

// legal returns the arguments, or what is wrong with them.
func legal(object runtime.Object) (*config.GPUPreemptArgs, error) {
	args, ok := object.(*config.GPUPreemptArgs)
	if !ok {
		return nil, fmt.Errorf("start plugin %s: arguments of type %T, want GPUPreemptArgs", Name, object)
	}
	path := field.NewPath("pluginConfig").Key(Name).Child("args")
	if errs := config.ValidateGPUPreemptArgs(args, path); len(errs) > 0 {
		return nil, fmt.Errorf("start plugin %s: %w", Name, errs.ToAggregate())
	}
	return args, nil
}

// New returns the plugin. Deadlines and retries need Run.
func New(ctx context.Context, object runtime.Object, handle fwk.Handle, o Options) (*Plugin, error) {
	args, err := legal(object)
	if err != nil {
		return nil, err
	}
	p := &Plugin{
		handle: handle, args: args, shares: o.Shares, machine: o.Machine, now: o.Now, core: preemption.Victims,
		budgets: handle.SharedInformerFactory().Policy().V1().PodDisruptionBudgets().Lister(),
		metrics: newMetrics(), notes: notes{byNode: map[string][]note{}},
	}
	if p.now == nil {
		p.now = time.Now
	}
	if p.requests, err = throttle.New(handle.KubeConfig(), handle.ClientSet()); err != nil {
		return nil, fmt.Errorf("start plugin %s: %w", Name, err)
	}
	if p.guards, err = victims.NewGuards(args); err != nil {
		return nil, fmt.Errorf("start plugin %s: %w", Name, err)
	}
	if p.plain, err = p.newPlain(ctx); err != nil {
		return nil, fmt.Errorf("start plugin %s: %w", Name, err)
	}
	p.machine.Join(machine.Joined{Handle: handle, Now: o.Now, Metrics: p.metrics, Configure: func(c *reservation.Config) {
		c.EvictionsPerMinute = int(args.EvictionsPerMinute)
	}})
	if err := p.watch(ctx); err != nil {
		return nil, fmt.Errorf("start plugin %s: %w", Name, err)
	}
	p.metrics.register(ctx, p)
	return p, nil
}

// Name returns Name.
func (p *Plugin) Name() string { return Name }

// sharesOrNil returns GPUShare, nil where the profile has none.
func (p *Plugin) sharesOrNil() Shares {
	if p.shares == nil {
		return nil
	}
	return p.shares()
}
