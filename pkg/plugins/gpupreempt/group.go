package gpupreempt

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync/atomic"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/klog/v2"
	fwk "k8s.io/kube-scheduler/framework"

	"github.com/tandem-gpu/tandem/internal/cluster/podgroup"
	"github.com/tandem-gpu/tandem/internal/cluster/verdict"
	"github.com/tandem-gpu/tandem/pkg/preemption"
	"github.com/tandem-gpu/tandem/pkg/vgpu"
)

// Rooms keeps the room that is made for gangs: the plugin GPUGang, which knows best when a gang needs it no more. A preemption
// for a gang is pending as long as it is kept.
type Rooms interface {
	// Want returns a gang that the cycle refused for want of room, nil where there is nothing to make room for or it is being
	// made; and why, where that was tried a moment ago in vain.
	Want(cycle podgroup.Cycle, ref podgroup.Ref) (*podgroup.Want, string)
	// Keep has room kept for the members of a gang, at these places in the order of Group.Members, while the victims leave. Ended
	// is called when it is kept no more, with a lock of the plugin held.
	Keep(w *podgroup.Want, places []vgpu.Assignment, victims []*v1.Pod, ended func()) error
	// Try has the members given the places that are kept for them while fits runs, and reports what that does.
	Try(ref podgroup.Ref, fits func() bool) bool
	// Drains reports whether room is kept for a gang while its present owners end, which Keep would put an end to.
	Drains(ref podgroup.Ref) bool
	// Nominate tells the framework where the members will be.
	Nominate(ctx context.Context, w *podgroup.Want)
	// GiveUp ends the room of a gang. It is sought again after a pause, when the gang is tried; with a pause of 0 a moment later,
	// and only where something changed.
	GiveUp(ref podgroup.Ref, why string, pause time.Duration)
	// Doom has none of the other members of a gang placed while these are being evicted, who are all that have a place.
	Doom(victims []*v1.Pod)
	// Torn reports whether some members of a gang stay bound, and fewer than must run, once those are gone that end or leave.
	Torn(ref podgroup.Ref, leaves func(vgpu.UID) bool) bool
}

// Pauses before room is sought again for a gang.
const (
	// filterPause follows refusals by other plugins. Longer makes room later once those are out of the way, shorter looks for
	// room again and again that cannot be used.
	filterPause = 30 * time.Second
	// failurePause follows evictions that failed, and budgets that are in the way. It is the least where victims are to run for
	// longer, which may be many, one a second.
	failurePause = 15 * time.Second
)

// rehearsal reports whether the members of a gang get through the framework's plugins at the places of a plan, once those who
// leave are gone. It returns the member that does not, as an index of the places, −1 for none in particular, and why.
type rehearsal func(ctx context.Context, a *act) (stuck int, why string)

// act is one try to make room for a gang.
type act struct {
	*podgroup.Want
	// from are the candidates, and pods are its pods.
	from *preemption.Candidates
	pods []*v1.Pod
	plan preemption.Plan
	// over: the room that was kept last is kept no more.
	over *atomic.Bool
}

// gone returns who leaves by the plan.
func (a *act) gone() []*v1.Pod {
	gone := leaving(&a.plan)
	all := make([]*v1.Pod, 0, len(gone))
	for _, i := range gone {
		all = append(all, a.pods[i])
	}
	return all
}

// forGang makes room for the gang of a member that was refused on its behalf. For the others it has nothing to say.
func (p *Plugin) forGang(ctx context.Context, cs fwk.CycleState, pod *v1.Pod, ref podgroup.Ref) (*fwk.PostFilterResult, *fwk.Status) {
	w, why := p.gangsOrNil().Want(cs, ref)
	if w == nil && why == "" {
		return nil, verdict.New(fwk.Unschedulable)
	}
	if w == nil {
		return nominate(""), verdict.New(fwk.UnschedulableAndUnresolvable, short("preemption: "+why))
	}
	a := p.makeRoom(ctx, w, p.onStage)
	if a.code() != fwk.Success {
		return nominate(""), verdict.New(fwk.UnschedulableAndUnresolvable, short("preemption: "+a.text))
	}
	p.gangsOrNil().Nominate(ctx, w)
	return nominate(a.places[uidOf(pod)]), verdict.New(fwk.Success, short("preemption: "+a.text))
}

// gangAttempt is what came of one try to make room for a gang.
type gangAttempt struct {
	attempt
	// places are the nodes of the members for which room is made.
	places map[vgpu.UID]string
}

