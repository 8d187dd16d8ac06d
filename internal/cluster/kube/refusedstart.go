package kube

import (
	"slices"
	"strings"

	v1 "k8s.io/api/core/v1"
)

// CreateAgain ends the text with which an agent refuses to start a container where the refusal ends only with the pod: the controller knows
// such refusals by it.
const CreateAgain = "; create the pod again"

// RefusedStart returns why the agent of its node does not let a pod start, in the agent's words, where that ends only with the pod, and whether
// any container of the pod has run. The reason is "" for other pods: the kubelet writes it into the status of a container that waits.
func RefusedStart(p *v1.Pod) (why string, ran bool) {
	if p.Spec.NodeName == "" || p.Status.Phase == v1.PodSucceeded || p.Status.Phase == v1.PodFailed {
		return "", false
	}
	for _, s := range slices.Concat(p.Status.InitContainerStatuses, p.Status.ContainerStatuses) {
		ran = ran || s.State.Running != nil || s.State.Terminated != nil || s.LastTerminationState.Terminated != nil || s.RestartCount > 0
		w := s.State.Waiting
		if why != "" || w == nil || w.Reason != "CreateContainerConfigError" || !strings.HasSuffix(w.Message, CreateAgain) {
			continue
		}
		if _, text, ofPlugin := strings.Cut(w.Message, "PreStartContainer rpc failed"); ofPlugin {
			_, why, _ = strings.Cut(text, "desc = ")
		}
	}
	return why, ran
}
