package gpugang

import (
	"context"

	v1 "k8s.io/api/core/v1"
	fwk "k8s.io/kube-scheduler/framework"

	"github.com/tandem-gpu/tandem/internal/cluster/verdict"
)

// SignPod adds nothing to the signature of pods outside of gangs, so that the framework may schedule equal ones in
// batches. It refuses to sign members, since each has a place of its own.
func (p *Plugin) SignPod(_ context.Context, pod *v1.Pod) ([]fwk.SignFragment, *fwk.Status) {
	if _, ok := p.gangs.Of(pod); ok {
		return nil, verdict.New(fwk.Unschedulable, "members of gangs are placed together")
	}
	return nil, nil
}