// makeRoom has the cheapest pods of a lower priority evicted without which a gang fits, and their room kept for it.
func (p *Plugin) makeRoom(ctx context.Context, w *podgroup.Want, fits rehearsal) gangAttempt {
	began := time.Now()
	a := p.tryForGang(ctx, w, fits)
	p.metrics.attempt(a.result)
	p.metrics.evaluation.Observe(time.Since(began).Seconds())
	return a
}

func (p *Plugin) tryForGang(ctx context.Context, w *podgroup.Want, fits rehearsal) gangAttempt {
	if why := p.gangEligible(w); why != "" {
		return p.withoutRoom(w, resultIneligible, why, 0)
	}
	nodes, err := p.handle.SnapshotSharedLister().NodeInfos().List()
	a := &act{Want: w}
	if err == nil {
		a.from, a.pods, err = p.candidates(nodes, w.Cluster.Nodes, nil, priorityOf(w))
	}
	if err != nil {
		return p.withoutRoom(w, resultFailed, err.Error(), failurePause)
	}
	return p.search(ctx, a, fits)
}

// maxRehearsed bounds the plans for a gang that are tried one after the other when other plugins refuse a member although the
// room is made. More find room where they do not, and take as many searches.
const maxRehearsed = 4

// search keeps the room of the cheapest plan that the framework's plugins agree with, and carries it out.
func (p *Plugin) search(ctx context.Context, a *act, fits rehearsal) gangAttempt {
	filtered := ""
	for range maxRehearsed {
		var err error
		a.plan, err = p.core(a.Cluster, a.Group, a.from, p.config(a.Config))
		switch {
		case err != nil:
			klog.FromContext(ctx).Error(err, "Looking for pods to evict failed", "gang", a.String())
			return p.withoutRoom(a.Want, resultFailed, err.Error(), failurePause)
		case a.plan.Refused != nil && filtered == "":
			return p.refusedGang(a)
		case a.plan.Refused != nil:
			return p.filteredGang(a, filtered)
		case p.dryRun() && p.gangsOrNil().Drains(a.Ref):
			return p.reportGang(ctx, a, "; other plugins were not asked, since room is kept for the gang")
		}
		who := a.preemptor()
		over := new(atomic.Bool)
		a.over = over
		ended := func() { over.Store(true); p.state.stop(who.key) }
		switch err := p.gangsOrNil().Keep(a.Want, a.plan.Places, a.gone(), ended); {
		case errors.Is(err, podgroup.ErrChanged):
			return p.withoutRoom(a.Want, resultFailed, err.Error(), 0) // it is tried again for what changed
		case err != nil:
			return p.withoutRoom(a.Want, resultFailed, err.Error(), failurePause)
		}
		stuck := -1
		if p.gangsOrNil().Try(a.Ref, func() bool { stuck, filtered = fits(ctx, a); return filtered == "" }) {
			return p.evictFor(ctx, a, who)
		}
		p.gangsOrNil().GiveUp(a.Ref, filtered, 0)
		if stuck < 0 {
			break
		}
		a.avoid(stuck)
	}
	return p.filteredGang(a, filtered)
}

// avoid has the next plan put fewer members like one on the node that refused it: as many as the node took of them.
func (a *act) avoid(stuck int) {
	took, kind, node := 0, a.Group.Members[stuck].Kind, a.plan.Places[stuck].Node
	for i := range stuck {
		if a.Group.Members[i].Kind == kind && a.plan.Places[i].Node == node {
			took++
		}
	}
	w, before := *a.Want, a.Cluster.Admits
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
	a.Want = &w
}

