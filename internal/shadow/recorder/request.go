package recorder

import (
	"errors"
	"fmt"
	"slices"
	"strconv"

	v1 "k8s.io/api/core/v1"

	"github.com/tandem-gpu/tandem/internal/cluster/kube"
	"github.com/tandem-gpu/tandem/pkg/vgpu"
)

// mostGPUs bounds the GPUs that a container may ask for.
const mostGPUs = kube.MaxDevices

// requestOf returns the request of a pod: of vGPUs, or of whole GPUs. It has no containers for a pod without either.
func requestOf(pod *v1.Pod) (vgpu.Request, error) {
	r, err := kube.Request(pod)
	if err != nil {
		return r, err
	}
	whole, err := wholeGPUs(pod)
	switch {
	case err != nil:
		return r, err
	case len(whole) > 0 && len(r.Containers) > 0:
		return r, errors.New("the pod asks for vGPUs and for whole GPUs")
	case len(whole) > 0:
		r.Containers = whole
	}
	if len(r.Containers) > 0 {
		r.Host, err = kube.Host(pod)
	}
	return r, err
}

// wholeGPUs returns the containers that ask for whole GPUs, init containers and sidecars first.
func wholeGPUs(pod *v1.Pod) ([]vgpu.ContainerRequest, error) {
	all := make([]vgpu.ContainerRequest, 0, len(pod.Spec.Containers))
	for _, c := range slices.Concat(pod.Spec.InitContainers, pod.Spec.Containers) {
		q, asks := c.Resources.Limits[resourceGPU]
		if !asks || q.IsZero() {
			continue
		}
		k, ok := kube.Whole(q, mostGPUs)
		if !ok {
			return nil, fmt.Errorf("container %s asks for %s %s, legal is a whole number from 1 to %d", c.Name, kube.ShownQuantity(q), resourceGPU, mostGPUs)
		}
		all = append(all, vgpu.ContainerRequest{Name: c.Name, Kind: kindOf(pod, c.Name), Slots: vgpu.Slots(k) * slots})
	}
	return all, nil
}

// kindOf says when a container of a pod runs.
func kindOf(pod *v1.Pod, name string) vgpu.ContainerKind {
	at := slices.IndexFunc(pod.Spec.InitContainers, func(c v1.Container) bool { return c.Name == name })
	if at < 0 {
		return vgpu.App
	}
	if p := pod.Spec.InitContainers[at].RestartPolicy; p != nil && *p == v1.ContainerRestartPolicyAlways {
		return vgpu.Sidecar
	}
	return vgpu.Init
}

// shareOf returns the request that Tandem would have placed where the pod's owner says that a part of its one GPU is enough: by an
// annotation, in tenths of a GPU. It is nil where the owner says nothing, and an error where that makes no sense.
func shareOf(pod *v1.Pod, r *vgpu.Request, annotation string) (*vgpu.Request, error) {
	value, said := pod.Annotations[annotation]
	if annotation == "" || !said {
		return nil, nil
	}
	k, err := strconv.Atoi(value)
	if err != nil || k < 1 || k >= slots {
		return nil, fmt.Errorf("annotation %s is %q, legal is a whole number of tenths of a GPU from 1 to %d", annotation, kube.Shown(value), slots-1)
	}
	if len(r.Containers) != 1 || r.Containers[0].Slots != slots {
		return nil, fmt.Errorf("annotation %s is for pods of which one container asks for one %s", annotation, resourceGPU)
	}
	share := *r
	share.Containers = []vgpu.ContainerRequest{r.Containers[0]}
	share.Containers[0].Slots = vgpu.Slots(k)
	return &share, nil
}
