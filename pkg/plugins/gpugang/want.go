package gpugang

import (
	"context"
	"fmt"
	"time"

	v1 "k8s.io/api/core/v1"
	fwk "k8s.io/kube-scheduler/framework"

	"github.com/tandem-gpu/tandem/internal/cluster/podgroup"
	"github.com/tandem-gpu/tandem/pkg/gang"
	"github.com/tandem-gpu/tandem/pkg/reservation"
	"github.com/tandem-gpu/tandem/pkg/vgpu"
)

// want is what a gang was refused in a cycle; grouped: of all its members.
type want struct {
	podgroup.Want
	grouped bool
}

// Clone returns the same: it is never changed.
func (w *want) Clone() fwk.StateData { return w }

// writeWant notes what a gang that was refused for want of room asked for, for preemption.
func (p *Plugin) writeWant(c *cycle, t *task, refusal *gang.Refusal) {
	if refusal.Reason != gang.NoRoom || t.lacking() == 0 {
		return
	}
	w := &want{grouped: c.grouped(), Want: podgroup.Want{
		Gang: t.gang, Cluster: t.cluster, Group: t.group, Config: t.config, Pods: t.pods, Unbound: max(0, t.gang.MinCount-t.bound),
	}}
	w.Config.SkipExplanation = false
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
	p.machine.mu.Lock()
	defer p.machine.mu.Unlock()
	if !p.machine.state.Wants(ref) {
		return nil, ""
	}
	if a := p.step(reservation.RoomWanted{Ref: ref}); a.refuse != nil {
		return nil, a.refuse.Why
	}
	if w.grouped {
		return p.unlessPaused(w)
	}
	return &w.Want, ""
}

// unlessPaused returns a gang that the scheduler tries in one cycle where as many members as must run can be tried now. Others
// pause after their binds failed, and the cycle would fail for them whatever room there is.
func (p *Plugin) unlessPaused(w *want) (*podgroup.Want, string) {
	var last *v1.Pod
	var longest time.Duration
	f := p.factsOf(w.Ref, w.Gang, nil)
	able := p.machine.state.Bound(&f)
	for _, m := range w.Pods {
		left, _ := p.machine.state.RetriedIn(w.Ref, uidOf(m), p.now())
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

// Least is that of the machine.
func (p *Plugin) Least(ref podgroup.Ref) (least int) {
	p.read(func(s *reservation.State) {
		f := p.facts(ref)
		least = s.Least(&f)
	})
	return least
}

// Torn is that of the machine.
func (p *Plugin) Torn(ref podgroup.Ref, leaves func(vgpu.UID) bool) (torn bool) {
	p.read(func(s *reservation.State) {
		f := p.facts(ref)
		torn = s.Torn(&f, leaves)
	})
	return torn
}

// Doom has none of the other members of a gang placed while these are being evicted, who are all that have a place: see
// reservation.Vacated. It ends when all of them are ending, and where an eviction does not begin in 30 seconds.
func (p *Plugin) Doom(victims []*v1.Pod) {
	uids := make([]vgpu.UID, 0, len(victims))
	for _, pod := range victims {
		uids = append(uids, uidOf(pod))
	}
	for _, pod := range victims {
		if ref, member := p.gangs.Of(pod); member {
			p.with(func(*reservation.State) reservation.Event { return reservation.Vacated{Ref: ref, Members: uids} })
			return
		}
	}
}

// Withdraw takes back a member that is not bound, in memory, where that takes no eviction: the plan of a gang whose members may not
// be bound yet is given up, with all its members, and a member that lost its place already stays where it is. It reports whether
// there is nothing to evict.
func (p *Plugin) Withdraw(pod *v1.Pod) (withdrawn bool) {
	ref, member := p.gangs.Of(pod)
	seen := p.seen(uidOf(pod), pathOf(pod))
	if !member || seen == nil || seen.Spec.NodeName != "" {
		return false
	}
	p.machine.mu.Lock()
	if withdrawn = p.machine.state.Withdrawable(ref, uidOf(pod)); withdrawn {
		p.step(reservation.Withdrawn{Gang: p.facts(ref), UID: uidOf(pod)})
	}
	p.machine.mu.Unlock()
	p.flush(context.Background())
	return withdrawn
}
