package kube

import (
	"testing"

	v1 "k8s.io/api/core/v1"
)

func TestRefusedStart(t *testing.T) {
	const kubelet = "device plugin PreStartContainer rpc failed with err: rpc error: code = FailedPrecondition desc = "
	const lasting = "pod lab/two-18, container main: the assignment does not fit beside the pods that run: device g0 has 1 slot left" + CreateAgain
	waits := func(reason, message string) v1.ContainerStatus {
		return v1.ContainerStatus{Name: "main", State: v1.ContainerState{Waiting: &v1.ContainerStateWaiting{Reason: reason, Message: message}}}
	}
	runs := v1.ContainerStatus{Name: "side", State: v1.ContainerState{Running: &v1.ContainerStateRunning{}}}
	ended := v1.ContainerStatus{Name: "main", RestartCount: 1, State: waits("CreateContainerConfigError", kubelet+lasting).State}
	for name, c := range map[string]struct {
		phase       v1.PodPhase
		init, usual []v1.ContainerStatus
		why         string
		ran         bool
	}{
		"refused":                      {usual: []v1.ContainerStatus{waits("CreateContainerConfigError", kubelet+lasting)}, why: lasting},
		"refused as an init container": {init: []v1.ContainerStatus{waits("CreateContainerConfigError", kubelet+lasting)}, why: lasting},
		"beside one that runs":         {init: []v1.ContainerStatus{runs}, usual: []v1.ContainerStatus{waits("CreateContainerConfigError", kubelet+lasting)}, why: lasting, ran: true},
		"has run before":               {usual: []v1.ContainerStatus{ended}, why: lasting, ran: true},
		"for a while":                  {usual: []v1.ContainerStatus{waits("CreateContainerConfigError", kubelet+"pod lab/a, container main: MPS is not ready; the agent goes on trying")}},
		"by the kubelet":               {usual: []v1.ContainerStatus{waits("CreateContainerConfigError", `secret "x" not found`)}},
		"by the user's text":           {usual: []v1.ContainerStatus{waits("CreateContainerConfigError", "the Secret is missing"+CreateAgain)}},
		"an image":                     {usual: []v1.ContainerStatus{waits("ImagePullBackOff", kubelet+lasting)}},
		"failed":                       {phase: v1.PodFailed, usual: []v1.ContainerStatus{waits("CreateContainerConfigError", kubelet+lasting)}},
	} {
		p := &v1.Pod{Spec: v1.PodSpec{NodeName: "n1"}, Status: v1.PodStatus{Phase: c.phase, InitContainerStatuses: c.init, ContainerStatuses: c.usual}}
		if why, ran := RefusedStart(p); why != c.why || ran != c.ran {
			t.Errorf("%s: %q, ran %v; want %q, %v", name, why, ran, c.why, c.ran)
		}
	}
}
