package gpushare

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/dynamic"
	corelisters "k8s.io/client-go/listers/core/v1"
	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"
	fwk "k8s.io/kube-scheduler/framework"

	"github.com/tandem-gpu/tandem/internal/cluster/learning"
	"github.com/tandem-gpu/tandem/internal/cluster/throttle"
	"github.com/tandem-gpu/tandem/internal/cluster/workloads"
	"github.com/tandem-gpu/tandem/pkg/api/config"
	"github.com/tandem-gpu/tandem/pkg/fragmentation"
	"github.com/tandem-gpu/tandem/pkg/placement"
	"github.com/tandem-gpu/tandem/pkg/vgpu"
)

// Name of the plugin in the scheduler's configuration.
const Name = "GPUShare"

// Plugin is GPUShare.
type Plugin struct {
	handle fwk.Handle
	// requests is for binds and for questions what became of them.
	requests    *throttle.Client
	bindTimeout time.Duration
	// policy and seed become a rule with what usual returns: the mix of the arguments, or that of the arrivals.
	policy   placement.Policy
	seed     int64
	usual    func() *fragmentation.Mix
	arrivals *arrivals
	// lifetimes knows how long pods run, nil where the plugin learns none.
	lifetimes *lifetimes
	// crowding says how pods share devices, scarcity whether idle devices are few, and news what users declared since
	// the rule.
	crowding crowding
	scarcity scarcity
	news     news
	now      func() time.Time
	// learn starts the learner, once: the scheduler that schedules is the one that learns.
	learn func()
	// leads: this scheduler schedules, and does not wait for its turn behind another.
	leads atomic.Bool
	// profiled: the plugin has read the WorkloadProfiles, or cannot; profilesKnown: it has read them.
	profiled, profilesKnown atomic.Bool
	// answered are done when the plugin has read the GPUNodes, and the WorkloadProfiles, or cannot.
	answered [2]firstAnswer
	pending  *pending
	// plain returns the waiting pods without vGPUs.
	plain func() []*v1.Pod
	// departure is the last pod that left, for the pods that wait.
	departure departure
	// hosts are the nodes as the API server has them.
	hosts corelisters.NodeLister
	// scoresAll: Score also runs for pods without vGPUs.
	scoresAll bool
	state     *state
	// misses are the pods whose last shortlist failed, absurd those for which PreEnqueue has written an
	// event with their mistake, until they have a node or are gone.
	misses, absurd podSet
	// missing are the pods whose WorkloadProfile may not exist.
	missing missing
	// placed are the pods with vGPUs and a node, by the informer, and gpuNodes has what it keeps of the GPUNodes.
	placed   placedPods
	gpuNodes cache.Store
	shown    shown
	metrics  *metricSet
}

var (
	_ fwk.PreEnqueuePlugin  = (*Plugin)(nil)
	_ fwk.PreFilterPlugin   = (*Plugin)(nil)
	_ fwk.FilterPlugin      = (*Plugin)(nil)
	_ fwk.PostFilterPlugin  = (*Plugin)(nil)
	_ fwk.PreScorePlugin    = (*Plugin)(nil)
	_ fwk.ScorePlugin       = (*Plugin)(nil)
	_ fwk.ScoreExtensions   = (*Plugin)(nil)
	_ fwk.ReservePlugin     = (*Plugin)(nil)
	_ fwk.BindPlugin        = (*Plugin)(nil)
	_ fwk.EnqueueExtensions = (*Plugin)(nil)
	_ fwk.SignPlugin        = (*Plugin)(nil)
)

// Factory makes the plugin of one scheduler, and hands it to the plugins that plan by it. The zero value is ready.
type Factory struct {
	mu     sync.Mutex
	taken  bool
	plugin *Plugin
}

// New makes the plugin, once: it fails for a second profile. Two plugins would not see each other's reservations and could
// give one share to two pods.
func (f *Factory) New(ctx context.Context, args runtime.Object, handle fwk.Handle) (fwk.Plugin, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.taken {
		return nil, fmt.Errorf("start plugin %s: profiles: more than one enables it: enable it in one profile, "+
			"and give pods that need another policy a scheduler of their own for other nodes", Name)
	}
	f.taken = true
	plugin, err := New(ctx, args, handle)
	if err != nil {
		return nil, err
	}
	f.plugin = plugin.(*Plugin)
	return plugin, nil
}

// Plugin returns the plugin, nil before New made it.
func (f *Factory) Plugin() *Plugin {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.plugin
}

