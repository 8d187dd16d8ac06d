package allocation

import (
	v1 "k8s.io/api/core/v1"

	"github.com/tandem-gpu/tandem/internal/cluster/kube"
	"github.com/tandem-gpu/tandem/pkg/api/v1alpha1"
	"github.com/tandem-gpu/tandem/pkg/vgpu"
)

// AssignmentOf reads the assignment that the pod was started with, whatever its annotation says now.
func AssignmentOf(pod *v1.Pod, g Grant) (vgpu.Assignment, error) {
	return kube.AssignmentOf(WithAssignment(pod, g))
}

// WithAssignment returns the pod with the assignment that it was started with.
func WithAssignment(pod *v1.Pod, g Grant) *v1.Pod {
	p := pod.DeepCopy()
	if p.Annotations == nil {
		p.Annotations = map[string]string{}
	}
	p.Annotations[v1alpha1.AnnotationAssignment] = g.Assignment
	return p
}

// Grant is the assignment that a pod was started with. It never changes while the pod lives.
type Grant struct {
	Pod        string `json:"pod"`
	Assignment string `json:"assignment"`
}