// evictFor has the victims of a plan evicted for a gang, unless only a report is wanted or the allowance is used up.
func (p *Plugin) evictFor(ctx context.Context, a *act, who preemptor) gangAttempt {
	if p.dryRun() {
		return p.reportGang(ctx, a, "")
	}
	words := wordsOf(&a.plan, a.from)
	if wait := p.afford(who, a.plan.Cost.Victims); wait > 0 {
		text := fmt.Sprintf("would fit on %s: %s; not done because the scheduler evicts %d pods in a minute at most, its turn comes in %v",
			a.where(), words, p.args.EvictionsPerMinute, wait.Round(time.Second))
		return p.withoutRoom(a.Want, resultDeferred, text, wait)
	}
	klog.FromContext(ctx).V(2).Info("Preemption", "gang", a.String(), "plan", words, "places", a.plan.Stats.Places,
		"steps", a.plan.Stats.Steps, "cut", a.plan.Stats.Cut)
	out := gangAttempt{attempt: attempt{result: resultWaiting, text: "on " + a.where() + " it " + words}, places: map[vgpu.UID]string{}}
	for i := range a.plan.Places {
		out.places[a.Group.Members[i].Request.UID] = a.plan.Places[i].Node
	}
	if len(a.plan.Evict) == 0 {
		return out
	}
	out.result = resultEvicting
	p.evict(ctx, &eviction{
		preemptor: who, plan: &a.plan, from: a.from, pods: a.pods,
		failed: func(err error) {
			if !a.over.Load() { // else the gang may have other room by now, and nothing failed but what was stopped for that
				p.gangsOrNil().GiveUp(a.Ref, "an eviction failed: "+err.Error(), failurePause)
			}
		},
		done: func() {},
	})
	return out
}

// reportGang says what a plan would do, and does not do it.
func (p *Plugin) reportGang(ctx context.Context, a *act, but string) gangAttempt {
	words := wordsOf(&a.plan, a.from)
	klog.FromContext(ctx).Info("Dry run of a preemption", "gang", a.String(), "plan", words)
	return p.withoutRoom(a.Want, resultDryRun, "(dry run) on "+a.where()+" it "+would(words)+but, 0)
}

// where names the nodes of a plan.
func (a *act) where() string {
	nodes := map[string]bool{}
	for i := range a.plan.Places {
		if node := a.plan.Places[i].Node; node != "" {
			nodes[node] = true
		}
	}
	if len(nodes) == 1 {
		return "node " + slices.Collect(maps.Keys(nodes))[0]
	}
	return plural(len(nodes), "node")
}

// preemptor returns the gang as a preemptor.
func (a *act) preemptor() preemptor {
	who := preemptor{
		key: "gang " + string(a.Source) + "/" + a.String(), name: "gang " + a.String(), pods: a.Pods, object: runtime.Object(a.Pods[0]),
		priority: priorityOf(a.Want), needs: "needs places for " + plural(max(1, a.Group.MinCount-len(a.Group.Placed)), "member"),
	}
	if a.Object != nil {
		who.object = a.Object
	}
	return who
}

func priorityOf(w *podgroup.Want) int32 { return w.Group.Members[0].Request.Priority }

// gangEligible says why nobody is evicted for a gang, "" where some may be.
func (p *Plugin) gangEligible(w *podgroup.Want) string {
	for _, pod := range w.Pods {
		if why := p.eligible(pod); why != "" {
			return why
		}
	}
	return ""
}

// withoutRoom gives up what is kept for a gang, for a reason.
func (p *Plugin) withoutRoom(w *podgroup.Want, result, text string, pause time.Duration) gangAttempt {
	p.gangsOrNil().GiveUp(w.Ref, text, pause)
	return gangAttempt{attempt: attempt{result: result, text: text}}
}

// refusedGang explains why nobody is evicted for a gang, and has it tried again when that may have changed.
func (p *Plugin) refusedGang(a *act) gangAttempt {
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
	return p.withoutRoom(a.Want, result, textOf(r), pause)
}

func (p *Plugin) filteredGang(a *act, why string) gangAttempt {
	return p.withoutRoom(a.Want, resultFiltered, "other plugins refuse the nodes where room could be made: "+why, filterPause)
}

// isSurplus reports whether the gang of a pod does without it: it runs on without all that leave, or all of it leave. Members may
// have ended since that was decided; one that ends this very moment is not known to.
func (p *Plugin) isSurplus(pod *v1.Pod) bool {
	gangs := p.gangsOrNil()
	if gangs == nil {
		return true
	}
	ref, member := gangs.Of(pod)
	return !member || !gangs.Torn(ref, func(uid vgpu.UID) bool { return p.state.leaves(uid, p.now()) })
}

// doom tells of the gangs that go whole.
func (p *Plugin) doom(e *eviction) {
	gangs := p.gangsOrNil()
	for _, u := range e.plan.Evict {
		if u.Kind != preemption.Whole || gangs == nil {
			continue
		}
		victims := make([]*v1.Pod, len(u.Pods))
		for i, at := range u.Pods {
			victims[i] = e.pods[at]
		}
		gangs.Doom(victims)
	}
}

// stop ends the evictions for a preemptor that are under way.
func (s *state) stop(key string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if run := s.running[key]; run != nil {
		run.cancel()
	}
}
