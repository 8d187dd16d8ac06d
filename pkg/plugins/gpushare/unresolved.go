package gpushare

import (
	"cmp"
	"context"
	"slices"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/klog/v2"

	"github.com/tandem-gpu/tandem/internal/cluster/kube"
)

const (
	// unresolvedFor is how long an unresolved bind keeps its room where the pod gets no node. This is twice the time
	// that an API server works on a request, a minute by default (--request-timeout). A bind that it has begun cannot
	// happen after that. Longer keeps the room of binds that failed from others; shorter may give it away before a bind
	// that did not.
	unresolvedFor = 2 * time.Minute
	// unresolvedStep is the time between two looks.
	unresolvedStep = 10 * time.Second
)

// UnresolvedBinds counts the pods with a bind of unknown result. When the count falls, room has come free.
func (p *Plugin) UnresolvedBinds() int {
	p.state.mu.RLock()
	defer p.state.mu.RUnlock()
	return int(p.state.unresolvedCount())
}

// settleUnresolved reads the pods of old unresolved binds. Otherwise the room of a bind that never happened would stay
// for as long as its pod finds no other: two gangs could each keep what the other needs.
func (p *Plugin) settleUnresolved(ctx context.Context) {
	for _, u := range p.state.unresolvedBefore(p.now().Add(-unresolvedFor)) {
		p.settleUnresolvedBind(ctx, u)
	}
}

// settleUnresolvedBind reads the pod of an old unresolved bind, and ends its room unless the pod has it.
func (p *Plugin) settleUnresolvedBind(ctx context.Context, u unresolved) {
	namespace, name, _ := strings.Cut(u.Pod, "/")
	if p.requests.Turn(ctx) != nil {
		return // the scheduler ends
	}
	ctx, cancel := context.WithTimeout(ctx, p.bindTimeout)
	defer cancel()
	pod, err := p.requests.CoreV1().Pods(namespace).Get(ctx, name, metav1.GetOptions{})
	switch {
	case apierrors.IsNotFound(err) || err == nil && kube.UIDOf(pod) != u.UID:
		p.state.gone(u.UID)
	case err != nil:
		return // the next call reads it again
	case pod.Spec.NodeName != "":
		p.state.noteBound(u.UID, pod.Spec.NodeName)
		return
	default:
		p.state.endUnresolved(u)
	}
	klog.FromContext(ctx).V(2).Info("A bind of unknown outcome did not happen", "pod", klog.KRef(namespace, name), "node", u.Node)
	p.pending.activate()
}

// unresolvedBefore returns the unresolved binds that were given up before a time, by node and pod.
func (s *state) unresolvedBefore(at time.Time) []unresolved {
	s.mu.RLock()
	defer s.mu.RUnlock()
	var old []unresolved
	for uid, nodes := range s.unresolved {
		for _, name := range nodes {
			if u := s.nodes[name].unresolved[uid]; !u.isShown && u.since.Before(at) {
				old = append(old, u)
			}
		}
	}
	slices.SortFunc(old, func(a, b unresolved) int { return cmp.Or(cmp.Compare(a.Node, b.Node), cmp.Compare(a.UID, b.UID)) })
	return old
}

// endUnresolved ends the room of an unresolved bind that did not happen, unless more is known of it by now.
func (s *state) endUnresolved(u unresolved) {
	s.mu.Lock()
	defer s.mu.Unlock()
	n := s.nodes[u.Node]
	if n == nil {
		return
	}
	if now, ok := n.unresolved[u.UID]; ok && !now.isShown && now.since.Equal(u.since) {
		s.resolve(u.UID, u.Node)
	}
}
