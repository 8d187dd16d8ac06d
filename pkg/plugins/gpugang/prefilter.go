package gpugang

import (
	"context"
	"errors"
	"fmt"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/sets"
	fwk "k8s.io/kube-scheduler/framework"

	"github.com/tandem-gpu/tandem/internal/podgroup"
	"github.com/tandem-gpu/tandem/internal/verdict"
	"github.com/tandem-gpu/tandem/pkg/vgpu"
)

// Keys of the plugin's data in the CycleState of a pod, and in that of a group cycle, which has the latter two.
const (
	placeKey fwk.StateKey = Name + "/place"
	trialKey fwk.StateKey = Name + "/trial"
	wantKey  fwk.StateKey = Name + "/want"
)

// Clone returns the same place: nobody changes it.
func (p *place) Clone() fwk.StateData { return p }

// trial is what happened in a group cycle so far: the nodes that members were given, and those at which they got through.
type trial struct{ given, reserved map[vgpu.UID]string }

// Clone returns the same trial: it is that of the cycle.
func (t *trial) Clone() fwk.StateData { return t }

// trialOf returns the trial of a group cycle, nil where no member was tried.
func trialOf(state fwk.PodGroupCycleState) *trial {
	data, err := state.Read(trialKey)
	if err != nil {
		return nil
	}
	t, _ := data.(*trial)
	return t
}

// refused returns the nodes that refused a member that was given them, with the number of members that they took.
func (t *trial) refused() map[string]int {
	nodes := map[string]int{}
	if t == nil {
		return nodes
	}
	for uid, node := range t.given {
		if t.reserved[uid] == "" {
			nodes[node] = 0
		}
	}
	for _, node := range t.reserved {
		if _, refused := nodes[node]; refused {
			nodes[node]++
		}
	}
	return nodes
}

// PreFilter gives a member of a gang its place. The first member that comes has all of them planned, and their room kept;
// where no plan exists it is refused with the nearest miss. It skips pods that belong to no gang.
//
// A refusal is final for the pod as far as the preemption of single pods goes, which must not evict for one member.
func (p *Plugin) PreFilter(ctx context.Context, cs fwk.CycleState, pod *v1.Pod, nodes []fwk.NodeInfo) (*fwk.PreFilterResult, *fwk.Status) {
	ref, ok := p.gangs.Of(pod)
	if !ok {
		return nil, verdict.New(fwk.Skip)
	}
	p.gangs.See(pod)
	defer p.flush(ctx)
	c := cycle{cs: cs, pod: pod, nodes: nodes}
	tried := c.attempted()
	at, why := p.place(ctx, c, ref, tried)
	if why != "" {
		return nil, verdict.New(fwk.UnschedulableAndUnresolvable, why)
	}
	c.give(at)
	cs.Write(placeKey, at)
	if !at.pinned {
		return nil, nil
	}
	p.denominate(at.Node)
	return &fwk.PreFilterResult{NodeNames: sets.New(at.Node)}, nil
}

// PreFilterExtensions returns nil: a place does not depend on other pods of the node.
func (p *Plugin) PreFilterExtensions() fwk.PreFilterExtensions { return nil }

// cycle is one scheduling cycle of a member.
type cycle struct {
	cs    fwk.CycleState
	pod   *v1.Pod
	nodes []fwk.NodeInfo
}

// grouped reports whether the scheduler tries all members of the gang in this cycle.
func (c *cycle) grouped() bool { return c.cs.IsPodGroupSchedulingCycle() }

// attempted reports whether the group cycle has tried a plan before, and notes that it has now.
func (c *cycle) attempted() bool {
	if !c.grouped() {
		return false
	}
	state := c.cs.GetPodGroupSchedulingCycle()
	if trialOf(state) != nil {
		return true
	}
	state.Write(trialKey, &trial{given: map[vgpu.UID]string{}, reserved: map[vgpu.UID]string{}})
	return false
}