// New returns the plugin and starts to watch GPUNodes, WorkloadProfiles and pods until ctx ends. New returns after the
// first lists of both resources, after an error of the API server, or after firstRead. Until the plugin has read both,
// it refuses pods with vGPUs, with the reason.
func New(ctx context.Context, args runtime.Object, handle fwk.Handle) (fwk.Plugin, error) {
	if handle.KubeConfig() == nil {
		return nil, fmt.Errorf("start plugin %s: the scheduler has no kubeconfig to watch GPUNodes with", Name)
	}
	client, err := dynamic.NewForConfig(handle.KubeConfig())
	if err != nil {
		return nil, fmt.Errorf("start plugin %s: %w", Name, err)
	}
	requests, err := throttle.New(handle.KubeConfig(), handle.ClientSet())
	if err != nil {
		return nil, fmt.Errorf("start plugin %s: %w", Name, err)
	}
	return newPlugin(ctx, args, handle, client, requests)
}

// NewWithClient is New with the client for GPUNodes and WorkloadProfiles. Binds go through the client of the handle.
func NewWithClient(ctx context.Context, args runtime.Object, handle fwk.Handle, client dynamic.Interface) (*Plugin, error) {
	var requests *throttle.Client
	if handle != nil {
		requests = throttle.Unlimited(handle.ClientSet())
	}
	return newPlugin(ctx, args, handle, client, requests)
}

func newPlugin(
	ctx context.Context, object runtime.Object, handle fwk.Handle, client dynamic.Interface, requests *throttle.Client,
) (*Plugin, error) {
	args, ok := object.(*config.GPUShareArgs)
	if !ok {
		return nil, fmt.Errorf("start plugin %s: arguments of type %T, want GPUShareArgs", Name, object)
	}
	path := field.NewPath("pluginConfig").Key(Name).Child("args")
	if errs := config.ValidateGPUShareArgs(args, placement.Policies(), path); len(errs) > 0 {
		return nil, fmt.Errorf("start plugin %s: %w", Name, errs.ToAggregate())
	}
	policy, err := placement.ByName(args.Policy)
	if err != nil {
		return nil, fmt.Errorf("start plugin %s: %w", Name, err)
	}
	pods := handle.SharedInformerFactory().Core().V1().Pods()
	m := newMetrics()
	p := &Plugin{
		handle: handle, requests: requests, policy: policy, seed: args.Seed, bindTimeout: args.BindTimeout.Duration,
		scoresAll: args.PodsWithoutGPUs == config.ScorePods, now: time.Now,
		scarcity: scarcity{percent: int64(args.ScarceBelowPercent)},
		hosts:    handle.SharedInformerFactory().Core().V1().Nodes().Lister(),
		pending:  newPending(handle, pods.Lister()), metrics: m, answered: [2]firstAnswer{newAnswer(), newAnswer()},
	}
	if p.crowding, err = givenCrowding(args); err != nil {
		return nil, fmt.Errorf("start plugin %s: %s: %w", Name, path.Child("interference", "model"), err)
	}
	if err := indexPlainPods(pods.Informer()); err != nil {
		return nil, fmt.Errorf("start plugin %s: index waiting pods: %w", Name, err)
	}
	p.plain = func() []*v1.Pod { return plainOf(pods.Informer().GetIndexer()) }
	learner := learning.New(learning.Options{
		Model: p.crowding.model, MaxProfiles: int(args.Interference.MaxProfiles), Client: client,
		Frozen: args.Interference.Learning == config.LearningDisabled,
	})
	p.learn = sync.OnceFunc(func() {
		p.leads.Store(true)
		go learner.Run(ctx)
	})
	p.state = newState(pods.Lister(), m, learner)
	p.state.freed = p.pending.activateOn
	if p.state.curves, err = workloads.GivenCurves(args); err != nil {
		return nil, fmt.Errorf("start plugin %s: %s: %w", Name, path.Child("throughputs"), err)
	}
	namespaces := handle.SharedInformerFactory().Core().V1().Namespaces()
	p.state.curves.Own = func(name string) bool {
		namespace, err := namespaces.Lister().Get(name)
		return err == nil && workloads.AllowsOwnCurves(namespace)
	}
	if err := p.expect(args); err != nil {
		return nil, fmt.Errorf("start plugin %s: %s: %w", Name, path.Child("typicalRequests"), err)
	}
	p.adopt(klog.FromContext(ctx), learner.Snapshot(), load{}, &vgpu.Request{})
	m.register(ctx, p)
	if args.Lifetimes == config.LifetimesEnabled {
		if p.lifetimes, err = newLifetimes(); err != nil {
			return nil, fmt.Errorf("start plugin %s: %w", Name, err)
		}
	}
	if err := p.watch(ctx, pods.Informer(), client); err != nil {
		return nil, fmt.Errorf("start plugin %s: %w", Name, err)
	}
	if err := p.watchNamespaces(ctx, namespaces.Informer()); err != nil {
		return nil, fmt.Errorf("start plugin %s: watch namespaces: %w", Name, err)
	}
	p.awaitAnswers(ctx)
	if err := p.watchEnded(ctx); err != nil {
		return nil, fmt.Errorf("start plugin %s: watch pods that ended: %w", Name, err)
	}
	go p.pending.run(ctx, p.outdated, p.mayHaveRoom)
	go wait.UntilWithContext(ctx, p.settleUnresolved, unresolvedStep)
	go wait.UntilWithContext(ctx, p.endPauses, pauseStep)
	go wait.UntilWithContext(ctx, p.reportMissing, missingStep)
	return p, nil
}

