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
var MaxHost = vgpu.Room{MilliCPU: 1 << 50, Memory: MaxMemory}

const (
	legalAmount = "it must be from 0 to 1Pi"
	legalCPU    = "it must be from 0 to 1T"
	// maxCPU is the largest legal number of CPUs, and maxParts bounds the containers in a sum, so that sums of legal
	// amounts stay far within 64 bits.
	maxCPU   = 1e12
	maxParts = 4000
)

// Host returns what a pod requests of its host. The error is a *FieldError that names the first quantity that no host
// could offer, of whatever resource: the pod then counts with MaxHost. Host calculates with no such quantity.
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

// DefaultRequests fills in the requests of a pod that the API server would: those of a container's limits.
func DefaultRequests(pod *v1.Pod) {
	for _, containers := range [][]v1.Container{pod.Spec.InitContainers, pod.Spec.Containers} {
		for i := range containers {
			c := &containers[i].Resources
			for name, q := range c.Limits {
				if _, asks := c.Requests[name]; !asks {
					if c.Requests == nil {
						c.Requests = v1.ResourceList{}
					}
					c.Requests[name] = q
				}
			}
		}
	}
}

// BoundedHost returns what a pod on a node requests of its host, from the scheduler's sum: MaxHost where the sum may be
// wrong. The scheduler counts the lower 64 bits of a sum, so that 2^64+1 bytes are one byte there and 2^64-32Gi make a
// node's total smaller. No total shows whether that happened, only the amounts of each pod do.
func BoundedHost(pod *v1.Pod, counted vgpu.Room) vgpu.Room {
	if len(pod.Spec.InitContainers)+len(pod.Spec.Containers) > maxParts || hasAbsurdAmounts(pod) {
		return MaxHost
	}
	return vgpu.Room{
		MilliCPU: min(max(counted.MilliCPU, 0), MaxHost.MilliCPU),
		Memory:   min(max(counted.Memory, 0), MaxHost.Memory),
	}
}

// CheckAmounts returns a *FieldError that names the first quantity of a pod which no host could offer, whatever
// resource it is of. CheckAmounts calculates with none of them.
func CheckAmounts(pod *v1.Pod) error {
	if !hasAbsurdAmounts(pod) {
		return nil
	}
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

// hasAbsurdAmounts reports whether a pod has a quantity that no host could offer. The plugin calls it for all pods of a
// node whenever one of them comes or goes.
func hasAbsurdAmounts(pod *v1.Pod) bool {
	for _, list := range [][]v1.Container{pod.Spec.InitContainers, pod.Spec.Containers} {
		for i := range list {
			if hasAbsurd(list[i].Resources.Limits) || hasAbsurd(list[i].Resources.Requests) {
				return true
			}
		}
	}
	if r := pod.Spec.Resources; r != nil && (hasAbsurd(r.Limits) || hasAbsurd(r.Requests)) {
		return true
	}
	return hasAbsurd(pod.Spec.Overhead)
}

// absurdIn returns the first quantity of a list, by the resource's name, that no host could offer, or nil.
func absurdIn(path string, list v1.ResourceList) error {
	if !hasAbsurd(list) {
		return nil
	}
	for _, name := range slices.Sorted(maps.Keys(list)) {
		if q := list[name]; !isOffered(name, q) {
			return &FieldError{Field: fmt.Sprintf("%s[%s]", path, name), Value: ShownQuantity(q), Legal: legalOf(name), MustReplace: true}
		}
	}
	return nil
}

func legalOf(name v1.ResourceName) string {
	switch name {
	case v1.ResourceCPU:
		return legalCPU
	case v1alpha1.ResourceVGPU:
		return legalVGPU
	case v1alpha1.ResourceMemory:
		return legalMemory
	}
	return legalAmount
}

func hasAbsurd(list v1.ResourceList) bool {
	for name, q := range list {
		if !isOffered(name, q) {
			return true
		}
	}
	return false
}

// isOffered reports whether some host might offer as much of a resource.
func isOffered(name v1.ResourceName, q resource.Quantity) bool {
	most := int64(MaxMemory)
	if name == v1.ResourceCPU {
		most = maxCPU
	}
	if q.Sign() > 0 {
		if whole, fits := q.AsInt64(); fits { // nearly all of them; it allocates nothing
			return whole <= most
		}
	}
	return isPlain(q) && q.Sign() >= 0 && q.CmpInt64(most) <= 0
}