// give notes the node that a member is given in a group cycle.
func (c *cycle) give(at *place) {
	if c.grouped() && at.pinned {
		trialOf(c.cs.GetPodGroupSchedulingCycle()).given[uidOf(c.pod)] = at.Node
	}
}

// place returns the place of the cycle's pod, or why it has none. tried: the cycle has tried a plan for the gang before.
func (p *Plugin) place(ctx context.Context, c cycle, ref podgroup.Ref, tried bool) (*place, string) {
	p.state.mu.Lock()
	defer p.state.mu.Unlock()
	g := p.state.group(ref)
	if at, why, trial := g.onTrial(c.pod); trial {
		return at, why
	}
	if p.isDoomed(g) {
		return nil, about(ref, "its members are being evicted, and it starts anew when they are gone")
	}
	gang, err := p.gangs.Gang(ref)
	if gang, err = p.afterStart(g, gang, err); err != nil {
		return nil, about(ref, err.Error())
	}
	g.incomplete, g.grouped = "", c.grouped()
	if left := g.repairs[uidOf(c.pod)].at.Sub(p.now()); left > 0 {
		// The scheduler's own backoff is none where nothing else is to be tried.
		return nil, fmt.Sprintf("gang %s: the place of the pod is kept, and it is tried again in %v", ref, left.Round(time.Second))
	}
	if at, ok := p.standing(g, c.pod); ok {
		return at, ""
	}
	if tried || !c.grouped() && g.refusal != nil && !leads(gang, c.pod) && !g.planned() {
		if g.refusal != nil {
			g.told[uidOf(c.pod)] = true
			return nil, g.refusal.words()
		}
	}
	return p.plan(ctx, c, gang, g)
}

// afterStart returns a gang that has started and of which members have ended or are gone with as many members as must run as
// there are: what is left runs, and a member that comes back joins it. Other gangs and problems are returned as they are. The
// caller holds the mutex.
func (p *Plugin) afterStart(g *group, pg *podgroup.Gang, err error) (*podgroup.Gang, error) {
	var problem *podgroup.Problem
	if pg == nil || !errors.As(err, &problem) || !problem.Waits || pg.MinCount == 0 {
		return pg, err
	}
	p.adoptHalf(pg, g)
	if !g.started || p.boundOf(g, pg) == 0 {
		return pg, err
	}
	left := *pg
	left.MinCount = 0
	for _, m := range pg.Members {
		if m.DeletionTimestamp == nil {
			left.MinCount++
		}
	}
	return &left, nil
}

// standing returns the place of a pod in the plan, and whether it has one that holds: the room is kept, and the node there.
func (p *Plugin) standing(g *group, pod *v1.Pod) (*place, bool) {
	at, ok := g.places[uidOf(pod)]
	if !ok {
		return nil, false
	}
	if !at.pinned {
		return &at, true
	}
	info, err := p.handle.SnapshotSharedLister().NodeInfos().Get(at.Node)
	if err != nil || at.held() && !p.shares().Stands(uidOf(pod), info) {
		return nil, false
	}
	return &at, true
}

// placeOf returns what PreFilter found, nil for pods of no gang.
func placeOf(cs fwk.CycleState) *place {
	data, err := cs.Read(placeKey)
	if err != nil {
		return nil
	}
	at, _ := data.(*place)
	return at
}

// leads reports whether the pod is tried on behalf of its gang: the first by rank that may be scheduled.
func leads(g *podgroup.Gang, pod *v1.Pod) bool {
	for _, m := range g.Members {
		if waits(m) {
			return m.UID == pod.UID
		}
	}
	return true
}

// waits reports whether a pod wants a place and may be given one.
func waits(pod *v1.Pod) bool {
	return pod.Spec.NodeName == "" && pod.DeletionTimestamp == nil && len(pod.Spec.SchedulingGates) == 0
}
