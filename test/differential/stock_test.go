package differential

import (
	"context"
	"maps"
	"slices"
	"sync"
	"testing"

	v1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/events"
	"k8s.io/klog/v2"
	extenderv1 "k8s.io/kube-scheduler/extender/v1"
	fwk "k8s.io/kube-scheduler/framework"
	"k8s.io/kubernetes/pkg/scheduler"
	schedulerconfig "k8s.io/kubernetes/pkg/scheduler/apis/config"
	"k8s.io/kubernetes/pkg/scheduler/apis/config/latest"
	internalcache "k8s.io/kubernetes/pkg/scheduler/backend/cache"
	"k8s.io/kubernetes/pkg/scheduler/framework"
	"k8s.io/kubernetes/pkg/scheduler/framework/plugins/defaultpreemption"
	"k8s.io/kubernetes/pkg/scheduler/framework/plugins/feature"
	"k8s.io/kubernetes/pkg/scheduler/framework/preemption"
	frameworkruntime "k8s.io/kubernetes/pkg/scheduler/framework/runtime"
	"k8s.io/kubernetes/pkg/scheduler/profile"

	"github.com/tandem-gpu/tandem/pkg/api/config"
	"github.com/tandem-gpu/tandem/pkg/api/v1alpha1"
	"github.com/tandem-gpu/tandem/pkg/plugins/gpushare"
	"github.com/tandem-gpu/tandem/test/must"
)

// stock is the stock scheduler with GPUShare, whose preemption is asked and evicts nobody. Its loop does not run: the test
// fills its cache.
type stock struct {
	t         *testing.T
	scheduler *scheduler.Scheduler
	framework framework.Framework
	snapshot  *internalcache.Snapshot
	informers informers.SharedInformerFactory
	shares    *gpushare.Plugin
	asked     *inTree
}

// inTree is DefaultPreemption, whose choice is noted instead of carried out.
type inTree struct {
	*defaultpreemption.DefaultPreemption
	found *noted
}

// noted is what the plugin finds on each node.
type noted struct {
	preemption.Interface
	mu      sync.Mutex
	victims map[string]*extenderv1.Victims
}

// Name differs from that of the plugin inside, which the stock scheduler has as well.
func (p *inTree) Name() string { return "NotedPreemption" }

// SelectVictimsOnNode notes whom the plugin would evict on a node.
func (n *noted) SelectVictimsOnNode(ctx context.Context, state fwk.CycleState, preemptor *v1.Pod, node fwk.NodeInfo,
	possible []*preemption.DomainVictim, budgets []*policyv1.PodDisruptionBudget) ([]*v1.Pod, int, *fwk.Status) {
	pods, violations, status := n.Interface.SelectVictimsOnNode(ctx, state, preemptor, node, possible, budgets)
	n.mu.Lock()
	defer n.mu.Unlock()
	n.victims[node.Node().Name] = &extenderv1.Victims{Pods: pods, NumPDBViolations: int64(violations)}
	return pods, violations, status
}

// newInTree makes the plugin that carries nothing out.
func newInTree(ctx context.Context, args runtime.Object, h fwk.Handle) (*inTree, error) {
	inside, err := defaultpreemption.New(ctx, args, h, feature.Features{})
	if err != nil {
		return nil, err
	}
	p := &inTree{inside, &noted{Interface: inside.Evaluator.Interface}}
	inside.Evaluator.Interface = p.found
	inside.Executor.PreemptPod = func(context.Context, preemption.Candidate, preemption.ExecutorPreemptor, *v1.Pod, string) (bool, error) {
		return false, nil
	}
	return p, nil
}

func newStock(t *testing.T, c *population) *stock {
	t.Helper()
	s := &stock{t: t}
	ctx, cancel := context.WithCancel(t.Context())
	t.Cleanup(cancel)
	client := fake.NewSimpleClientset()
	s.informers = scheduler.NewInformerFactory(client, 0, nil)
	broadcaster := events.NewBroadcaster(&events.EventSinkImpl{Interface: client.EventsV1()})
	t.Cleanup(broadcaster.Shutdown)
	shares := &gpushare.Factory{}
	var err error
	s.scheduler, err = scheduler.New(ctx, client, s.informers, nil, profile.NewRecorderFactory(broadcaster),
		scheduler.WithKubeConfig(&rest.Config{Host: serveGPUNodes(t, c.cluster.Nodes()), QPS: -1}),
		scheduler.WithProfiles(stockProfile(t)),
		scheduler.WithParallelism(1), // else it is chance which nodes are looked at last
		scheduler.WithFrameworkOutOfTreeRegistry(frameworkruntime.Registry{
			gpushare.Name: shares.New,
			"NotedPreemption": func(ctx context.Context, args runtime.Object, h fwk.Handle) (fwk.Plugin, error) {
				s.asked, err = newInTree(ctx, args, h)
				return s.asked, err
			},
		}))
	must.OK(t, err)
	s.informers.Start(ctx.Done())
	s.informers.WaitForCacheSync(ctx.Done())
	s.shares, s.framework = shares.Plugin(), s.scheduler.Profiles[v1alpha1.SchedulerName]
	s.snapshot = s.framework.SnapshotSharedLister().(*internalcache.Snapshot)
	s.fill(c)
	return s
}

