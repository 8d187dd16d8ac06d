package gpupreempt

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/tandem-gpu/tandem/internal/cluster/admission"
	"github.com/tandem-gpu/tandem/pkg/vgpu"
)

// step is the time between two looks at deadlines and retries. Shorter is more exact and costs a walk over the preemptions.
const step = time.Second

// settling is how long a preemptor may stay unplaced once its victims are gone. Longer keeps room for a pod that something else
// keeps out of the queue, shorter gives up room that a busy scheduler has not come to use.
const settling = time.Minute

// Run looks at deadlines and retries until ctx ends.
func (p *Plugin) Run(ctx context.Context) {
	tick := time.NewTicker(step)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
			p.Tick(ctx)
		}
	}
}

// Tick is one step of Run: preemptions end that came to nothing, preemptors are tried whose victims are gone or whose time has
// come.
func (p *Plugin) Tick(ctx context.Context) {
	for _, x := range p.state.all() {
		p.look(ctx, x)
	}
	p.activate(ctx, p.state.due(p.now())...)
	p.state.prune(p.now())
	p.notes.expire(p.now())
}

// all returns the preemptions, in a fixed order.
func (s *state) all() []*pending {
	s.mu.Lock()
	defer s.mu.Unlock()
	list := make([]*pending, 0, len(s.pendings))
	for _, x := range s.pendings {
		list = append(list, x)
	}
	slices.SortFunc(list, func(a, b *pending) int { return cmp.Compare(a.pod.UID, b.pod.UID) })
	return list
}

// look does what is due for one preemption.
func (p *Plugin) look(ctx context.Context, x *pending) {
	now := p.now()
	switch pod := p.seen(x.pod); {
	case pod == nil || pod.DeletionTimestamp != nil:
		p.over(x.pod, true)
		return
	case pod.Spec.NodeName != "":
		p.over(x.pod, false)
		return
	case !p.nodeStands(x):
		p.end(ctx, x, x.nodeLost())
		return
	case p.evicting(string(pod.UID)):
		return
	}
	p.state.mu.Lock()
	left := x.left(p.exists, now)
	if left == 0 && x.cleared.IsZero() {
		x.cleared = now
	}
	cleared, deadline := x.cleared, x.deadline
	p.state.mu.Unlock()
	switch {
	case left > 0 && now.After(deadline):
		p.end(ctx, x, fmt.Sprintf("%d of %s did not leave node %s in time", left, plural(len(x.victims), "pod"), x.place.Node))
	case left == 0 && now.Sub(cleared) > settling:
		p.end(ctx, x, fmt.Sprintf("all victims have left node %s, and the pod was not placed within %v", x.place.Node, settling))
	case left == 0:
		p.activate(ctx, x.pod)
	}
}

// exists reports whether the informer has a victim.
func (p *Plugin) exists(v *victim) bool {
	namespace, name, _ := strings.Cut(v.name, "/")
	pod, err := p.handle.SharedInformerFactory().Core().V1().Pods().Lister().Pods(namespace).Get(name)
	return err == nil && uidOf(pod) == v.uid
}

// nodeStands reports whether the node of a preemption is there and may take the preemptor, as far as a look tells.
func (p *Plugin) nodeStands(x *pending) bool {
	node, err := p.handle.SharedInformerFactory().Core().V1().Nodes().Lister().Get(x.place.Node)
	if err != nil {
		return false
	}
	demand := admission.Of(x.pod)
	return demand.MetBy(node)
}

// over forgets a preemptor that is bound or gone. Room that is kept for one that is gone ends.
func (p *Plugin) over(pod *v1.Pod, gone bool) {
	p.state.mu.Lock()
	kept := p.state.pendings[uidOf(pod)] != nil
	p.state.forget(uidOf(pod))
	p.state.mu.Unlock()
	if shares := p.sharesOrNil(); kept && gone && shares != nil {
		shares.Release(uidOf(pod))
	}
}

// due returns the pods whose time for another try has come, and forgets that it was to come.
func (s *state) due(now time.Time) []*v1.Pod {
	s.mu.Lock()
	defer s.mu.Unlock()
	var pods []*v1.Pod
	for uid, r := range s.retries {
		if !r.at.IsZero() && !now.Before(r.at) {
			pods = append(pods, r.pod)
			delete(s.retries, uid)
		}
	}
	return pods
}

// prune forgets victims that are overdue.
func (s *state) prune(now time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for uid, by := range s.leaving {
		if now.After(by) {
			delete(s.leaving, uid)
		}
	}
	maps.DeleteFunc(s.charges, func(uid vgpu.UID, _ []stamp) bool { return s.leaving[uid].IsZero() })
}

// noRetry forgets that a pod is to be tried again: it is being tried.
func (s *state) noRetry(uid vgpu.UID) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.retries, uid)
}

// tryAgain has a pod tried again without an event of the cluster.
func (p *Plugin) tryAgain(pod *v1.Pod, r again) {
	p.state.mu.Lock()
	defer p.state.mu.Unlock()
	r.pod = pod
	p.state.retries[uidOf(pod)] = r
}
