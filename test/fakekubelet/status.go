package fakekubelet

import (
	"context"

	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/util/retry"
	"k8s.io/klog/v2"
)

// writeStatus changes the status of a pod in the API server. A pod that is gone needs none. Errors are logged.
func (k *Kubelet) writeStatus(ctx context.Context, pod *v1.Pod, change func(*v1.PodStatus)) error {
	pods := k.config.Client.CoreV1().Pods(pod.Namespace)
	err := retry.RetryOnConflict(retry.DefaultBackoff, func() error {
		now, err := pods.Get(ctx, pod.Name, metav1.GetOptions{})
		if err != nil {
			return err
		}
		if now.UID != pod.UID {
			return nil
		}
		change(&now.Status)
		_, err = pods.UpdateStatus(ctx, now, metav1.UpdateOptions{})
		return err
	})
	if apierrors.IsNotFound(err) {
		return nil
	}
	if err != nil && ctx.Err() == nil {
		klog.FromContext(ctx).Error(err, "Update pod status", "pod", klog.KObj(pod))
	}
	return err
}

// keepWriting writes a status again and again until it is written, or ctx ends.
func (k *Kubelet) keepWriting(ctx context.Context, pod *v1.Pod, change func(*v1.PodStatus)) {
	again(ctx, func() error { return k.writeStatus(ctx, pod, change) })
}

// again tries until it succeeds, or ctx ends, and reports which. The API server refuses the first requests about a pod where its authorizer of
// nodes does not know yet that the pod is on this node.
func again(ctx context.Context, try func() error) bool {
	for wait := firstRetry; try() != nil; wait = min(2*wait, lastRetry) {
		if !pause(ctx, wait) {
			return false
		}
	}
	return true
}

// fill sets phase, conditions and container statuses from what runs.
func (k *Kubelet) fill(status *v1.PodStatus, pod *v1.Pod, failures map[string]failure) {
	status.InitContainerStatuses, status.ContainerStatuses = nil, nil
	all := true
	for _, c := range containersOf(pod) {
		s := k.containerStatus(pod, c, failures)
		all = all && (s.State.Running != nil || s.State.Terminated != nil)
		if c.kind == app {
			status.ContainerStatuses = append(status.ContainerStatuses, s)
		} else {
			status.InitContainerStatuses = append(status.InitContainerStatuses, s)
		}
	}
	status.Phase = v1.PodPending
	ready := v1.ConditionFalse
	if all {
		status.Phase, ready = v1.PodRunning, v1.ConditionTrue
		k.address(status, pod)
	}
	if status.StartTime == nil {
		now := metav1.Now()
		status.StartTime = &now
	}
	for _, kind := range []v1.PodConditionType{v1.PodInitialized, v1.ContainersReady, v1.PodReady} {
		setCondition(status, kind, ready)
	}
}

// address gives a pod its address, once.
func (k *Kubelet) address(status *v1.PodStatus, pod *v1.Pod) {
	if k.config.Address == nil || status.PodIP != "" {
		return
	}
	if ip := k.config.Address(pod); ip != "" {
		status.PodIP, status.PodIPs = ip, []v1.PodIP{{IP: ip}}
	}
}

func (k *Kubelet) containerStatus(pod *v1.Pod, c container, failures map[string]failure) v1.ContainerStatus {
	s := v1.ContainerStatus{Name: c.Name, Image: c.Image}
	if f, failed := failures[c.Name]; failed {
		s.State.Waiting = &v1.ContainerStateWaiting{Reason: f.reason, Message: f.message}
		return s
	}
	started, ok := k.runtime.started(string(pod.UID), c.Name)
	if !ok {
		s.State.Waiting = &v1.ContainerStateWaiting{Reason: "PodInitializing"}
		return s
	}
	s.Ready = true
	at := metav1.NewTime(started)
	if c.kind == ordinaryInit {
		s.State.Terminated = &v1.ContainerStateTerminated{Reason: "Completed", StartedAt: at, FinishedAt: at}
		return s
	}
	isStarted := true
	s.Started = &isStarted
	s.State.Running = &v1.ContainerStateRunning{StartedAt: at}
	return s
}

func setCondition(status *v1.PodStatus, kind v1.PodConditionType, value v1.ConditionStatus) {
	for i := range status.Conditions {
		c := &status.Conditions[i]
		if c.Type != kind {
			continue
		}
		if c.Status != value {
			c.Status, c.LastTransitionTime = value, metav1.Now()
		}
		return
	}
	status.Conditions = append(status.Conditions, v1.PodCondition{Type: kind, Status: value, LastTransitionTime: metav1.Now()})
}
