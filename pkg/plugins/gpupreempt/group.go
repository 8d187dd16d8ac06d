package gpupreempt

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/klog/v2"
	fwk "k8s.io/kube-scheduler/framework"

	"github.com/tandem-gpu/tandem/internal/cluster/kube"
	"github.com/tandem-gpu/tandem/internal/cluster/podgroup"
	"github.com/tandem-gpu/tandem/internal/cluster/verdict"
	"github.com/tandem-gpu/tandem/internal/scheduler/machine"
	"github.com/tandem-gpu/tandem/pkg/preemption"
	"github.com/tandem-gpu/tandem/pkg/reservation"
	"github.com/tandem-gpu/tandem/pkg/vgpu"
)

// Pauses before room is sought again for a gang.
const (
	// filterPause follows refusals by other plugins. Longer makes room later once those are out of the way, shorter looks for
	// room again and again that cannot be used.
	filterPause = 30 * time.Second
	// failurePause follows evictions that failed, and budgets that are in the way. The pause is the least where victims
	// must run for longer: such victims may be many, one a second.
	failurePause = 15 * time.Second
)

// dryRun reports whether the framework's plugins accept the members of a gang at the places of a plan, once the pods
// that leave are gone. It returns the member that they refuse, as an index of the places, −1 for no particular one, and
// why.
type dryRun func(ctx context.Context, a *gangAttempt) (stuck int, why string)

// gangAttempt is one try to make room for a gang.
type gangAttempt struct {
	*podgroup.RoomRequest
	// from are the candidates, and pods are its pods.
	from *preemption.Candidates
	pods []*v1.Pod
	plan preemption.Plan
}

// leavingPods returns the pods that leave by the plan.
func (a *gangAttempt) leavingPods() []*v1.Pod {
	indices := leavingCandidates(&a.plan)
	all := make([]*v1.Pod, 0, len(indices))
	for _, i := range indices {
		all = append(all, a.pods[i])
	}
	return all
}

// forGang makes room for the gang of a refused leader. For the others it has nothing to say.
func (p *Plugin) forGang(ctx context.Context, cs fwk.CycleState, pod *v1.Pod, ref podgroup.Ref) (*fwk.PostFilterResult, *fwk.Status) {
	w, why := p.requested(cs, ref)
	if w == nil && why == "" {
		return nil, verdict.New(fwk.Unschedulable)
	}
	if w == nil {
		return nominate(""), verdict.New(fwk.UnschedulableAndUnresolvable, shorten("preemption: "+why))
	}
	a := p.makeRoom(ctx, w, p.tryMembers)
	if a.code() != fwk.Success {
		return nominate(""), verdict.New(fwk.UnschedulableAndUnresolvable, shorten("preemption: "+a.text))
	}
	p.machine.Expect(ctx, w.Ref, w.Pods)
	return nominate(a.places[kube.UIDOf(pod)]), verdict.New(fwk.Success, shorten("preemption: "+a.text))
}

// gangOutcome is what came of one try to make room for a gang.
type gangOutcome struct {
	outcome
	// places are the nodes of the members that get room.
	places map[vgpu.UID]string
}

// makeRoom has the cheapest pods of a lower priority evicted without which a gang fits, and their room kept for it.
func (p *Plugin) makeRoom(ctx context.Context, w *podgroup.RoomRequest, fits dryRun) gangOutcome {
	began := time.Now()
	a := p.tryForGang(ctx, w, fits)
	p.metrics.attempt(a.result)
	p.metrics.evaluation.Observe(time.Since(began).Seconds())
	return a
}

func (p *Plugin) tryForGang(ctx context.Context, w *podgroup.RoomRequest, fits dryRun) gangOutcome {
	if why := p.gangEligible(w); why != "" {
		return p.withoutRoom(w, resultIneligible, why, 0)
	}
	nodes, err := p.handle.SnapshotSharedLister().NodeInfos().List()
	a := &gangAttempt{RoomRequest: w}
	if err == nil {
		a.from, a.pods, err = p.candidates(nodes, w.Cluster.Nodes, nil, priorityOf(w), p.yielding(w.Ref)...)
	}
	if err != nil {
		return p.withoutRoom(w, resultFailed, err.Error(), failurePause)
	}
	return p.search(ctx, a, fits)
}

