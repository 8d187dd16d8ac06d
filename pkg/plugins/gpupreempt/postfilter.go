package gpupreempt

import (
	"context"
	"fmt"
	"slices"
	"time"

	v1 "k8s.io/api/core/v1"
	corev1helpers "k8s.io/component-helpers/scheduling/corev1"
	"k8s.io/klog/v2"
	fwk "k8s.io/kube-scheduler/framework"

	"github.com/tandem-gpu/tandem/internal/cluster/kube"
	"github.com/tandem-gpu/tandem/internal/cluster/verdict"
	"github.com/tandem-gpu/tandem/internal/scheduler/machine"
	"github.com/tandem-gpu/tandem/pkg/api/config"
	"github.com/tandem-gpu/tandem/pkg/preemption"
	"github.com/tandem-gpu/tandem/pkg/reservation"
)

// PostFilter makes room for a pod that every node refused: the plugin evicts the cheapest pods of a lower priority
// without which the pod fits, and keeps their room for it. The in-tree plugin answers for a pod without vGPUs, and a
// member of a gang gets the answer for its whole gang.
func (p *Plugin) PostFilter(ctx context.Context, cs fwk.CycleState, pod *v1.Pod, statuses fwk.NodeToStatusReader) (*fwk.PostFilterResult, *fwk.Status) {
	if p.args.Mode == config.PreemptionDisabled {
		return nominate(""), verdict.New(fwk.Unschedulable) // another mode may have left a nomination
	}
	if ref, isMember := p.machine.GangOf(pod); isMember {
		return p.forGang(ctx, cs, pod, ref)
	}
	if !kube.WantsVGPU(pod) {
		return p.forPlain(ctx, cs, pod, statuses)
	}
	began := time.Now()
	a := p.forPod(ctx, cs, pod, statuses)
	p.metrics.attempt(a.result)
	p.metrics.evaluation.Observe(time.Since(began).Seconds())
	if a.text == "" {
		return a.nomination, verdict.New(a.code())
	}
	return a.nomination, verdict.New(a.code(), shorten("preemption: "+a.text))
}

// outcome is what came of one PostFilter.
type outcome struct {
	result string
	text   string
	// nomination is the change of the pod's nominated node, nil for none.
	nomination *fwk.PostFilterResult
}

// code is the status for the framework: whether the pod got a node to wait for.
func (a *outcome) code() fwk.Code {
	if a.result == resultEvicting || a.result == resultWaiting {
		return fwk.Success
	}
	return fwk.Unschedulable
}

// forPod makes room for a pod with vGPUs outside of gangs.
func (p *Plugin) forPod(ctx context.Context, cs fwk.CycleState, pod *v1.Pod, statuses fwk.NodeToStatusReader) outcome {
	latest := p.seen(pod)
	if latest == nil || latest.DeletionTimestamp != nil {
		return outcome{result: resultIneligible}
	}
	pod = latest
	if a, waits := p.stillWaits(ctx, cs, pod, statuses); waits {
		return a
	}
	if p.illegal(pod) {
		return outcome{result: resultIneligible, nomination: nominate("")}
	}
	if why := p.eligible(pod); why != "" {
		return outcome{resultIneligible, why, nominate("")}
	}
	if !p.evictionMayHelp(statuses) {
		return outcome{result: resultNeverHelps, nomination: nominate("")}
	}
	if !p.hasPossibleVictims(pod, statuses) {
		return outcome{resultNeverHelps, "no pod has a lower priority or leaves where that could help", nominate("")}
	}
	q, err := p.question(ctx, pod, statuses)
	if err != nil {
		return outcome{resultFailed, err.Error(), nominate("")}
	}
	plan, why, err := p.findPlan(ctx, cs, q, statuses)
	switch {
	case err != nil:
		klog.FromContext(ctx).Error(err, "Looking for pods to evict failed", "pod", klog.KObj(pod))
		return outcome{resultFailed, err.Error(), nominate("")}
	case plan.Refused != nil:
		return p.refused(q, plan.Refused, why)
	}
	return p.carryOut(ctx, q, plan)
}

// illegal reports whether no node can take a pod, whichever pods leave. GPUShare has said what is wrong with its request.
func (p *Plugin) illegal(pod *v1.Pod) bool {
	shares := p.sharesOrNil()
	if shares == nil {
		return false // as question reports
	}
	_, err := shares.Request(pod)
	return err != nil
}

// evictionMayHelp reports whether evictions may help on any node. Otherwise the pod requests what no node has, as the
// other plugins have said, and preemption adds nothing.
func (p *Plugin) evictionMayHelp(statuses fwk.NodeToStatusReader) bool {
	nodes, err := p.handle.SnapshotSharedLister().NodeInfos().List()
	if err != nil {
		return true // as question reports
	}
	return slices.ContainsFunc(nodes, func(n fwk.NodeInfo) bool { return statuses.Get(n.Node().Name).Code() == fwk.Unschedulable })
}

