package wording

import (
	"fmt"
	"strings"

	v1 "k8s.io/api/core/v1"

	"github.com/tandem-gpu/tandem/internal/cluster/kube"
	"github.com/tandem-gpu/tandem/pkg/api/v1alpha1"
)

// Shown says what of the cluster is in a snapshot.
type Shown struct {
	// LeftOut counts the pods that wait and are not in it, Redacted says that some namespaces are not.
	LeftOut  int
	Redacted bool
}

// NotStarted says what keeps a container of a pod from running: the kubelet's word and sentence. It returns "" for a pod whose containers
// run, and for one that is on its way.
func NotStarted(pod *v1.Pod) string {
	for _, list := range [][]v1.ContainerStatus{pod.Status.InitContainerStatuses, pod.Status.ContainerStatuses} {
		for i := range list {
			w := list[i].State.Waiting
			if w == nil || w.Reason == "" || w.Reason == "ContainerCreating" || w.Reason == "PodInitializing" {
				continue
			}
			text := fmt.Sprintf("container %s waits with %s", list[i].Name, w.Reason)
			if w.Message != "" {
				text += ", " + Plain(strings.TrimSuffix(w.Message, "."))
			}
			return text
		}
	}
	return ""
}

// Absent says why a pod that exists is not in the snapshot of a scheduler, whose name is that of the pods which it places.
func Absent(pod *v1.Pod, scheduler string, shown Shown) string {
	who := pod.Namespace + "/" + pod.Name
	switch {
	case pod.Status.Phase == v1.PodSucceeded || pod.Status.Phase == v1.PodFailed:
		return fmt.Sprintf("%s has ended: its phase is %s.", who, pod.Status.Phase)
	case !kube.WantsVGPU(pod):
		return fmt.Sprintf("%s asks for no %s, so that Tandem does not place it; its events say what it waits for.", who, v1alpha1.ResourceVGPU)
	case shown.Redacted && pod.Spec.SchedulerName == scheduler:
		return fmt.Sprintf("%s is not shown to you, or the snapshot is a moment older: the snapshot shows pods of namespaces in which you may list pods.", who)
	case pod.Spec.NodeName != "":
		return fmt.Sprintf("%s has the node %s, and the scheduler does not count it there: its GPUNode or its assignment is missing, or it is a moment old.", who, pod.Spec.NodeName)
	case pod.Spec.SchedulerName != scheduler:
		return fmt.Sprintf("%s waits for the scheduler %s: pods with shares of GPUs need schedulerName: %s.", who, pod.Spec.SchedulerName, scheduler)
	}
	if shown.LeftOut > 0 {
		return fmt.Sprintf("%s waits, and the snapshot has the pods that have waited longest alone: %s more wait, this one perhaps among them; its events say why.", who, Count(shown.LeftOut, "pod"))
	}
	return fmt.Sprintf("%s waits, and the scheduler's snapshot does not have it yet; ask again in a moment.", who)
}