// maxDryRuns bounds the plans for a gang that the plugin tries one after the other when other plugins refuse a member
// although the room is there. More find room where they do not, and take as many searches.
const maxDryRuns = 4

// search keeps the room of the cheapest plan that the framework's plugins agree with, and carries it out.
func (p *Plugin) search(ctx context.Context, a *gangAttempt, fits dryRun) gangOutcome {
	filtered := ""
	for range maxDryRuns {
		var err error
		a.plan, err = p.core(a.Cluster, a.Group, a.from, p.config(a.Config))
		switch {
		case err != nil:
			klog.FromContext(ctx).Error(err, "Looking for pods to evict failed", "gang", a.String())
			return p.withoutRoom(a.RoomRequest, resultFailed, err.Error(), failurePause)
		case a.plan.Refused != nil && filtered == "":
			return p.refusedGang(a)
		case a.plan.Refused != nil:
			return p.filteredGang(a, filtered)
		case p.isDryRun() && p.isReserving(a.Ref):
			return p.reportGang(ctx, a, "; other plugins were not asked, since room is kept for the gang")
		}
		switch err := p.keepGangRoom(a); {
		case errors.Is(err, errChanged):
			return p.withoutRoom(a.RoomRequest, resultFailed, err.Error(), 0) // the change activates it again
		case err != nil:
			return p.withoutRoom(a.RoomRequest, resultFailed, err.Error(), failurePause)
		}
		refusedAt := -1
		if p.dryRunIn(a.Ref, func() bool { refusedAt, filtered = fits(ctx, a); return filtered == "" }) {
			return p.evictFor(ctx, a)
		}
		p.giveUp(a.Ref, filtered, 0)
		if refusedAt < 0 {
			break
		}
		a.avoid(refusedAt)
	}
	return p.filteredGang(a, filtered)
}

// avoid has the next plan put fewer members like one on the node that refused it: as many as the node took of them.
func (a *gangAttempt) avoid(refusedAt int) {
	took, kind, node := 0, a.Group.Members[refusedAt].Kind, a.plan.Places[refusedAt].Node
	for i := range refusedAt {
		if a.Group.Members[i].Kind == kind && a.plan.Places[i].Node == node {
			took++
		}
	}
	w, before := *a.RoomRequest, a.Cluster.Admits
	cluster := *a.Cluster
	cluster.Admits = func(k, n int) int {
		most := len(a.Group.Members)
		if before != nil {
			most = before(k, n)
		}
		if k == kind && cluster.Nodes[n].Name() == node {
			most = min(most, took)
		}
		return most
	}
	w.Cluster = &cluster
	a.RoomRequest = &w
}

// evictFor evicts the victims of a plan for a gang, unless the plugin only reports or the allowance is used up.
func (p *Plugin) evictFor(ctx context.Context, a *gangAttempt) gangOutcome {
	if p.isDryRun() {
		return p.reportGang(ctx, a, "")
	}
	words := wordsOf(&a.plan, a.from)
	e := &eviction{preemptor: a.preemptor(), plan: &a.plan, from: a.from, pods: a.pods}
	wanted := reservation.EvictionsWanted{Ref: a.Ref, Priority: e.priority, Evict: p.chosen(e)}
	var answer machine.Answer
	p.machine.Lock(func(l machine.Locked) {
		answer = l.Step(wanted)
		e.begin(ctx, l, answer.Begin)
	})
	if answer.Refuse != nil {
		return p.withoutRoom(a.RoomRequest, resultFailed, answer.Refuse.Why, failurePause)
	}
	if answer.Defer != nil {
		wait := answer.Defer.Wait
		text := fmt.Sprintf("would fit on %s: %s; not done because the scheduler evicts %d pods in a minute at most, its turn comes in %v",
			a.where(), words, p.args.EvictionsPerMinute, wait.Round(time.Second))
		return p.withoutRoom(a.RoomRequest, resultDeferred, text, wait)
	}
	klog.FromContext(ctx).V(2).Info("Preemption", "gang", a.String(), "plan", words, "places", a.plan.Stats.Places,
		"steps", a.plan.Stats.Steps, "cut", a.plan.Stats.Cut)
	out := gangOutcome{outcome: outcome{result: resultWaiting, text: "on " + a.where() + " it " + words}, places: map[vgpu.UID]string{}}
	for i := range a.plan.Places {
		out.places[a.Group.Members[i].Request.UID] = a.plan.Places[i].Node
	}
	if answer.Begin == nil {
		return out
	}
	out.result = resultEvicting
	p.evict(e)
	return out
}

