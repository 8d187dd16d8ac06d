package kube

import (
	"fmt"
	"maps"
	"slices"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	componentresource "k8s.io/component-helpers/resource"

	"github.com/tandem-gpu/tandem/pkg/api/v1alpha1"
	"github.com/tandem-gpu/tandem/pkg/vgpu"
)

// MaxHost is the most of a host that one pod counts for: a trillion cores, and a pebibyte of memory. No host has as much, and
// sums over thousands of pods stay within 64 bits.
var MaxHost = vgpu.Room{MilliCPU: 1 << 50, Memory: maxMemory}

const legalAmount = "it must be from 0 to 1Pi"

// Host returns what a pod asks of its host. The error is a *FieldError that names the first quantity that no host could offer,
// whatever resource it is of: the pod is then taken to ask for MaxHost. Such quantities are not calculated with.
func Host(pod *v1.Pod) (vgpu.Room, error) {
	if err := CheckAmounts(pod); err != nil {
		return MaxHost, err
	}
	requests := componentresource.PodRequests(pod, componentresource.PodResourcesOptions{})
	return vgpu.Room{
		MilliCPU: amountOf(*requests.Cpu(), resource.Milli, MaxHost.MilliCPU),
		Memory:   vgpu.Bytes(amountOf(*requests.Memory(), 0, int64(MaxHost.Memory))),
	}, nil
}

// BoundedHost returns what the scheduler counted for a pod, from 0 to MaxHost. It counts without a bound, so that a negative
// amount is one beyond 64 bits.
func BoundedHost(counted vgpu.Room) vgpu.Room {
	if counted.MilliCPU < 0 || counted.MilliCPU > MaxHost.MilliCPU {
		counted.MilliCPU = MaxHost.MilliCPU
	}
	if counted.Memory < 0 || counted.Memory > MaxHost.Memory {
		counted.Memory = MaxHost.Memory
	}
	return counted
}

// CheckAmounts returns a *FieldError that names the first quantity of a pod which no host could offer, whatever resource it is of.
// It calculates with none of them.
func CheckAmounts(pod *v1.Pod) error {
	for _, list := range []struct {
		name       string
		containers []v1.Container
	}{{"initContainers", pod.Spec.InitContainers}, {"containers", pod.Spec.Containers}} {
		for i := range list.containers {
			r := &list.containers[i].Resources
			path := fmt.Sprintf("spec.%s[%d].resources", list.name, i)
			if err := absurdIn(path+".limits", r.Limits); err != nil {
				return err
			}
			if err := absurdIn(path+".requests", r.Requests); err != nil {
				return err
			}
		}
	}
	if r := pod.Spec.Resources; r != nil {
		if err := absurdIn("spec.resources.limits", r.Limits); err != nil {
			return err
		}
		if err := absurdIn("spec.resources.requests", r.Requests); err != nil {
			return err
		}
	}
	return absurdIn("spec.overhead", pod.Spec.Overhead)
}

// absurdIn returns the first quantity of a list, by the resource's name, that no host could offer, or nil.
func absurdIn(path string, list v1.ResourceList) error {
	if !hasAbsurd(list) {
		return nil
	}
	for _, name := range slices.Sorted(maps.Keys(list)) {
		if q := list[name]; !isOffered(q) {
			return &FieldError{Field: fmt.Sprintf("%s[%s]", path, name), Value: shownQuantity(q), Legal: legalOf(name), MustReplace: true}
		}
	}
	return nil
}

func legalOf(name v1.ResourceName) string {
	switch name {
	case v1alpha1.ResourceVGPU:
		return legalVGPU
	case v1alpha1.ResourceMemory:
		return legalMemory
	}
	return legalAmount
}

func hasAbsurd(list v1.ResourceList) bool {
	for _, q := range list {
		if !isOffered(q) {
			return true
		}
	}
	return false
}

// isOffered reports whether some host might offer as much of a resource.
func isOffered(q resource.Quantity) bool {
	return isPlain(q) && q.Sign() >= 0 && q.CmpInt64(maxMemory) <= 0
}
