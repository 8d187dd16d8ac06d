package gpupreempt

import (
	"context"
	"fmt"
	"time"

	v1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	utilfeature "k8s.io/apiserver/pkg/util/feature"
	corev1helpers "k8s.io/component-helpers/scheduling/corev1"
	fwk "k8s.io/kube-scheduler/framework"
	schedulerconfig "k8s.io/kubernetes/pkg/scheduler/apis/config"
	"k8s.io/kubernetes/pkg/scheduler/framework/plugins/defaultpreemption"
	"k8s.io/kubernetes/pkg/scheduler/framework/plugins/feature"
	stock "k8s.io/kubernetes/pkg/scheduler/framework/preemption"

	"github.com/tandem-gpu/tandem/internal/cluster/kube"
	"github.com/tandem-gpu/tandem/internal/cluster/podgroup"
	"github.com/tandem-gpu/tandem/internal/cluster/verdict"
	"github.com/tandem-gpu/tandem/internal/scheduler/machine"
	"github.com/tandem-gpu/tandem/pkg/api/config"
	"github.com/tandem-gpu/tandem/pkg/preemption"
	"github.com/tandem-gpu/tandem/pkg/reservation"
)

// Candidates of the in-tree plugin, as its defaults have them: that part of the nodes, and at least so many.
const (
	candidatesPercent = 10
	candidatesLeast   = 100
)

// systemCritical is the priority from which pods are parts of the cluster itself. The in-tree plugin lets them evict every pod of a
// lower priority, so guards do not hold against them.
const systemCritical = 2_000_000_000

// newPlain returns the in-tree plugin, with the guards and the evictions of this one.
func (p *Plugin) newPlain(ctx context.Context) (*defaultpreemption.DefaultPreemption, error) {
	args := &schedulerconfig.DefaultPreemptionArgs{MinCandidateNodesPercentage: candidatesPercent, MinCandidateNodesAbsolute: candidatesLeast}
	in, err := defaultpreemption.New(ctx, args, p.handle, feature.NewSchedulerFeaturesFromGates(utilfeature.DefaultFeatureGate))
	if err != nil {
		return nil, err
	}
	in.IsEligiblePod = p.mayEvict
	in.Executor.PreemptPod = p.evictPlain
	return in, nil
}

// forPlain makes room for a pod without vGPUs.
func (p *Plugin) forPlain(ctx context.Context, cs fwk.CycleState, pod *v1.Pod, statuses fwk.NodeToStatusReader) (*fwk.PostFilterResult, *fwk.Status) {
	if p.isDryRun() {
		return nominate(""), verdict.New(fwk.Unschedulable, shorten("preemption: "+p.dryRunPlain(ctx, cs, pod, statuses)))
	}
	if node, why := p.awaitsPlain(ctx, pod, statuses); node != "" {
		return nominate(node), verdict.New(fwk.Unschedulable, "preemption: "+why)
	}
	if wait := p.evictionDelay(pod); wait > 0 {
		p.tryAgain(pod, p.now().Add(wait), false)
		return nil, verdict.New(fwk.Unschedulable, fmt.Sprintf("preemption: the scheduler evicts %d pods in a minute at most, the next in %v",
			p.args.EvictionsPerMinute, wait.Round(time.Second)))
	}
	result, status := p.plain.PostFilter(ctx, cs, pod, statuses)
	if status.IsSuccess() {
		p.nominated.Store(pod.UID, result.NominatedNodeName)
		if latest := p.seen(pod); latest == nil || latest.DeletionTimestamp != nil { // its end may have been told before
			p.nominated.Delete(pod.UID)
		}
	}
	return result, status
}

// awaitsPlain returns the node that the in-tree plugin chose for a pod while victims leave it, and why the pod waits, where the informer
// does not show that nomination yet. The in-tree plugin would choose victims again, on any node, and the queue forget the nomination.
func (p *Plugin) awaitsPlain(ctx context.Context, pod *v1.Pod, statuses fwk.NodeToStatusReader) (node, why string) {
	chosen, isChosen := p.nominated.Load(pod.UID)
	latest := p.seen(pod)
	if !isChosen || latest == nil || latest.Status.NominatedNodeName == chosen {
		return "", ""
	}
	nominated := latest.DeepCopy()
	nominated.Status.NominatedNodeName, _ = chosen.(string)
	node = nominated.Status.NominatedNodeName
	isEligible, why := p.plain.PodEligibleToPreemptOthers(ctx, nominated, statuses.Get(node))
	if isEligible {
		return "", ""
	}
	return node, why
}

// evictionDelay returns how long the eviction rate limit delays a preemptor without vGPUs. Its victims are unknown yet:
// they count when they go, and the wait for the excess comes after them.
func (p *Plugin) evictionDelay(pod *v1.Pod) (wait time.Duration) {
	p.machine.Lock(func(l machine.Locked) {
		wait = l.State.EvictionDelay(reservation.PodPreemptor(kube.UIDOf(pod)), corev1helpers.PodPriority(pod), p.now())
	})
	return wait
}

