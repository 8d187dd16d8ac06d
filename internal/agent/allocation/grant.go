package allocation

import (
	v1 "k8s.io/api/core/v1"

	"github.com/tandem-gpu/tandem/internal/cluster/kube"
	"github.com/tandem-gpu/tandem/pkg/api/v1alpha1"
	"github.com/tandem-gpu/tandem/pkg/vgpu"
)

// AssignmentOf reads the grant of a pod, whatever the pod's annotation says now.
func AssignmentOf(pod *v1.Pod, g Grant) (vgpu.Assignment, error) {
	return kube.AssignmentOf(WithAssignment(pod, g))
}

// WithAssignment returns the pod with the assignment of its grant.
func WithAssignment(pod *v1.Pod, g Grant) *v1.Pod {
	p := pod.DeepCopy()
	if p.Annotations == nil {
		p.Annotations = map[string]string{}
	}
	p.Annotations[v1alpha1.AnnotationAssignment] = g.Assignment
	return p
}

// Grant is the assignment with which the agent started a pod. A grant never changes while the pod lives.
type Grant struct {
	Pod        string `json:"pod"`
	Assignment string `json:"assignment"`
}
