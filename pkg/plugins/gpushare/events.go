package gpushare

import (
	"context"

	v1 "k8s.io/api/core/v1"
	utilfeature "k8s.io/apiserver/pkg/util/feature"
	"k8s.io/klog/v2"
	fwk "k8s.io/kube-scheduler/framework"
	"k8s.io/kubernetes/pkg/features"

	"github.com/tandem-gpu/tandem/internal/cluster/kube"
	"github.com/tandem-gpu/tandem/pkg/api/v1alpha1"
)

// EventsToRegister names the events after which the scheduler retries a pod that this plugin refused. A vGPU pod leaves a node on which
// the pod may have room now, a user corrects the pod's own annotations or its profile, a node appears, or a node's kubelet offers more
// slots. Changes of GPUNodes, of WorkloadProfiles and of what other pods promised are no events of the framework. The plugin itself
// activates the pending pods that these may help, once it has read them (see pending). The arrival of a pod helps no pod that this plugin
// refused. It is here so that the framework does not walk through all waiting pods (see whoMayJoin).
func (p *Plugin) EventsToRegister(context.Context) ([]fwk.ClusterEventWithHint, error) {
	events := []fwk.ClusterEventWithHint{
		{Event: fwk.ClusterEvent{Resource: fwk.AssignedPod, ActionType: fwk.Delete}, QueueingHintFn: p.afterPodLeft, PreQueueingHintFn: p.whoMayGain},
		{Event: fwk.ClusterEvent{Resource: fwk.TargetPod, ActionType: fwk.Update}, QueueingHintFn: afterCorrection},
		{Event: fwk.ClusterEvent{Resource: fwk.Node, ActionType: fwk.Add}},
		{Event: fwk.ClusterEvent{Resource: fwk.Node, ActionType: fwk.UpdateNodeAllocatable}, QueueingHintFn: afterOffer},
	}
	if utilfeature.DefaultFeatureGate.Enabled(features.SchedulerPreQueueingHints) {
		events = append(events, fwk.ClusterEventWithHint{
			Event: fwk.ClusterEvent{Resource: fwk.AssignedPod, ActionType: fwk.Add}, QueueingHintFn: afterPodCame, PreQueueingHintFn: p.whoMayJoin,
		})
	}
	return events, nil
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
