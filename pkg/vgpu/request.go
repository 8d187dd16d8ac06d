package vgpu

import (
	"errors"
	"fmt"
)

// NoSlowdown is the slowdown of a pod that is as fast as alone, in thousandths.
const NoSlowdown = 1000

// UID identifies a pod.
type UID string

// ContainerKind says when a container of a pod runs.
type ContainerKind int

const (
	// App containers run together.
	App ContainerKind = iota
	// Init containers run one after the other, before the app containers.
	Init
	// Sidecar containers are restartable init containers: each runs from its turn among the init containers to the
	// end of the pod.
	Sidecar
)

// MaxContainers is the most containers of a pod that may ask for slots: one for each GPU of the largest nodes. More of them cost time in each attempt to
// place the pod.
const MaxContainers = 16

// Request is the request of one pod.
type Request struct {
	UID UID
	// Pod is "namespace/name", for users.
	Pod string
	// Priority decides which holds count: those of a lower priority do not.
	Priority int32
	// Ends is the Unix time in seconds at which the pod ends by itself if it starts now, 0 where it may run for ever.
	Ends int64
	// Containers with slots, init containers and sidecars first, in the pod's order.
	Containers []ContainerRequest
	// ComputeLimit is the compute that a container may burst to, 0 for its request.
	ComputeLimit MilliGPU
	// MemoryLimit is the device memory per device that a container may burst to, 0 for its request.
	MemoryLimit Bytes
	// Variants are the GPU models that the pod may use, up to MaxVariants; empty for any. Placement prefers the least
	// Cost.
	Variants []Variant
	// Tenancy is what the pod's neighbours need to know of it.
	Tenancy
	// Preferences say on which GPU models the pod does less work than on others. Other models lose nothing. Unlike
	// Variants they forbid no model.
	Preferences []Preference
	// Steps bounds a search for an arrangement of several containers on one node, 0 for the default of package placement. One that looks at many
	// nodes for the pod divides its steps among them.
	Steps int
	// Host is the CPU and memory in the pod's request. Fit does not count it, since other plugins of the scheduler do;
	// some policies do.
	Host Room
}

// Tenancy is what neighbours on a device need to know of a pod.
type Tenancy struct {
	// Workload is the number of the workload in the predictions of interference; 0 is an unknown workload.
	Workload uint32
	// MaxSlowdown is the slowdown beside neighbours that the pod tolerates, in thousandths of the time without: 1200 is
	// 1.2. The value is 1000 or more; 0 tolerates any.
	MaxSlowdown int64
}

// Preference says which part of a device's worth the pod loses on a model.
type Preference struct {
	Model string
	// Loss in thousandths of the share, 0 to WholeGPU: 0 for the model on which the pod does the most work.
	Loss MilliGPU
}

// Loss returns the part of the share that the pod loses on a model, in thousandths.
func (r *Request) Loss(model string) MilliGPU {
	for i := range r.Preferences {
		if r.Preferences[i].Model == model {
			return r.Preferences[i].Loss
		}
	}
	return 0
}

// ContainerRequest is the request of one container.
type ContainerRequest struct {
	Name string
	Kind ContainerKind
	// Slots of the container, ≥ 1.
	Slots Slots
	// Memory of the container, added up over its devices; 0 for memory in proportion to the slots.
	Memory Bytes
}

// Validate returns an error for a broken request. A request that is too large for any device is legal here.
func (r *Request) Validate() error {
	switch {
	case r.UID == "":
		return errors.New("validate request: no UID")
	case len(r.Containers) == 0:
		return fmt.Errorf("validate request of pod %s: no container asks for slots", r.Pod)
	case r.ComputeLimit < 0:
		return fmt.Errorf("validate request of pod %s: compute limit %d is negative", r.Pod, r.ComputeLimit)
	case r.MemoryLimit < 0:
		return fmt.Errorf("validate request of pod %s: memory limit %d is negative", r.Pod, r.MemoryLimit)
	}
	if r.MaxSlowdown != 0 && r.MaxSlowdown < NoSlowdown {
		return fmt.Errorf("validate request of pod %s: max-slowdown %d is below %d, no slowdown at all", r.Pod, r.MaxSlowdown, NoSlowdown)
	}
	for i := range r.Preferences {
		if p := &r.Preferences[i]; p.Loss < 0 || p.Loss > WholeGPU {
			return fmt.Errorf("validate request of pod %s: loss %d on model %s, legal is 0 to %d", r.Pod, p.Loss, p.Model, WholeGPU)
		}
	}
	names, apps := map[string]bool{}, false
	for i := range r.Containers {
		c := &r.Containers[i]
		if err := c.validate(names, apps); err != nil {
			return fmt.Errorf("validate request of pod %s: %w", r.Pod, err)
		}
		names[c.Name], apps = true, apps || c.Kind == App
	}
	if err := r.validateVariants(); err != nil {
		return fmt.Errorf("validate request of pod %s: %w", r.Pod, err)
	}
	return nil
}

func (c *ContainerRequest) validate(names map[string]bool, apps bool) error {
	switch {
	case names[c.Name]:
		return fmt.Errorf("container %q appears twice", c.Name)
	case c.Kind != App && c.Kind != Init && c.Kind != Sidecar:
		return fmt.Errorf("container %q has the unknown kind %d", c.Name, c.Kind)
	case c.Kind != App && apps:
		return fmt.Errorf("container %q runs before the app containers and is listed after one", c.Name)
	case c.Slots < 1:
		return fmt.Errorf("container %q asks for %d slots", c.Name, c.Slots)
	case c.Memory < 0:
		return fmt.Errorf("container %q asks for %d bytes", c.Name, c.Memory)
	}
	return nil
}

// PeakSlots returns the most slots in the requests of the pod's containers at one time, which is also what the kubelet
// gives to the pod at most. Example: an init container of 4 before app containers of 3 and 2 needs 5.
func (r *Request) PeakSlots() Slots {
	var p Peak
	for i := range r.Containers {
		p.Add(r.Containers[i].Kind, Use{Slots: r.Containers[i].Slots})
	}
	return p.Use().Slots
}
