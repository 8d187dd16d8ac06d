package membership

import (
	"fmt"
	"slices"
	"strconv"

	v1 "k8s.io/api/core/v1"

	"github.com/tandem-gpu/tandem/internal/cluster/kube"
	"github.com/tandem-gpu/tandem/pkg/api/v1alpha1"
)

// LabelPodGroup is the label of a pod that names its PodGroup of scheduling.x-k8s.io.
const LabelPodGroup = "scheduling.x-k8s.io/pod-group"

// FieldSchedulingGroup is the field of a pod that says which group of scheduling.k8s.io it is in, and FieldPodGroup the one of its
// members that names a PodGroup.
const (
	FieldSchedulingGroup = "spec.schedulingGroup"
	FieldPodGroup        = FieldSchedulingGroup + ".podGroupName"
)

// MaxMinMembers bounds the number of members that a gang may need.
const MaxMinMembers = 10_000

const legalMinMembers = "it must be a whole number from 1 to 10000, the least number of members that may run"

// GangNames are the names of gangs that a pod gives itself, by source; "" where it names none. The caller says whether a
// source counts.
type GangNames struct {
	// Native is the PodGroup of scheduling.k8s.io. Grouped: the pod is in a group of that API. Such a group is unknown
	// where it names no PodGroup: later versions may have groups of other kinds.
	Native  string
	Grouped bool
	// XK8s is the PodGroup of scheduling.x-k8s.io.
	XK8s string
	// Label is tandem-gpu.io/gang.
	Label string
}

// GangsOf returns the gangs that a pod names.
func GangsOf(pod *v1.Pod) GangNames {
	n := GangNames{XK8s: pod.Labels[LabelPodGroup], Label: pod.Labels[v1alpha1.LabelGang]}
	if g := pod.Spec.SchedulingGroup; g != nil {
		n.Grouped = true
		if g.PodGroupName != nil {
			n.Native = *g.PodGroupName
		}
	}
	return n
}

// SpeaksOfGang reports whether a pod has a label or annotation that only pods of a gang have.
func SpeaksOfGang(pod *v1.Pod) bool {
	if _, ok := pod.Labels[v1alpha1.LabelGang]; ok {
		return true
	}
	for _, key := range []string{
		v1alpha1.AnnotationMinMembers, v1alpha1.AnnotationRequiredTopology, v1alpha1.AnnotationPreferredTopology, v1alpha1.AnnotationElasticWorkers,
		v1alpha1.AnnotationElasticResize,
	} {
		if _, ok := pod.Annotations[key]; ok {
			return true
		}
	}
	return false
}

// NamelessGang is what is wrong with a pod that SpeaksOfGang and names none.
func NamelessGang() *kube.FieldError {
	return &kube.FieldError{
		Field: kube.LabelPath(v1alpha1.LabelGang),
		Legal: fmt.Sprintf("it names no gang; the annotations %s, %s, %s, %s and %s are for the members of a gang: name it by the label, or remove them",
			v1alpha1.AnnotationMinMembers, v1alpha1.AnnotationRequiredTopology, v1alpha1.AnnotationPreferredTopology, v1alpha1.AnnotationElasticWorkers,
			v1alpha1.AnnotationElasticResize),
	}
}

// UnknownGroup is what is wrong with a pod whose group of scheduling.k8s.io names no PodGroup.
func UnknownGroup() *kube.FieldError {
	return &kube.FieldError{
		Field: FieldSchedulingGroup,
		Legal: "it names no PodGroup, and this scheduler understands no other group: the pod is in a group, so it is not scheduled alone; " +
			"name a PodGroup by podGroupName, or leave the field out",
		MustReplace: true,
	}
}

// MinMembers returns the least number of members of a gang that is declared by the pods alone, from 1 to MaxMinMembers. The
// error is a *FieldError.
func MinMembers(pod *v1.Pod) (int, error) {
	raw, ok := pod.Annotations[v1alpha1.AnnotationMinMembers]
	if !ok {
		return 0, &kube.FieldError{
			Field: kube.AnnotationPath(v1alpha1.AnnotationMinMembers),
			Legal: "it is missing: " + legalMinMembers,
		}
	}
	n, err := strconv.ParseInt(raw, 10, 32)
	if err != nil || n < 1 || n > MaxMinMembers || raw[0] == '+' {
		return 0, kube.Malformed(v1alpha1.AnnotationMinMembers, raw, legalMinMembers)
	}
	return int(n), nil
}

// Likeness is what all members of a gang have in common. Members are alike if it is equal.
type Likeness [len(likenessFields)]string

// likenessFields are the fields of a pod that Likeness holds.
var likenessFields = [...]string{
	"spec.schedulerName", "spec.priority", "spec.preemptionPolicy",
	"metadata.annotations[" + v1alpha1.AnnotationMinMembers + "]",
	"metadata.annotations[" + v1alpha1.AnnotationRequiredTopology + "]",
	"metadata.annotations[" + v1alpha1.AnnotationPreferredTopology + "]",
	"metadata.annotations[" + v1alpha1.AnnotationElasticWorkers + "]",
	"metadata.annotations[" + v1alpha1.AnnotationElasticResize + "]",
}

// LikenessOf returns what a pod must share with the other members of its gang.
func LikenessOf(pod *v1.Pod) Likeness {
	priority, preemption := int32(0), v1.PreemptLowerPriority
	if p := pod.Spec.Priority; p != nil {
		priority = *p
	}
	if p := pod.Spec.PreemptionPolicy; p != nil {
		preemption = *p
	}
	return Likeness{
		pod.Spec.SchedulerName, strconv.Itoa(int(priority)), string(preemption), written(pod, v1alpha1.AnnotationMinMembers),
		written(pod, v1alpha1.AnnotationRequiredTopology), written(pod, v1alpha1.AnnotationPreferredTopology),
		written(pod, v1alpha1.AnnotationElasticWorkers), written(pod, v1alpha1.AnnotationElasticResize),
	}
}

// written returns an annotation in quotes, "none" where it is missing: an empty one is not missing.
func written(pod *v1.Pod, key string) string {
	if value, ok := pod.Annotations[key]; ok {
		return strconv.Quote(value)
	}
	return "none"
}

// Difference returns the first field in which two pods differ that must be alike, with its values, shortened; "" for none.
// The annotations in besides may differ: those that a PodGroup says for all.
func (l Likeness) Difference(other Likeness, besides ...string) (field, value, otherValue string) {
	for i, name := range likenessFields {
		if l[i] != other[i] && !slices.ContainsFunc(besides, func(key string) bool { return kube.AnnotationPath(key) == name }) {
			return name, kube.Shown(l[i]), kube.Shown(other[i])
		}
	}
	return "", "", ""
}
