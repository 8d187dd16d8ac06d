package gpushare

import (
	"context"

	v1 "k8s.io/api/core/v1"
	fwk "k8s.io/kube-scheduler/framework"

	"github.com/tandem-gpu/tandem/internal/cluster/kube"
	"github.com/tandem-gpu/tandem/internal/cluster/verdict"
)

// SignPod adds nothing to the signature of pods without scores, so that the framework may schedule equal ones in
// batches. It refuses to sign the others, since every placement changes the scores of the next.
func (p *Plugin) SignPod(_ context.Context, pod *v1.Pod) ([]fwk.SignFragment, *fwk.Status) {
	if p.scoresAll || kube.WantsVGPU(pod) {
		return nil, verdict.New(fwk.Unschedulable, "pods that nodes are scored for by their GPUs are scheduled one by one")
	}
	return nil, nil
}
