package gpugang

import (
	"context"
	"fmt"
	"math"
	"time"

	v1 "k8s.io/api/core/v1"
	fwk "k8s.io/kube-scheduler/framework"

	"github.com/tandem-gpu/tandem/internal/podgroup"
	"github.com/tandem-gpu/tandem/pkg/gang"
	"github.com/tandem-gpu/tandem/pkg/vgpu"
)

// want is what a gang was refused in a cycle; grouped: of all its members.
type want struct {
	podgroup.Want
	grouped bool
}

// Clone returns the same: nobody changes it.
func (w *want) Clone() fwk.StateData { return w }

// afterRefusal has a gang that was refused take the room that preemption made for it once that is free, and notes else what it
// wants, for preemption. The caller holds the mutex.
func (p *Plugin) afterRefusal(c cycle, pg *podgroup.Gang, g *group, t *task, plan *gang.Plan) {
	if g.room != nil {
		ready, void := p.roomState(g, t)
		if ready {
			plan.Refused, plan.Places = nil, g.room.placesOf(t.group)
			return
		}
		if void != "" {
			p.voidRoom(g, void)
		}
	}
	if plan.Refused.Reason != gang.NoRoom || t.lacking() == 0 {
		return
	}
	w := &want{grouped: c.grouped(), Want: podgroup.Want{
		Gang: pg, Cluster: t.cluster, Group: t.group, Config: t.config, Pods: t.pods, Unbound: max(0, pg.MinCount-t.bound),
	}}
	w.Config.Brief = false
	if c.grouped() {
		c.cs.GetPodGroupSchedulingCycle().Write(wantKey, w)
	} else {
		c.cs.Write(wantKey, w)
	}
}

// Want returns a gang that the cycle refused for want of room, for preemption to make some. It returns nil where there is nothing
// to make room for, or room is made already; and why, where that was tried a moment ago in vain.
func (p *Plugin) Want(cycle podgroup.Cycle, ref podgroup.Ref) (*podgroup.Want, string) {
	data, err := cycle.Read(wantKey)
	w, ok := data.(*want)
	if err != nil || !ok || w.Ref != ref {
		return nil, ""
	}
	p.state.mu.Lock()
	defer p.state.mu.Unlock()
	g := p.state.gangs[ref]
	switch {
	case g == nil || g.planned() || g.room != nil:
		return nil, ""
	case p.now().Before(g.ask):
		g.askAgain = true // what changed since may help
		return nil, g.unhelped
	case w.grouped:
		return p.unlessPaused(w, g)
	}
	return &w.Want, ""
}

// unlessPaused returns a gang that the scheduler tries in one cycle where as many members as must run can be tried now. Others
// pause after their binds failed, and the cycle would fail for them whatever room there is. The caller holds the mutex.
func (p *Plugin) unlessPaused(w *want, g *group) (*podgroup.Want, string) {
	var last *v1.Pod
	var longest time.Duration
	able := p.boundOf(g, w.Gang)
	for _, m := range w.Pods {
		left := g.repairs[uidOf(m)].at.Sub(p.now())
		if left <= 0 {
			able++
		} else if left > longest {
			last, longest = m, left
		}
	}
	if last == nil || able >= w.MinCount {
		return &w.Want, ""
	}
	return nil, fmt.Sprintf("none before member %s is tried again in %v, since its last bind failed", last.Name, longest.Round(time.Second))
}

// Of returns the gang that a pod names, and whether it names one.
func (p *Plugin) Of(pod *v1.Pod) (podgroup.Ref, bool) { return p.gangs.Of(pod) }

// Gang returns what the API says of a gang. The error is a *podgroup.Problem.
func (p *Plugin) Gang(ref podgroup.Ref) (*podgroup.Gang, error) { return p.gangs.Gang(ref) }

// onlyWhole is more members than a gang has: none of them may go without the others.
const onlyWhole = math.MaxInt32

