package gpupreempt

import (
	"context"
	"fmt"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation/field"
	policylisters "k8s.io/client-go/listers/policy/v1"
	fwk "k8s.io/kube-scheduler/framework"
	"k8s.io/kubernetes/pkg/scheduler/framework/plugins/defaultpreemption"
	frameworkruntime "k8s.io/kubernetes/pkg/scheduler/framework/runtime"

	"github.com/tandem-gpu/tandem/internal/cluster/kube"
	"github.com/tandem-gpu/tandem/internal/cluster/podgroup"
	"github.com/tandem-gpu/tandem/internal/cluster/throttle"
	"github.com/tandem-gpu/tandem/pkg/api/config"
	"github.com/tandem-gpu/tandem/pkg/gang"
	"github.com/tandem-gpu/tandem/pkg/placement"
	"github.com/tandem-gpu/tandem/pkg/preemption"
	"github.com/tandem-gpu/tandem/pkg/vgpu"
)

// Name of the plugin in the scheduler's configuration.
const Name = "GPUPreempt"

// Shares knows who holds which device, and keeps room: the plugin GPUShare.
type Shares interface {
	// Ledgers returns the ledger of each node, nil for those without devices unless also asks for them. The error says in words
	// what is not known yet.
	Ledgers(ctx context.Context, pod *v1.Pod, nodes []fwk.NodeInfo, also func(node string) bool) ([]*vgpu.Node, error)
	// Policy is what places are ranked by.
	Policy() placement.Policy
	// Request returns what a pod asks for; the error says in words why no node can take it.
	Request(pod *v1.Pod) (vgpu.Request, error)
	// Hold keeps room for a pod, in place of an earlier hold of the pod, Release ends that, and Held tells of it.
	Hold(h vgpu.Hold) error
	Release(uid vgpu.UID) bool
	Held(uid vgpu.UID) (vgpu.Hold, bool)
}

// Gangs knows which pods form a gang: the plugin GPUGang.
type Gangs interface {
	// Of returns the gang that a pod names, and whether it names one: always the same for one object of the pod.
	Of(pod *v1.Pod) (podgroup.Ref, bool)
	// Gang returns what the API says of a gang. The error is a *podgroup.Problem.
	Gang(ref podgroup.Ref) (*podgroup.Gang, error)
	// Least returns how many members of a gang stay unless all go: more than it has where it goes whole or not at all.
	Least(ref podgroup.Ref) int
	// Withdraw takes back the plan of a gang that has not been let go and that the pod is a member of, and reports whether it is:
	// nobody needs to evict it then.
	Withdraw(pod *v1.Pod) bool
	Rooms
}

// Plugin is GPUPreempt.
type Plugin struct {
	handle fwk.Handle
	// requests is for evictions.
	requests *throttle.Client
	args     *config.GPUPreemptArgs
	shares   func() Shares
	gangs    func() Gangs
	now      func() time.Time
	// core finds the victims: preemption.Victims.
	core    func(*gang.Cluster, *gang.Group, *preemption.Candidates, preemption.Config) (preemption.Plan, error)
	guards  *kube.Guards
	budgets policylisters.PodDisruptionBudgetLister
	// plain is the in-tree plugin, for pods that ask for no vGPU.
	plain   *defaultpreemption.DefaultPreemption
	state   *state
	notes   notes
	metrics *metricSet
}

var (
	_ fwk.PreEnqueuePlugin  = (*Plugin)(nil)
	_ fwk.PostFilterPlugin  = (*Plugin)(nil)
	_ fwk.EnqueueExtensions = (*Plugin)(nil)

	_ fwk.PodGroupPostFilterPlugin = (*Plugin)(nil)
)

// Options is what the plugin stands on.
type Options struct {
	// Shares returns the plugin GPUShare of the same profile, nil where there is none. It is asked when pods are scheduled:
	// the plugins of a profile are made in no fixed order.
	Shares func() Shares
	// Gangs returns the plugin GPUGang of the same profile, nil where there is none.
	Gangs func() Gangs
	// Now is the clock; nil is the real one.
	Now func() time.Time
}

// NewFactory returns the factory of the plugin for a scheduler whose GPUShare and GPUGang are what shares and gangs return.
func NewFactory(shares func() Shares, gangs func() Gangs) frameworkruntime.PluginFactory {
	return func(ctx context.Context, args runtime.Object, handle fwk.Handle) (fwk.Plugin, error) {
		p, err := New(ctx, args, handle, Options{Shares: shares, Gangs: gangs})
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
		handle: handle, args: args, shares: o.Shares, gangs: o.Gangs, now: o.Now, core: preemption.Victims,
		budgets: handle.SharedInformerFactory().Policy().V1().PodDisruptionBudgets().Lister(),
		state:   newState(int(args.EvictionsPerMinute)), metrics: newMetrics(), notes: notes{byNode: map[string][]note{}},
	}
	if p.now == nil {
		p.now = time.Now
	}
	if p.requests, err = throttle.New(handle.KubeConfig(), handle.ClientSet()); err != nil {
		return nil, fmt.Errorf("start plugin %s: %w", Name, err)
	}
	if p.guards, err = kube.NewGuards(args); err != nil {
		return nil, fmt.Errorf("start plugin %s: %w", Name, err)
	}
	if p.plain, err = p.newPlain(ctx); err != nil {
		return nil, fmt.Errorf("start plugin %s: %w", Name, err)
	}
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

// gangsOrNil returns GPUGang, nil where the profile has none: pods belong to no gang then.
func (p *Plugin) gangsOrNil() Gangs {
	if p.gangs == nil {
		return nil
	}
	return p.gangs()
}

func uidOf(pod *v1.Pod) vgpu.UID { return vgpu.UID(pod.UID) }

func uidForFramework(uid vgpu.UID) types.UID { return types.UID(uid) }
