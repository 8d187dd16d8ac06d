package kube

import (
	"fmt"
	"strings"

	v1 "k8s.io/api/core/v1"

	"github.com/tandem-gpu/tandem/pkg/api/v1alpha1"
	"github.com/tandem-gpu/tandem/pkg/vgpu"
)

// maxShownValue bounds the part of a wrong value that a message repeats: events hold 1,024 characters in all.
const maxShownValue = 64

// FieldError says which field of a pod is wrong.
type FieldError struct {
	// Field is the path of the field, for example "spec.containers[0].resources.limits[tandem-gpu.io/vgpu]".
	Field string
	// Value of the field as written, shortened; "" where the field is missing.
	Value string
	// Legal says in words which values are legal, or what is missing.
	Legal string
	// MustReplace reports that the field is immutable: the user must delete the pod and create it again. Resources of
	// containers are immutable, annotations are not.
	MustReplace bool
	// Object reports that the field is one of another object than the pod, which the user can change.
	Object bool
	// NothingWaits reports that no pod waits for the correction: the object was not refused, it is left alone.
	NothingWaits bool
}

// Error names the field, the value, the legal values and what to do.
func (e *FieldError) Error() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s: ", e.Field)
	if e.Value != "" {
		fmt.Fprintf(&b, "%q is not legal, ", e.Value)
	}
	b.WriteString(e.Legal)
	switch {
	case e.MustReplace:
		b.WriteString("; the field is immutable: the pod must be replaced")
	case e.NothingWaits:
		b.WriteString("; correct it")
	case e.Object:
		b.WriteString("; correct it and the pods are tried again")
	case strings.HasPrefix(e.Field, "metadata.labels"):
		b.WriteString("; set the label and the pod is tried again")
	default:
		b.WriteString("; correct the annotation and the pod is tried again")
	}
	return b.String()
}

// FieldOf names the field of the pod that makes its request illegal, and returns false for refusals that are about
// room.
func FieldOf(pod *v1.Pod, r vgpu.Refusal) (*FieldError, bool) {
	switch r.Reason {
	case vgpu.IllegalSlots:
		return resourceError(pod, r, v1alpha1.ResourceVGPU, legalSlots(r)), true
	case vgpu.MemoryAboveDevice:
		return resourceError(pod, r, v1alpha1.ResourceMemory, fmt.Sprintf("it can be at most %v", vgpu.Bytes(r.Of))), true
	case vgpu.ComputeLimitBelowRequest:
		return AnnotationError(pod, v1alpha1.AnnotationComputeLimit,
			fmt.Sprintf("it must not be below the request, %d percent of a device", r.Best/milliPerPercent)), true
	case vgpu.MemoryLimitBelowRequest:
		return AnnotationError(pod, v1alpha1.AnnotationMemoryLimit,
			fmt.Sprintf("it must not be below the request, %v", vgpu.Bytes(r.Best))), true
	case vgpu.LimitAboveDevice:
		return AnnotationError(pod, v1alpha1.AnnotationMemoryLimit,
			fmt.Sprintf("it must not be above the device, %v", vgpu.Bytes(r.Best))), true
	}
	if r.Reason == vgpu.NoAllowedModel && pod.Annotations[v1alpha1.AnnotationModels] != "" {
		return AnnotationError(pod, v1alpha1.AnnotationModels,
			"the cluster has none of these models but "+strings.Join(r.Present, ", ")), true
	}
	return nil, false
}

func legalSlots(r vgpu.Refusal) string {
	if len(r.Legal) == 0 {
		return "it must be at most a device's slots or a multiple of them"
	}
	words := make([]string, len(r.Legal))
	for i, s := range r.Legal {
		words[i] = fmt.Sprint(s)
	}
	return "the nearest legal values are " + strings.Join(words, " and ")
}

func resourceError(pod *v1.Pod, r vgpu.Refusal, resource v1.ResourceName, legal string) *FieldError {
	path, c := findContainer(pod, r.Container)
	e := &FieldError{Field: limitPath(path, resource), Legal: legal, MustReplace: true}
	if c == nil {
		return e
	}
	if q, ok := c.Resources.Limits[resource]; ok {
		e.Value = ShownQuantity(q)
	}
	return e
}

// AnnotationError returns what is wrong with the value of an annotation of a pod.
func AnnotationError(pod *v1.Pod, key, legal string) *FieldError {
	return &FieldError{Field: AnnotationPath(key), Value: Shown(pod.Annotations[key]), Legal: legal}
}

func findContainer(pod *v1.Pod, name string) (string, *v1.Container) {
	for i := range pod.Spec.InitContainers {
		if pod.Spec.InitContainers[i].Name == name {
			return fmt.Sprintf("spec.initContainers[%d]", i), &pod.Spec.InitContainers[i]
		}
	}
	for i := range pod.Spec.Containers {
		if pod.Spec.Containers[i].Name == name {
			return fmt.Sprintf("spec.containers[%d]", i), &pod.Spec.Containers[i]
		}
	}
	return "spec.containers", nil
}

func limitPath(container string, resource v1.ResourceName) string {
	return fmt.Sprintf("%s.resources.limits[%s]", container, resource)
}

// AnnotationPath returns the path of an annotation, as a FieldError names it.
func AnnotationPath(key string) string { return fmt.Sprintf("metadata.annotations[%s]", key) }

// LabelPath returns the path of a label, as a FieldError names it.
func LabelPath(key string) string { return fmt.Sprintf("metadata.labels[%s]", key) }

// Shown shortens a value that a user wrote, for a message.
func Shown(value string) string {
	if len(value) <= maxShownValue {
		return value
	}
	return strings.ToValidUTF8(value[:maxShownValue], "") + "…"
}
