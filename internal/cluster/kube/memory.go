package kube

import (
	"fmt"

	v1 "k8s.io/api/core/v1"

	"github.com/tandem-gpu/tandem/pkg/api/v1alpha1"
	"github.com/tandem-gpu/tandem/pkg/vgpu"
)

// MemoryError returns the error of a pod that would fail: its workload declares to hold more memory of a device than
// the share may use there. The error is at the field that bounds the container's device memory. The fields are, in this
// order, the annotation that raises the limit, the container's memory, and its slots, which memory follows from.
func MemoryError(pod *v1.Pod, container, profile, model string, holds vgpu.Bytes, share vgpu.Share) *FieldError {
	legal := fmt.Sprintf("WorkloadProfile %s declares that it holds %v of a device of %s, and the pod may use %v there",
		profile, holds, model, share.MemoryLimit)
	if _, ok := pod.Annotations[v1alpha1.AnnotationMemoryLimit]; ok {
		return AnnotationError(pod, v1alpha1.AnnotationMemoryLimit, legal)
	}
	at, resource := vgpu.Refusal{Container: container}, v1.ResourceName(v1alpha1.ResourceMemory)
	if _, c := findContainer(pod, container); c == nil || c.Resources.Limits.Name(resource, "").IsZero() {
		resource = v1alpha1.ResourceVGPU
	}
	return resourceError(pod, at, resource, legal)
}
