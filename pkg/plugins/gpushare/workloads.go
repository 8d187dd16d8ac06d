package gpushare

import (
	v1 "k8s.io/api/core/v1"

	"github.com/tandem-gpu/tandem/internal/cluster/kube"
	"github.com/tandem-gpu/tandem/internal/cluster/learning"
	"github.com/tandem-gpu/tandem/internal/cluster/workloads"
	"github.com/tandem-gpu/tandem/pkg/interference"
	"github.com/tandem-gpu/tandem/pkg/vgpu"
)

// complete fills in the parts of a request that depend on its workload: its number, where the workload is known, and what the curves say: see
// workloads.Curves.Complete. Callers may hold the lock of the state for reading, so complete does not take it: a second lock for reading would
// wait for a writer that waits for the first one.
func (s *state) complete(pod *v1.Pod, r *vgpu.Request, know *learning.Snapshot, offers []vgpu.Offer) error {
	if len(r.Containers) == 0 {
		return nil
	}
	number := know.Number(pod)
	if know.Known(number) {
		r.Workload = uint32(number)
	}
	return s.curves.Complete(pod, r, know.Workload(number), offers)
}

// tooLittle is workloads.TooLittle for the workload of a request.
func tooLittle(pod *v1.Pod, r *vgpu.Request, know *learning.Snapshot, offers []vgpu.Offer) *kube.FieldError {
	return workloads.TooLittle(pod, r, know.Workload(interference.Workload(r.Workload)), offers)
}