// Least returns how many of the members with a place must stay unless all of them go. Members that are being bound are not
// counted on. A gang that has not been let go, one whose least number is not known and one that is malformed goes whole or not
// at all.
func (p *Plugin) Least(ref podgroup.Ref) int {
	pg, err := p.gangs.Gang(ref)
	if pg == nil || pg.MinCount == 0 {
		return onlyWhole
	}
	if problem, ok := err.(*podgroup.Problem); ok && !problem.Waits { //nolint:errorlint // Gang returns it as it is
		return onlyWhole
	}
	p.state.mu.Lock()
	defer p.state.mu.Unlock()
	g := p.state.gangs[ref]
	switch {
	case g == nil || len(g.reserved) == 0:
		return pg.MinCount
	case g.letGo.IsZero():
		return onlyWhole
	}
	return pg.MinCount + len(g.reserved)
}

// Torn reports whether some members of a gang stay bound, and fewer than must run, once those are gone that end, or that leave as
// others tell. Where nobody knows how many must run, all must leave.
func (p *Plugin) Torn(ref podgroup.Ref, leaves func(vgpu.UID) bool) bool {
	pg, _ := p.gangs.Gang(ref)
	if pg == nil {
		return false
	}
	p.state.mu.Lock()
	defer p.state.mu.Unlock()
	stay := 0
	for _, m := range pg.Members {
		if p.isOn(p.state.gangs[ref], m) && !leaves(uidOf(m)) {
			stay++
		}
	}
	return stay > 0 && (pg.MinCount == 0 || stay < pg.MinCount)
}

// beginning is how long evictions may take to begin. Longer delays the members of a gang that is not evicted after all, shorter
// may have one placed whose siblings are about to go.
const beginning = 30 * time.Second

// Doom has none of the other members of a gang placed while these are being evicted, who are all that have a place: it would be
// left with few members, or with one. It ends when all of them are ending, and where an eviction does not begin in 30 seconds.
func (p *Plugin) Doom(victims []*v1.Pod) {
	p.state.mu.Lock()
	defer p.state.mu.Unlock()
	for _, pod := range victims {
		if ref, member := p.gangs.Of(pod); member {
			g := p.state.group(ref)
			g.doomed, g.doomedUntil = victims, p.now().Add(beginning)
			return
		}
	}
}

// isDoomed reports whether members of a gang are about to be evicted with all others that have a place. The caller holds the
// mutex.
func (p *Plugin) isDoomed(g *group) bool {
	if len(g.doomed) == 0 {
		return false
	}
	for _, pod := range g.doomed {
		seen := p.seen(uidOf(pod), pathOf(pod))
		there := seen != nil && (seen.Spec.NodeName != "" || g.bound[uidOf(pod)] || g.reserved[uidOf(pod)])
		if there && seen.DeletionTimestamp == nil && p.now().Before(g.doomedUntil) {
			if g.uncap.IsZero() {
				g.uncap = g.doomedUntil // the gang is tried then, unless it is before that
			}
			return true
		}
	}
	g.doomed = nil
	return false
}

// Withdraw takes back a member that is not bound, in memory, where that takes no eviction: the plan of a gang that was not let go
// is given up, with all its members, and a member that lost its place already stays where it is. It reports whether there is
// nothing to evict.
func (p *Plugin) Withdraw(pod *v1.Pod) bool {
	ref, member := p.gangs.Of(pod)
	seen := p.seen(uidOf(pod), pathOf(pod))
	if !member || seen == nil || seen.Spec.NodeName != "" {
		return false
	}
	defer p.flush(context.Background())
	p.state.mu.Lock()
	defer p.state.mu.Unlock()
	g := p.state.gangs[ref]
	if g == nil || g.bound[uidOf(pod)] || g.reserved[uidOf(pod)] && !g.letGo.IsZero() {
		return false
	}
	if g.reserved[uidOf(pod)] {
		p.cancel(g, "its room goes to pods of a higher priority")
	}
	return true
}
