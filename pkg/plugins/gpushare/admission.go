package gpushare

import (
	"context"
	"fmt"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/klog/v2"

	"github.com/tandem-gpu/tandem/internal/cluster/kube"
	"github.com/tandem-gpu/tandem/pkg/api/v1alpha1"
)

// The reasons with which a kubelet refuses a pod because devices, or anything else that the scheduler counts, are
// lacking. The failure of such a pod is final. A pod's own fields can bring a kubelet to other reasons, which say
// nothing of the node.
const (
	unexpectedAdmissionError = "UnexpectedAdmissionError"
	outOf                    = "OutOf"
)

// inquiry bounds the reads of a pod that left the informer: three times, for the API server may be busy.
var inquiry = wait.Backoff{Steps: 3, Duration: 200 * time.Millisecond, Factor: 5, Jitter: 0.1}

// inquiryTimeout bounds one question.
const inquiryTimeout = 10 * time.Second

// refused returns why the kubelet refused a pod that this scheduler bound, "" where it did not. Only this scheduler can write the
// assignment: pods that a user puts on a node by hand do not count, or every tenant could keep others from a node.
func refused(pod *v1.Pod) string {
	if pod.Status.Phase != v1.PodFailed || pod.Annotations[v1alpha1.AnnotationAssignment] == "" {
		return ""
	}
	if reason := pod.Status.Reason; reason == unexpectedAdmissionError || strings.HasPrefix(reason, outOf) {
		return strings.TrimSpace(reason + ": " + pod.Status.Message)
	}
	return ""
}

// taken reports whether a pod shows that its kubelet took it: it has begun to run containers, or has ended after that.
func taken(pod *v1.Pod) bool {
	switch pod.Status.Phase {
	case v1.PodRunning, v1.PodSucceeded:
		return true
	}
	return len(pod.Status.ContainerStatuses)+len(pod.Status.InitContainerStatuses) > 0
}

// left looks at a pod that the informer does not show any more. The informer leaves out the pods that have ended, so it
// does not say how they ended: where no container had begun, left reads the pod from the API server.
func (p *Plugin) left(ctx context.Context, pod *v1.Pod) {
	node := pod.Spec.NodeName
	switch {
	case node == "" || !kube.WantsVGPU(pod) || pod.Annotations[v1alpha1.AnnotationAssignment] == "" || taken(pod):
		return
	case pod.DeletionTimestamp != nil:
		p.triedOn(node, pod, false)
		return
	}
	go func() {
		p.judge(ctx, pod, p.ended(ctx, pod))
	}()
}

// ended returns the pod after its end, nil where it is unknown.
func (p *Plugin) ended(ctx context.Context, pod *v1.Pod) *v1.Pod {
	var seen *v1.Pod
	_ = wait.ExponentialBackoffWithContext(ctx, inquiry, func(ctx context.Context) (bool, error) {
		if err := p.requests.Turn(ctx); err != nil {
			return false, err
		}
		ctx, cancel := context.WithTimeout(ctx, inquiryTimeout)
		defer cancel()
		now, err := p.requests.CoreV1().Pods(pod.Namespace).Get(ctx, pod.Name, metav1.GetOptions{})
		if err == nil && now.UID == pod.UID {
			seen = now
		}
		return err == nil || apierrors.IsNotFound(err), nil
	})
	return seen
}

// judge draws the conclusion for the node from how a pod ended; nil for a pod that is gone.
func (p *Plugin) judge(ctx context.Context, pod, ended *v1.Pod) {
	node := pod.Spec.NodeName
	if ended == nil {
		p.triedOn(node, pod, false)
		return
	}
	why := refused(ended)
	if why == "" {
		p.triedOn(node, pod, true)
		return
	}
	p.metrics.admissions.Inc()
	d := p.state.pauseNode(node, p.now())
	klog.FromContext(ctx).Info("The kubelet refused a vGPU pod", "pod", klog.KObj(pod), "node", node, "reason", why, "pause", d)
	if d == 0 || !p.leads.Load() {
		return // noted already, or by the scheduler that leads
	}
	if recorder := p.handle.EventRecorder(); recorder != nil {
		recorder.Eventf(ended, nil, v1.EventTypeWarning, "NodePaused", "Scheduling", "%s", fmt.Sprintf(
			"node %s gets no vGPU pods for %v, since its kubelet refused this one: look after the GPU agent of that node", node, d))
	}
}

// triedOn ends the trial of a pod on a node.
func (p *Plugin) triedOn(node string, pod *v1.Pod, taken bool) {
	if p.state.tried(node, kube.UIDOf(pod), taken) {
		p.pending.activate()
	}
}

// endPauses has the pods tried again that a pause kept from a node.
func (p *Plugin) endPauses(context.Context) {
	if p.state.endPauses(p.now()) {
		p.pending.activate()
	}
}
