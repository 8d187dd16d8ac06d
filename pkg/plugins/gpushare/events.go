package gpushare

import (
	"context"

	v1 "k8s.io/api/core/v1"
	"k8s.io/klog/v2"
	fwk "k8s.io/kube-scheduler/framework"

	"github.com/tandem-gpu/tandem/internal/cluster/kube"
	"github.com/tandem-gpu/tandem/pkg/api/v1alpha1"
)

// EventsToRegister names the events after which the scheduler retries a pod that this plugin refused. A vGPU pod leaves a node on which
// the pod may have room now, a user corrects the pod's own annotations or its profile, a node appears, or a node's kubelet offers more
// slots. Changes of GPUNodes, of WorkloadProfiles and of what other pods promised are no events of the framework. The plugin itself
// activates the pending pods that these may help, once it has read them (see pending).
func (p *Plugin) EventsToRegister(context.Context) ([]fwk.ClusterEventWithHint, error) {
	return []fwk.ClusterEventWithHint{
		{Event: fwk.ClusterEvent{Resource: fwk.AssignedPod, ActionType: fwk.Delete}, QueueingHintFn: p.afterPodLeft},
		{Event: fwk.ClusterEvent{Resource: fwk.TargetPod, ActionType: fwk.Update}, QueueingHintFn: afterCorrection},
		{Event: fwk.ClusterEvent{Resource: fwk.Node, ActionType: fwk.Add}},
		{Event: fwk.ClusterEvent{Resource: fwk.Node, ActionType: fwk.UpdateNodeAllocatable}, QueueingHintFn: afterOffer},
	}, nil
}

func afterOffer(_ klog.Logger, _ *v1.Pod, old, updated any) (fwk.QueueingHint, error) {
	before, okBefore := old.(*v1.Node)
	now, okNow := updated.(*v1.Node)
	if !okBefore || !okNow {
		return fwk.Queue, nil
	}
	a, b := before.Status.Allocatable[v1alpha1.ResourceVGPU], now.Status.Allocatable[v1alpha1.ResourceVGPU]
	if b.Cmp(a) > 0 {
		return fwk.Queue, nil
	}
	return fwk.QueueSkip, nil
}

// corrections are the annotations with parts of a pod's request.
var corrections = []string{
	v1alpha1.AnnotationComputeLimit, v1alpha1.AnnotationMemoryLimit, v1alpha1.AnnotationModels, v1alpha1.AnnotationRate,
	v1alpha1.AnnotationMaxSlowdown, v1alpha1.AnnotationMaxLatency,
}

func afterCorrection(_ klog.Logger, pod *v1.Pod, old, updated any) (fwk.QueueingHint, error) {
	before, okBefore := old.(*v1.Pod)
	now, okNow := updated.(*v1.Pod)
	if !okBefore || !okNow {
		return fwk.Queue, nil
	}
	if now.UID != pod.UID {
		return fwk.QueueSkip, nil
	}
	for _, key := range corrections {
		a, hadIt := before.Annotations[key]
		b, hasIt := now.Annotations[key]
		if a != b || hadIt != hasIt {
			return fwk.Queue, nil
		}
	}
	if kube.AnnotationBytes(now) < kube.AnnotationBytes(before) {
		return fwk.Queue, nil // they may have left no room for an assignment
	}
	if before.Labels[v1alpha1.LabelProfile] != now.Labels[v1alpha1.LabelProfile] {
		return fwk.Queue, nil
	}
	return fwk.QueueSkip, nil
}
