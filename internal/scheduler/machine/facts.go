package machine

import (
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/klog/v2"

	"github.com/tandem-gpu/tandem/internal/cluster/podgroup"
	"github.com/tandem-gpu/tandem/pkg/reservation"
	"github.com/tandem-gpu/tandem/pkg/vgpu"
)

// cachedFacts are the facts of one gang, and the objects that they come from.
type cachedFacts struct {
	gang  *podgroup.Gang
	err   error
	facts reservation.Facts
}

// Facts returns what the API says of a gang. If the state depends on the latest, it takes the members from the informer's store,
// since the gang's copy of a member may be older.
func (l Locked) Facts(ref podgroup.Ref) reservation.Facts {
	m := l.m
	pg, err := m.gangs.Gang(ref)
	if l.State.Watchful(ref) {
		return l.Latest(ref, pg, err)
	}
	if pg == nil {
		delete(m.known, ref)
		return l.FactsOf(ref, nil, err)
	}
	if k, ok := m.known[ref]; ok && k.gang == pg && k.err == err { //nolint:errorlint // the very same
		return k.facts
	}
	f := l.FactsOf(ref, pg, err)
	m.known[ref] = cachedFacts{pg, err, f}
	return f
}

// Latest returns the facts of a gang with its members as the informer's store has them.
func (l Locked) Latest(ref podgroup.Ref, pg *podgroup.Gang, err error) reservation.Facts {
	if pg == nil {
		return l.FactsOf(ref, nil, err)
	}
	latest := *pg
	latest.Members = nil
	for _, p := range pg.Members {
		if p = l.m.Seen(vgpu.UID(p.UID), klog.KObj(p).String()); p != nil {
			latest.Members = append(latest.Members, p)
		}
	}
	return l.FactsOf(ref, &latest, err)
}

// FactsOf returns the facts of a gang, nil for none, with its problem.
func (l Locked) FactsOf(ref podgroup.Ref, pg *podgroup.Gang, err error) reservation.Facts {
	f := reservation.Facts{Ref: ref, Queued: l.m.gangs.Queues(ref.Source)}
	if problem, ok := err.(*podgroup.Problem); ok { //nolint:errorlint // Gang returns it as it is
		f.Problem = &reservation.Problem{Message: problem.Message, Waits: problem.Waits}
	}
	if pg == nil {
		return f
	}
	f.MinCount, f.Members = pg.MinCount, make([]reservation.Member, 0, len(pg.Members))
	for _, p := range pg.Members {
		f.Members = append(f.Members, MemberOf(p))
	}
	return f
}

// MemberOf returns a pod as a member of its gang.
func MemberOf(pod *v1.Pod) reservation.Member {
	m := reservation.Member{
		UID: vgpu.UID(pod.UID), Pod: klog.KObj(pod).String(), Node: pod.Spec.NodeName, Deleted: pod.DeletionTimestamp != nil,
		Gated: len(pod.Spec.SchedulingGates) > 0, Created: pod.CreationTimestamp.Unix(),
	}
	if at := ScheduledAt(pod); !at.IsZero() {
		m.Scheduled = at.Unix()
	}
	return m
}

// ScheduledAt returns when a pod got its node, zero where it has none.
func ScheduledAt(pod *v1.Pod) time.Time {
	for i := range pod.Status.Conditions {
		if c := &pod.Status.Conditions[i]; c.Type == v1.PodScheduled && c.Status == v1.ConditionTrue {
			return c.LastTransitionTime.Time
		}
	}
	return time.Time{}
}

// Seen returns a pod, "namespace/name", as the informer has it, nil where it has none of that UID.
func (m *Machine) Seen(uid vgpu.UID, pod string) *v1.Pod {
	namespace, name, _ := strings.Cut(pod, "/")
	seen, err := m.handle.SharedInformerFactory().Core().V1().Pods().Lister().Pods(namespace).Get(name)
	if err != nil || vgpu.UID(seen.UID) != uid {
		return nil
	}
	return seen
}