// hasPossibleVictims reports whether a pod of a lower priority, or one that leaves, is on a node where that could help. Thousands
// of pods may wait in a cluster that is full of their own priority: the plugin refuses them by this look.
func (p *Plugin) hasPossibleVictims(pod *v1.Pod, statuses fwk.NodeToStatusReader) bool {
	nodes, err := p.handle.SnapshotSharedLister().NodeInfos().List()
	if err != nil {
		return true // as question reports
	}
	priority := corev1helpers.PodPriority(pod)
	for _, node := range nodes {
		if hasLowerOrLeaving(node, priority) && statuses.Get(node.Node().Name).Code() == fwk.Unschedulable {
			return true
		}
	}
	return false
}

// hasLowerOrLeaving reports whether any pod of a node has a lower priority or leaves.
func hasLowerOrLeaving(node fwk.NodeInfo, priority int32) bool {
	for _, info := range node.GetPods() {
		if pod := info.GetPod(); pod.DeletionTimestamp != nil || corev1helpers.PodPriority(pod) < priority {
			return true
		}
	}
	return false
}

// findPlan returns the plan for a pod, or its refusal, and why other plugins refuse the pod on nodes with possible
// room.
func (p *Plugin) findPlan(ctx context.Context, cs fwk.CycleState, q *question, statuses fwk.NodeToStatusReader) (*preemption.Plan, string, error) {
	plan, failed, why, err := p.solve(ctx, cs, q)
	if err != nil || plan.Refused == nil {
		return &plan, "", err
	}
	if spared := p.reprieve(ctx, cs, q, q.nodesToReprieve(failed, statuses)); spared != nil {
		return spared, "", nil
	}
	return &plan, why, nil
}

// carryOut keeps the room of a plan and evicts its victims, unless the plugin only reports or the allowance is used up.
func (p *Plugin) carryOut(ctx context.Context, q *question, plan *preemption.Plan) outcome {
	place := plan.Places[0]
	words := wordsOf(plan, q.from)
	if p.isDryRun() {
		klog.FromContext(ctx).Info("Dry run of a preemption", "pod", klog.KObj(q.pod), "node", place.Node, "plan", words)
		return outcome{resultDryRun, fmt.Sprintf("(dry run) on node %s it %s", place.Node, inConditional(words)), nominate("")}
	}
	wait, err := p.makePodRoom(ctx, q, plan)
	if wait > 0 {
		return outcome{resultDeferred, fmt.Sprintf("would fit on node %s: %s; not done because the scheduler evicts %d pods in a minute at most, its turn comes in %v",
			place.Node, words, p.args.EvictionsPerMinute, wait.Round(time.Second)), nominate("")}
	}
	if err != nil {
		return outcome{resultFailed, err.Error(), nominate("")}
	}
	klog.FromContext(ctx).V(2).Info("Preemption", "pod", klog.KObj(q.pod), "node", place.Node, "plan", words, "places", plan.Stats.Places,
		"steps", plan.Stats.Steps, "cut", plan.Stats.Cut)
	result := resultEvicting
	if len(plan.Evict) == 0 {
		result = resultWaiting
	}
	return outcome{result, fmt.Sprintf("on node %s it %s", place.Node, words), nominate(place.Node)}
}

// preemptor returns the pod as a preemptor.
func (q *question) preemptor() preemptor {
	return preemptor{
		id: reservation.PodPreemptor(kube.UIDOf(q.pod)), pod: refOf(q.pod), name: "pod " + kube.PathOf(q.pod), object: q.pod, priority: q.priority,
		needs: fmt.Sprintf("needs %d vGPU slots", q.group.Members[0].Request.PeakSlots()),
	}
}

// eligible says why the plugin evicts no pod for a pod, "" where it may evict some.
func (p *Plugin) eligible(pod *v1.Pod) string {
	if policy := pod.Spec.PreemptionPolicy; policy != nil && *policy == v1.PreemptNever {
		return "none, its preemptionPolicy is Never"
	}
	a := p.machine.Step(func(machine.Locked) reservation.Event { return reservation.PodRoomWanted{PodRef: refOf(pod)} })
	if a.Refuse != nil {
		return a.Refuse.Why
	}
	return ""
}

// isDryRun reports whether the plugin evicts no pods and only reports.
func (p *Plugin) isDryRun() bool { return p.args.Mode == config.PreemptionDryRun }

// nominate has the framework note the node that a pod waits for, "" for none.
func nominate(node string) *fwk.PostFilterResult {
	return &fwk.PostFilterResult{NominatingInfo: &fwk.NominatingInfo{NominatedNodeName: node, NominatingMode: fwk.ModeOverride}}
}
