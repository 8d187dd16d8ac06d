package gpushare

import (
	"context"

	v1 "k8s.io/api/core/v1"
	"k8s.io/klog/v2"
	fwk "k8s.io/kube-scheduler/framework"

	"github.com/tandem-gpu/tandem/internal/cluster/kube"
	"github.com/tandem-gpu/tandem/internal/cluster/verdict"
)

// PreEnqueue keeps pods out of the queue that request an amount of anything which no host could offer, and says so in
// an event of the pod, once. Other plugins would add such amounts up and compare them at every try, which takes seconds
// where the amount has millions of digits. The user must replace the pod: resources are immutable. PreEnqueue also
// notes the profile that a pod with vGPUs names, so that an event informs its owner where there is none, and that an attempt begins.
func (p *Plugin) PreEnqueue(ctx context.Context, pod *v1.Pod) *fwk.Status {
	err := kube.CheckAmounts(pod)
	if err == nil {
		if kube.WantsVGPU(pod) {
			p.missing.note(pod, p.now())
			p.pending.noteUnsure(pod.UID)
		}
		return nil
	}
	if recorder := p.handle.EventRecorder(); recorder != nil && p.absurd.add(kube.UIDOf(pod)) {
		p.metrics.refused("Malformed")
		recorder.WithLogger(klog.FromContext(ctx)).Eventf(pod, nil, v1.EventTypeWarning, "FailedScheduling", kube.EventAction(err.Error()), "%s", err.Error())
	}
	return verdict.New(fwk.UnschedulableAndUnresolvable, err.Error())
}
