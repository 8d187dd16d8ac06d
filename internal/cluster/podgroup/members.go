package podgroup

import (
	"fmt"
	"maps"
	"slices"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/client-go/tools/cache"

	"github.com/tandem-gpu/tandem/internal/cluster/membership"
)

// member is a pod in a gang, with fields that the set reads once.
type member struct {
	ref      Ref
	pod      *v1.Pod
	rank     membership.Rank
	likeness membership.Likeness
	// conflict says that the pod names two gangs, "" where it names one.
	conflict string
	// unnotified are the gangs whose listeners do not know yet of the new pod.
	unnotified []Ref
}

// gang holds the members of a gang, and what build made of them.
type gang struct {
	ref Ref
	// members in their order.
	members []*member
	// gang and problem are the results of an earlier Gang.
	gang    *Gang
	problem *Problem
	built   bool
	done    done
	// origins of the members that were ever there, with the time when each made its first one.
	origins map[Origin]time.Time
}

// podChanged handles a change of a pod. The informer's store has its present state.
func (s *Set) podChanged(object any) {
	key, err := cache.DeletionHandlingMetaNamespaceKeyFunc(object)
	if err != nil {
		return // no object has this name
	}
	s.mu.Lock()
	refs := s.follow(key, s.stored(key))
	if m := s.known[key]; m != nil && len(m.unnotified) > 0 {
		refs, m.unnotified = union(m.unnotified, refs), nil
	}
	s.mu.Unlock()
	s.notify(refs)
}

// follow sets what the set knows of a pod to the store's present state, nil for nothing. The result lists the gangs for
// which that makes a difference.
//
// The events of an informer come after its store has changed. So in the end the set knows each pod as the store has it,
// whatever the set read in between and in whatever order. The caller holds the mutex.
func (s *Set) follow(key string, now *member) []Ref {
	before := s.known[key]
	switch {
	case before == nil && now == nil:
		return nil
	case before == nil:
		s.insert(key, now)
		return []Ref{now.ref}
	case now == nil:
		s.remove(key, before)
		return union(before.unnotified, []Ref{before.ref})
	case before.pod == now.pod:
		return nil
	}
	now.unnotified = before.unnotified
	origins := s.gangs[before.ref].origins
	s.remove(key, before)
	s.insert(key, now)
	if g := s.gangs[now.ref]; before.ref == now.ref { // a gang of one member was forgotten in between
		g.origins = origins
		g.noteOrigin(now.pod)
	}
	if before.ref == now.ref && !differs(before.pod, now.pod) {
		return nil
	}
	return union([]Ref{before.ref}, []Ref{now.ref})
}

// stored returns the member that the store has, nil for none and for a pod that has ended or is in no gang.
func (s *Set) stored(key string) *member {
	object, ok, err := s.pods.GetByKey(key)
	if err != nil || !ok {
		return nil
	}
	pod, ok := object.(*v1.Pod)
	if !ok || pod.Status.Phase == v1.PodSucceeded || pod.Status.Phase == v1.PodFailed {
		return nil
	}
	ref, ok := s.Of(pod)
	if !ok {
		return nil
	}
	m := &member{ref: ref, pod: pod, rank: membership.RankOf(pod), likeness: membership.LikenessOf(pod)}
	m.conflict = s.conflict(pod, ref)
	return m
}

// conflict describes that a pod names another gang than its own by a served source.
func (s *Set) conflict(pod *v1.Pod, ref Ref) string {
	names := membership.GangsOf(pod)
	for _, other := range []struct {
		source Source
		name   string
		served bool
	}{{XK8s, names.XK8s, s.served.XK8s}, {Label, names.Label, true}} {
		if other.served && other.name != "" && other.name != ref.Name {
			return fmt.Sprintf("pod %s names two gangs, %s by %s and %s by %s: name one, or both alike",
				pod.Name, ref.Name, FieldOf(ref.Source), other.name, FieldOf(other.source))
		}
	}
	return ""
}

func byRank(a, b *member) int { return a.rank.Compare(b.rank) }

func (s *Set) insert(key string, m *member) {
	g := s.gangs[m.ref]
	if g == nil {
		g = &gang{ref: m.ref, origins: map[Origin]time.Time{}}
		s.gangs[m.ref] = g
	}
	at, _ := slices.BinarySearchFunc(g.members, m, byRank)
	g.members = slices.Insert(g.members, at, m)
	g.built = false
	g.noteOrigin(m.pod)
	s.known[key] = m
}

func (s *Set) remove(key string, m *member) {
	g := s.gangs[m.ref]
	if at, ok := slices.BinarySearchFunc(g.members, m, byRank); ok {
		g.members = slices.Delete(g.members, at, at+1)
	}
	g.built = false
	if len(g.members) == 0 {
		delete(s.gangs, m.ref)
	}
	delete(s.known, key)
}

// differs reports whether two states of a pod make a difference to its gang. Its status makes none.
func differs(a, b *v1.Pod) bool {
	return a.UID != b.UID || a.Spec.NodeName != b.Spec.NodeName || (a.DeletionTimestamp == nil) != (b.DeletionTimestamp == nil) ||
		len(a.Spec.SchedulingGates) != len(b.Spec.SchedulingGates) ||
		!maps.Equal(a.Labels, b.Labels) || !maps.Equal(a.Annotations, b.Annotations)
}

// union returns the refs of both lists, each once.
func union(a, b []Ref) []Ref {
	for _, ref := range b {
		if !slices.Contains(a, ref) {
			a = append(slices.Clip(a), ref)
		}
	}
	return a
}
