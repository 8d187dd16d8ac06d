package podgroup

import (
	"fmt"

	appsv1 "k8s.io/api/apps/v1"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/tandem-gpu/tandem/internal/cluster/membership"
	"github.com/tandem-gpu/tandem/pkg/api/v1alpha1"
)

// build makes a Gang of the members, and says what is wrong with it. The caller holds the mutex.
func (s *Set) build(g *gang) (*Gang, *Problem) {
	out := &Gang{Ref: g.ref, Members: make([]*v1.Pod, len(g.members)), Ranks: make([]int, len(g.members))}
	for i, m := range g.members {
		out.Members[i], out.Ranks[i] = m.pod, i
		if at := m.pod.CreationTimestamp.Time; i == 0 || at.Before(out.Created) {
			out.Created = at
		}
	}
	if err := Unnamed(g.ref); err != nil {
		return out, &Problem{Message: err.Error()}
	}
	var declared *membership.PodGroup
	if g.ref.Source != Label {
		groups := s.groups[g.ref.Source]
		if groups == nil {
			return out, &Problem{Message: unserved(g.ref), Waits: true}
		}
		found, problem := groups.find(g.ref)
		if found == nil {
			return out, problem
		}
		declared = &found.PodGroup
		out.Object, out.Created = &declared.Object, declared.Created
		if problem != nil {
			return out, problem
		}
	}
	problem := out.declare(living(g.members), declared)
	s.hold(out, g.members)
	if problem == nil {
		s.countDone(out, g)
		problem = out.missing()
	}
	return out, problem
}

// Unnamed returns what is wrong with the pods of a gang without a name, nil for other gangs. The error is a *kube.FieldError.
func Unnamed(ref Ref) error {
	switch {
	case ref.Name != "":
		return nil
	case ref.Source == Native:
		return membership.UnknownGroup()
	}
	return membership.NamelessGang()
}

// missing says that fewer members exist than must run, or that fewer may be tried, nil where enough may. Those that a target holds back do not
// count: in an elastic gang whose members are numbered, they do not stand in for one that is gone.
func (g *Gang) missing() *Problem {
	alive, gated := g.alive(), g.gated()
	if alive-len(gated) >= g.MinCount {
		return nil
	}
	if alive >= g.MinCount {
		return &Problem{Waits: true, Message: fmt.Sprintf("%d of %d members are without scheduling gates: it waits until the gate %s of pod %s is removed",
			alive-len(gated), g.MinCount, gated[0].Spec.SchedulingGates[0].Name, gated[0].Name)}
	}
	text := fmt.Sprintf("%d of %d members exist", alive, g.MinCount)
	if len(g.held) > 0 {
		text += fmt.Sprintf(", besides %d that the target holds back", len(g.held))
	}
	if g.ordered != "" {
		text += fmt.Sprintf("; StatefulSet %s makes the next one when the last one is ready: make it anew with podManagementPolicy Parallel", g.ordered)
	}
	if g.Done > 0 {
		text += fmt.Sprintf("; %d others are done", g.Done)
	}
	return &Problem{Message: text, Waits: true}
}

// alive counts the members without a deletion.
func (g *Gang) alive() int {
	count := 0
	for _, pod := range g.Members {
		if pod.DeletionTimestamp == nil {
			count++
		}
	}
	return count
}

// gated returns the members that a scheduling gate keeps from being tried.
func (g *Gang) gated() (gated []*v1.Pod) {
	for _, pod := range g.Members {
		if pod.DeletionTimestamp == nil && pod.Spec.NodeName == "" && len(pod.Spec.SchedulingGates) > 0 {
			gated = append(gated, pod)
		}
	}
	return gated
}

// living returns the members without a deletion, or all members where all are in deletion.
func living(members []*member) []*member {
	var out []*member
	for _, m := range members {
		if m.pod.DeletionTimestamp == nil {
			out = append(out, m)
		}
	}
	if len(out) == 0 {
		return members
	}
	return out
}

// declare sets what the members and their PodGroup declare, nil for gangs without one, and says what is wrong with it.
func (g *Gang) declare(members []*member, group *membership.PodGroup) *Problem {
	if why := unlike(members, group); why != "" {
		return &Problem{Message: why}
	}
	first := members[0].pod
	annotations, required, where := first.Annotations, []string(nil), "pod "+first.Name
	var err error
	if group == nil {
		g.MinCount, err = membership.MinMembers(first)
	} else {
		g.MinCount, required = group.MinCount, group.Required
		annotations, where = declaredAnnotations(first, group), fmt.Sprintf("pod %s and its PodGroup", first.Name)
	}
	if err == nil {
		g.Required, g.Preferred, err = membership.Topology(annotations, required...)
	}
	if err == nil {
		g.Sizes, err = membership.ElasticSizes(annotations, g.MinCount)
	}
	if err == nil {
		g.SizeFields, err = membership.BySizeFields(annotations)
	}
	if err == nil {
		err = apart(members, g.MinCount)
	}
	if err == nil && g.Sizes != nil {
		if err = targetName(g.Name); err != nil {
			g.Sizes = nil // no target can be made for it
		}
	}
	if err != nil {
		return &Problem{Message: where + ": " + err.Error()}
	}
	return nil
}

// apart returns what is wrong with members that are of several replicas of a LeaderWorkerSet.
func apart(members []*member, least int) error {
	var replicas membership.Replicas
	for _, m := range members {
		replicas.See(m.pod)
	}
	return replicas.Apart(least, len(members))
}

// targetName returns what is wrong with the name of an elastic gang, which its ElasticTarget has too.
func targetName(name string) error {
	if why := validation.IsDNS1123Subdomain(name); len(why) > 0 {
		return fmt.Errorf("the gang is elastic, and no ElasticTarget can have its name %s: %s", name, why[0])
	}
	return nil
}

// declaredAnnotations returns the annotations of a gang that count: the PodGroup's value of each, else the pod's.
func declaredAnnotations(pod *v1.Pod, group *membership.PodGroup) map[string]string {
	out := map[string]string{}
	for _, key := range membership.DeclaredAnnotations {
		if value, ok := group.Annotations[key]; ok {
			out[key] = value
		} else if value, ok := pod.Annotations[key]; ok {
			out[key] = value
		}
	}
	return out
}

// unlike says which members differ that must not, or which of them names two gangs; "" for none.
func unlike(members []*member, group *membership.PodGroup) string {
	var besides []string
	if group != nil {
		besides = append(besides, v1alpha1.AnnotationMinMembers)
		for key := range group.Annotations {
			besides = append(besides, key)
		}
	}
	first := members[0]
	for _, m := range members {
		if m.conflict != "" {
			return m.conflict
		}
		if m.likeness == first.likeness {
			continue
		}
		if field, value, other := first.likeness.Difference(m.likeness, besides...); field != "" {
			text := fmt.Sprintf("the members differ in %s: %s of pod %s, %s of pod %s; it must be the same for all members of a gang",
				field, value, first.pod.Name, other, m.pod.Name)
			if revised(first.pod, m.pod) {
				text += ": a rolling update cannot change it, delete the pods of the revision before, or change it back"
			}
			return text
		}
	}
	return ""
}

// revised reports whether two pods are of different revisions of one object.
func revised(a, b *v1.Pod) bool {
	for _, key := range []string{appsv1.DefaultDeploymentUniqueLabelKey, appsv1.ControllerRevisionHashLabelKey} {
		if a.Labels[key] != "" && b.Labels[key] != "" && a.Labels[key] != b.Labels[key] {
			return true
		}
	}
	return false
}