// stockProfile is the default one, with GPUShare.
func stockProfile(t *testing.T) schedulerconfig.KubeSchedulerProfile {
	t.Helper()
	defaults, err := latest.Default()
	must.OK(t, err)
	p := defaults.Profiles[0]
	p.SchedulerName = v1alpha1.SchedulerName
	share := configuration(t, func(args *config.GPUShareArgs) {
		args.Policy, args.Interference.Model, args.PodsWithoutGPUs = "packed", "none", config.SkipPods
	})
	for _, pc := range share.Profiles[0].PluginConfig {
		if pc.Name == gpushare.Name {
			p.PluginConfig = append(p.PluginConfig, pc)
		}
	}
	m := &p.Plugins.MultiPoint
	m.Enabled = slices.DeleteFunc(m.Enabled, func(x schedulerconfig.Plugin) bool { return x.Name == defaultpreemption.Name })
	m.Enabled = append(m.Enabled, schedulerconfig.Plugin{Name: "NotedPreemption"}, schedulerconfig.Plugin{Name: gpushare.Name, Weight: 1})
	for i := range p.PluginConfig {
		switch args := p.PluginConfig[i].Args.(type) {
		case *schedulerconfig.DefaultPreemptionArgs:
			p.PluginConfig[i].Name = "NotedPreemption"
		case *schedulerconfig.NodeResourcesFitArgs:
			args.IgnoredResources = []string{v1alpha1.ResourceVGPU, v1alpha1.ResourceMemory}
		}
	}
	return p
}

// fill gives the scheduler its nodes, the pods on them and the budgets.
func (s *stock) fill(c *population) {
	s.t.Helper()
	logger := klog.FromContext(s.t.Context())
	for _, n := range c.cluster.Nodes() {
		whole := n.Clone()
		for i := range c.candidates.Pods {
			if b := &c.candidates.Pods[i]; b.Node == n.Name() {
				whole.SetRoom(whole.Room().Plus(b.Host))
			}
		}
		s.scheduler.Cache.AddNode(logger, node(whole))
	}
	for _, p := range c.pods {
		must.OK(s.t, s.scheduler.Cache.AddPod(logger, p))
	}
	budgets := s.informers.Policy().V1().PodDisruptionBudgets().Informer().GetStore()
	for _, b := range c.budgets {
		must.OK(s.t, budgets.Add(b))
	}
	must.OK(s.t, s.scheduler.Cache.UpdateSnapshot(logger, s.snapshot))
}

// preempt returns the node that the plugin nominates for a pod, with its victims; "" where it nominates none.
func (s *stock) preempt(p *v1.Pod) (string, *extenderv1.Victims) {
	s.t.Helper()
	must.OK(s.t, s.informers.Core().V1().Pods().Informer().GetStore().Add(p))
	state := framework.NewCycleState()
	refusals := s.refusals(state, p)
	s.asked.found.victims = map[string]*extenderv1.Victims{}
	result, status := s.framework.RunPostFilterPlugins(s.t.Context(), state, p, refusals)
	if !status.IsSuccess() {
		if status.Code() == fwk.Error {
			s.t.Fatalf("pod %s: %v", p.Name, status)
		}
		return "", nil
	}
	return result.NominatedNodeName, s.asked.found.victims[result.NominatedNodeName]
}

// refusals asks all nodes, as the scheduler's cycle does before it thinks of preemption.
func (s *stock) refusals(state fwk.CycleState, p *v1.Pod) *framework.NodeToStatus {
	s.t.Helper()
	refusals := framework.NewDefaultNodeToStatus()
	nodes, err := s.snapshot.NodeInfos().List()
	must.OK(s.t, err)
	if _, status, _ := s.framework.RunPreFilterPlugins(s.t.Context(), state, p); !status.IsSuccess() {
		refusals.SetAbsentNodesStatus(status)
		return refusals
	}
	for _, n := range nodes {
		status := s.framework.RunFilterPluginsWithNominatedPods(s.t.Context(), state, p, n)
		if status.IsSuccess() {
			s.t.Fatalf("pod %s fits on node %s without an eviction", p.Name, n.Node().Name)
		}
		refusals.Set(n.Node().Name, status)
	}
	return refusals
}

// namesOf returns the names of pods, sorted.
func namesOf(pods []*v1.Pod) []string {
	names := map[string]bool{}
	for _, p := range pods {
		names[p.Name] = true
	}
	return slices.Sorted(maps.Keys(names))
}