// mayEvict reports whether the guards allow to evict a pod for a preemptor without vGPUs. A member of a gang may go
// only if enough members run on, whichever pods of this node the in-tree plugin chooses: it knows no gangs.
func (p *Plugin) mayEvict(node fwk.NodeInfo, victim stock.Victim, preemptor *v1.Pod) bool {
	if corev1helpers.PodPriority(preemptor) >= systemCritical {
		return true
	}
	for _, info := range victim.Pods() {
		pod := info.GetPod()
		if pod.DeletionTimestamp != nil {
			continue // it leaves whatever the answer; the in-tree plugin waits for it
		}
		priority := corev1helpers.PodPriority(preemptor)
		if p.guards.Of(pod, p.now()) != "" || !p.dispensable(node, pod, priority) || p.budgetForbids(node, pod, priority) {
			return false
		}
	}
	return true
}

// dispensable reports whether a pod belongs to no gang, or its gang can do without all of its members on the node that are below
// a priority.
func (p *Plugin) dispensable(node fwk.NodeInfo, pod *v1.Pod, priority int32) bool {
	gangs := p.machine.Gangs()
	if gangs == nil {
		return true
	}
	ref, member := gangs.Of(pod)
	if !member {
		return true
	}
	here := 0
	for _, info := range node.GetPods() {
		other := info.GetPod()
		if r, ok := gangs.Of(other); ok && r == ref && other.DeletionTimestamp == nil && corev1helpers.PodPriority(other) < priority {
			here++
		}
	}
	pg, _ := gangs.Gang(ref)
	return pg != nil && p.running(pg)-here >= p.least(ref)
}

// budgetForbids reports whether budgets bind the preemptor and the evictions on this node could violate one of the
// pod's. That is so for a budget that allows fewer evictions than it has pods below a priority there.
func (p *Plugin) budgetForbids(node fwk.NodeInfo, pod *v1.Pod, priority int32) bool {
	if p.args.PodDisruptionBudgets != config.BudgetsRequired {
		return false
	}
	budgets, err := p.budgets.PodDisruptionBudgets(pod.Namespace).List(labels.Everything())
	if err != nil {
		return true
	}
	for _, b := range budgets {
		selector, err := metav1.LabelSelectorAsSelector(b.Spec.Selector)
		if err != nil || !selector.Matches(labels.Set(pod.Labels)) {
			continue
		}
		here := int32(0)
		for _, info := range node.GetPods() {
			other := info.GetPod()
			if other.Namespace == pod.Namespace && other.DeletionTimestamp == nil && corev1helpers.PodPriority(other) < priority && selector.Matches(labels.Set(other.Labels)) {
				here++
			}
		}
		if here > b.Status.DisruptionsAllowed {
			return true
		}
	}
	return false
}

// running counts the members of a gang that have a node and do not leave.
func (p *Plugin) running(pg *podgroup.Gang) int {
	count := 0
	for _, m := range pg.Members {
		if m.Spec.NodeName != "" && m.DeletionTimestamp == nil && !p.isChosen(kube.UIDOf(m)) {
			count++
		}
	}
	return count
}

// evictPlain evicts a pod for a preemptor without vGPUs, in place of the in-tree way: with the same words and the same
// care.
func (p *Plugin) evictPlain(ctx context.Context, at stock.Candidate, inTree stock.ExecutorPreemptor, victim *v1.Pod, _ string) (bool, error) {
	x := preemptor{
		name: fmt.Sprintf("pod %s/%s", inTree.GetNamespace(), inTree.GetName()), object: inTree.Obj(), priority: inTree.Priority(),
	}
	if pod, single := inTree.Pods()[inTree.GetName()]; single {
		x.object = pod
	}
	p.machine.Step(func(machine.Locked) reservation.Event { return reservation.PlainEvicted{} })
	inMemory, err := p.evictPod(ctx, victim, cause{preemptor: &x, text: fmt.Sprintf("Preempted by %s (priority %d) on node %s", x.name, x.priority, at.Name())})
	if err == nil {
		p.metrics.victims.WithLabelValues(kindName(preemption.Single)).Inc()
	}
	return inMemory, err
}

// dryRunPlain says which pods the in-tree plugin would evict.
func (p *Plugin) dryRunPlain(ctx context.Context, cs fwk.CycleState, pod *v1.Pod, statuses fwk.NodeToStatusReader) string {
	if ok, why := p.plain.PodEligibleToPreemptOthers(ctx, pod, statuses.Get(pod.Status.NominatedNodeName)); !ok {
		return "(dry run) " + why
	}
	nodes, err := statuses.NodesForStatusCode(p.handle.SnapshotSharedLister().NodeInfos(), fwk.Unschedulable)
	if err != nil || len(nodes) == 0 {
		return "(dry run) no node where evictions help"
	}
	var budgets []*policyv1.PodDisruptionBudget
	if budgets, err = p.budgets.List(labels.Everything()); err != nil {
		return "(dry run) " + err.Error()
	}
	offset, count := p.plain.GetOffsetAndNumCandidates(int32(len(nodes)))
	candidates, _, err := p.plain.Evaluator.DryRunPreemption(ctx, cs, pod, nodes, budgets, offset, count)
	best := p.plain.Evaluator.SelectCandidate(ctx, candidates)
	if best == nil {
		if err != nil {
			return "(dry run) " + err.Error()
		}
		return "(dry run) no node where evictions help"
	}
	names := make([]string, 0, len(best.Victims().Pods))
	for _, v := range best.Victims().Pods {
		names = append(names, kube.PathOf(v))
	}
	return fmt.Sprintf("(dry run) on node %s it would evict %s: %s", best.Name(), verdict.Plural(len(names), "pod"), verdict.First(maxNamed, names))
}
