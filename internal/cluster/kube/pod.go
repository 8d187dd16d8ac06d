package kube

import (
	v1 "k8s.io/api/core/v1"

	"github.com/tandem-gpu/tandem/pkg/vgpu"
)

// UIDOf returns the UID of a pod as core has it.
func UIDOf(pod *v1.Pod) vgpu.UID { return vgpu.UID(pod.UID) }

// PathOf returns "namespace/name" of a pod.
func PathOf(pod *v1.Pod) string {
	if pod.Namespace == "" {
		return pod.Name
	}
	return pod.Namespace + "/" + pod.Name
}