// watch starts to read what the plugin goes by.
func (p *Plugin) watch(ctx context.Context, pods cache.SharedIndexInformer, client dynamic.Interface) error {
	if err := p.watchPods(ctx, pods); err != nil {
		return fmt.Errorf("watch pods: %w", err)
	}
	if err := p.watchGPUNodes(ctx, client); err != nil {
		return fmt.Errorf("watch GPUNodes: %w", err)
	}
	if err := p.watchProfiles(ctx, client); err != nil {
		return fmt.Errorf("watch WorkloadProfiles: %w", err)
	}
	return nil
}

// firstRead bounds how long the scheduler's start waits for an API server that does not answer. Shorter gives the first
// pods after a restart of the scheduler a warning that means nothing; longer keeps pods without vGPUs waiting.
const firstRead = 15 * time.Second

// firstAnswer is done after announce.
type firstAnswer struct {
	done     <-chan struct{}
	announce func()
}

func newAnswer() firstAnswer {
	done := make(chan struct{})
	return firstAnswer{done: done, announce: sync.OnceFunc(func() { close(done) })}
}

// These are the indices of answered: the objects that the answer is about.
const (
	aboutGPUNodes = iota
	aboutProfiles
)

// awaitAnswers waits until it is known whether what the plugin goes by can be read, and is.
func (p *Plugin) awaitAnswers(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, firstRead)
	defer cancel()
	for i := range p.answered {
		select {
		case <-p.answered[i].done:
		case <-ctx.Done():
			return
		}
	}
}

// expect sets the usual requests: those of the arguments, else those that the plugin learns.
func (p *Plugin) expect(args *config.GPUShareArgs) error {
	if len(args.TypicalRequests) == 0 {
		p.arrivals = newArrivals(args.MixHalfLife.Duration, time.Now)
		p.usual = p.arrivals.usual
		return nil
	}
	mix, err := workloads.GivenMix(args.TypicalRequests)
	p.usual = func() *fragmentation.Mix { return mix }
	return err
}

// Name returns Name.
func (p *Plugin) Name() string { return Name }

// Keys of the plugin's data in a pod's CycleState.
const (
	requestKey fwk.StateKey = Name + "/request"
	illegalKey fwk.StateKey = Name + "/illegal"
	hostKey    fwk.StateKey = Name + "/host"
	choiceKey  fwk.StateKey = Name + "/choice"
)

// request is the result of PreFilter. It does not change later.
type request struct{ vgpu.Request }

// Clone returns the same request.
func (r *request) Clone() fwk.StateData { return r }

// choice is what Reserve picked: a later Reserve with the same CycleState replays it.
type choice struct{ vgpu.Assignment }

// Clone returns the same choice.
func (c *choice) Clone() fwk.StateData { return c }

// requestOf returns what PreFilter wrote, nil for pods without vGPUs.
func requestOf(cs fwk.CycleState) *vgpu.Request { return read(cs, requestKey) }

// scoredOf returns the request for Score, nil for none. It has no containers for pods without vGPUs.
func scoredOf(cs fwk.CycleState) *vgpu.Request {
	if r := requestOf(cs); r != nil {
		return r
	}
	return read(cs, hostKey)
}

func read(cs fwk.CycleState, key fwk.StateKey) *vgpu.Request {
	data, err := cs.Read(key)
	if err != nil {
		return nil
	}
	if r, ok := data.(*request); ok {
		return &r.Request
	}
	return nil
}

// choiceOf returns what Reserve wrote, nil before the first Reserve.
func choiceOf(cs fwk.CycleState) *vgpu.Assignment {
	data, err := cs.Read(choiceKey)
	if err != nil {
		return nil
	}
	if c, ok := data.(*choice); ok {
		return &c.Assignment
	}
	return nil
}