// reportGang says what a plan would do, and does not do it.
func (p *Plugin) reportGang(ctx context.Context, a *gangAttempt, but string) gangOutcome {
	words := wordsOf(&a.plan, a.from)
	klog.FromContext(ctx).Info("Dry run of a preemption", "gang", a.String(), "plan", words)
	return p.withoutRoom(a.RoomRequest, resultDryRun, "(dry run) on "+a.where()+" it "+inConditional(words)+but, 0)
}

// where names the nodes of a plan.
func (a *gangAttempt) where() string {
	nodes := map[string]bool{}
	for i := range a.plan.Places {
		if node := a.plan.Places[i].Node; node != "" {
			nodes[node] = true
		}
	}
	if len(nodes) == 1 {
		return "node " + slices.Collect(maps.Keys(nodes))[0]
	}
	return verdict.Plural(len(nodes), "node")
}

// preemptor returns the gang as a preemptor.
func (a *gangAttempt) preemptor() preemptor {
	out := preemptor{
		id: reservation.GangPreemptor(a.Ref), name: "gang " + a.String(), object: runtime.Object(a.Pods[0]),
		priority: priorityOf(a.RoomRequest), needs: "needs places for " + verdict.Plural(max(1, a.Group.MinCount-len(a.Group.Placed)), "member"),
	}
	if a.Object != nil {
		out.object = a.Object
	}
	return out
}

func priorityOf(w *podgroup.RoomRequest) int32 { return w.Group.Members[0].Request.Priority }

// gangEligible says why the plugin evicts no pod for a gang, "" where it may evict some.
func (p *Plugin) gangEligible(w *podgroup.RoomRequest) string {
	for _, pod := range w.Pods {
		if why := p.eligible(pod); why != "" {
			return why
		}
	}
	return ""
}

// withoutRoom gives up the room for a gang, for a reason.
func (p *Plugin) withoutRoom(w *podgroup.RoomRequest, result, text string, pause time.Duration) gangOutcome {
	p.giveUp(w.Ref, text, pause)
	return gangOutcome{outcome: outcome{result: result, text: text}}
}

// refusedGang explains why the plugin evicts no pod for a gang, and activates the gang when that may have changed.
func (p *Plugin) refusedGang(a *gangAttempt) gangOutcome {
	r := a.plan.Refused
	result, pause := resultNeverHelps, time.Duration(0)
	switch r.Reason {
	case preemption.Guarded:
		result = resultGuarded
		if at := p.oldEnough(&question{from: a.from, pods: a.pods}, r); !at.IsZero() {
			pause = max(failurePause, at.Sub(p.now()))
		}
	case preemption.Budgeted:
		result, pause = resultBudgeted, failurePause
	}
	return p.withoutRoom(a.RoomRequest, result, textOf(r)+p.yieldWords(a.Ref), pause)
}

func (p *Plugin) filteredGang(a *gangAttempt, why string) gangOutcome {
	return p.withoutRoom(a.RoomRequest, resultFiltered, "other plugins refuse the nodes where room could be made: "+why, filterPause)
}
