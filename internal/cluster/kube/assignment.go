package kube

import (
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"slices"

	v1 "k8s.io/api/core/v1"
	kjson "sigs.k8s.io/json"

	"github.com/tandem-gpu/tandem/pkg/api/v1alpha1"
	"github.com/tandem-gpu/tandem/pkg/vgpu"
)

// ErrNoAssignment is what AssignmentOf returns for a pod without the annotation.
var ErrNoAssignment = errors.New("the pod carries no assignment")

// milliPerPercent converts compute between the ledger and the annotation.
const milliPerPercent = int64(vgpu.WholeGPU) / 100

// EncodeAssignment returns the value of the annotation v1alpha1.AnnotationAssignment. The same assignment gives the
// same text. It returns an error where DecodeAssignment would, and for a compute limit that is no whole percent.
func EncodeAssignment(a vgpu.Assignment) (string, error) {
	out := v1alpha1.Assignment{Version: v1alpha1.AssignmentVersion, UID: string(a.UID), Node: a.Node}
	for _, c := range a.Containers {
		if c.Share.Slots > math.MaxInt32 || c.Asked > math.MaxInt32 {
			return "", fmt.Errorf("encode assignment of pod %s: container %s: %d slots on a device, %d asked for",
				a.Pod, c.Name, c.Share.Slots, c.Asked)
		}
		if int64(c.Share.ComputeLimit)%milliPerPercent != 0 {
			return "", fmt.Errorf("encode assignment of pod %s: container %s: compute limit %d is no whole percent",
				a.Pod, c.Name, int64(c.Share.ComputeLimit))
		}
		devices := make([]string, len(c.Devices))
		for i, id := range c.Devices {
			devices[i] = string(id)
		}
		slices.Sort(devices)
		out.Containers = append(out.Containers, v1alpha1.ContainerAssignment{
			Name:                c.Name,
			Devices:             devices,
			Slots:               int32(c.Share.Slots),
			AskedSlots:          int32(c.Asked),
			MemoryBytes:         int64(c.Share.Memory),
			ComputeLimitPercent: int32(int64(c.Share.ComputeLimit) / milliPerPercent),
			MemoryLimitBytes:    int64(c.Share.MemoryLimit),
		})
	}
	if err := validate(&out); err != nil {
		return "", fmt.Errorf("encode assignment of pod %s: %w", a.Pod, err)
	}
	raw, err := json.Marshal(out)
	if err != nil {
		return "", fmt.Errorf("encode assignment of pod %s: %w", a.Pod, err)
	}
	return string(raw), nil
}

// DecodeAssignment parses the value of the annotation strictly: unknown or repeated fields, another version and values
// out of range are errors. The check of the assignment against its pod is AssignmentOf.
func DecodeAssignment(raw string) (v1alpha1.Assignment, error) {
	var a v1alpha1.Assignment
	strict, err := kjson.UnmarshalStrict([]byte(raw), &a)
	if err == nil {
		err = errors.Join(strict...)
	}
	if err == nil {
		err = validate(&a)
	}
	if err != nil {
		return v1alpha1.Assignment{}, fmt.Errorf("decode assignment: %w", err)
	}
	return a, nil
}

func validate(a *v1alpha1.Assignment) error {
	switch {
	case a.Version != v1alpha1.AssignmentVersion:
		return fmt.Errorf("version %d, this release reads %d", a.Version, v1alpha1.AssignmentVersion)
	case a.UID == "":
		return errors.New("uid is empty")
	case a.Node == "":
		return errors.New("node is empty")
	case len(a.Containers) == 0:
		return errors.New("containers is empty")
	}
	names := make(map[string]bool, len(a.Containers))
	for i := range a.Containers {
		c := &a.Containers[i]
		if err := validateContainer(c); err != nil {
			return fmt.Errorf("containers[%d]: %w", i, err)
		}
		if names[c.Name] {
			return fmt.Errorf("containers[%d]: the name %q stands twice", i, Shown(c.Name))
		}
		if c.AskedSlots > 0 && len(a.Containers) > 1 {
			return fmt.Errorf("containers[%d]: askedSlots %d is for pods of one container with slots", i, c.AskedSlots)
		}
		names[c.Name] = true
	}
	return nil
}

func validateContainer(c *v1alpha1.ContainerAssignment) error {
	switch {
	case c.Name == "":
		return errors.New("name is empty")
	case len(c.Devices) == 0 || len(c.Devices) > MaxDevices:
		return fmt.Errorf("%d devices are not from 1 to %d", len(c.Devices), MaxDevices)
	case c.Slots < 1 || c.Slots > maxSlots:
		return fmt.Errorf("slots %d are not from 1 to %d", c.Slots, maxSlots)
	case c.AskedSlots < 0 || c.AskedSlots > 0 && int64(c.AskedSlots) >= int64(c.Slots)*int64(len(c.Devices)):
		return fmt.Errorf("askedSlots %d are not from 1 to less than the slots given", c.AskedSlots)
	case c.MemoryBytes < 0 || c.MemoryBytes > MaxMemory:
		return fmt.Errorf("memoryBytes %d is not from 0 to 1Pi", c.MemoryBytes)
	case c.ComputeLimitPercent < 1 || c.ComputeLimitPercent > 100:
		return fmt.Errorf("computeLimitPercent %d is not from 1 to 100", c.ComputeLimitPercent)
	case c.MemoryLimitBytes < c.MemoryBytes || c.MemoryLimitBytes > MaxMemory:
		return fmt.Errorf("memoryLimitBytes %d is not from memoryBytes %d to 1Pi", c.MemoryLimitBytes, c.MemoryBytes)
	}
	for i, id := range c.Devices {
		if id == "" {
			return fmt.Errorf("devices[%d] is empty", i)
		}
		if i > 0 && c.Devices[i-1] >= id {
			return errors.New("devices are not sorted or stand twice")
		}
	}
	return nil
}

// AssignmentOf returns the assignment that a bound pod carries. The assignment counts only where it agrees with the
// pod: UID, node, and for every container with slots their number and an explicit memory. CheckAssignment checks what
// needs the node's devices. Annotations that users may change after the binding do not count. The pod's annotation
// gives the slowdown that the pod tolerates. A malformed one means any slowdown, since the pod runs already.
//
// The error is ErrNoAssignment for a pod without the annotation; otherwise it says what disagrees.
func AssignmentOf(pod *v1.Pod) (vgpu.Assignment, error) {
	raw, ok := pod.Annotations[v1alpha1.AnnotationAssignment]
	if !ok {
		return vgpu.Assignment{}, ErrNoAssignment
	}
	a, err := assignmentOf(pod, raw)
	if err != nil {
		return vgpu.Assignment{}, fmt.Errorf("read assignment of pod %s/%s: %w", pod.Namespace, pod.Name, err)
	}
	return a, nil
}

func assignmentOf(pod *v1.Pod, raw string) (vgpu.Assignment, error) {
	decoded, err := DecodeAssignment(raw)
	if err != nil {
		return vgpu.Assignment{}, err
	}
	asked, err := Containers(pod)
	switch {
	case err != nil:
		return vgpu.Assignment{}, err
	case decoded.UID != string(pod.UID):
		return vgpu.Assignment{}, fmt.Errorf("it is for the UID %q, the pod has %q", Shown(decoded.UID), pod.UID)
	case decoded.Node != pod.Spec.NodeName:
		return vgpu.Assignment{}, fmt.Errorf("it is for node %q, the pod is on %q", Shown(decoded.Node), pod.Spec.NodeName)
	case len(decoded.Containers) != len(asked):
		return vgpu.Assignment{}, fmt.Errorf("it names %d containers, %d ask for slots", len(decoded.Containers), len(asked))
	}
	a := vgpu.Assignment{UID: vgpu.UID(decoded.UID), Pod: pod.Namespace + "/" + pod.Name, Node: decoded.Node}
	if slowdown, err := MaxSlowdown(pod); err == nil {
		a.MaxSlowdown = slowdown
	}
	for i := range asked {
		c := &decoded.Containers[i]
		if err := agrees(&asked[i], c); err != nil {
			return vgpu.Assignment{}, fmt.Errorf("container %s: %w", asked[i].Name, err)
		}
		a.Containers = append(a.Containers, containerAssignment(c, asked[i].Kind))
	}
	return a, nil
}

// agrees compares a container's part of an assignment with the container's request.
func agrees(want *vgpu.ContainerRequest, have *v1alpha1.ContainerAssignment) error {
	n := int64(len(have.Devices))
	if have.Name != want.Name {
		return fmt.Errorf("the assignment names %q in its place", Shown(have.Name))
	}
	slots := int64(have.Slots) * n
	if have.AskedSlots > 0 { // a wanted rate gave it more
		slots = int64(have.AskedSlots)
	}
	if slots != int64(want.Slots) {
		return fmt.Errorf("the assignment has %d slots, the container asks for %d", slots, want.Slots)
	}
	// A request names the memory as a sum over the devices, and the division rounds up, so the memory may exceed the
	// sum by less than a byte per device.
	if memory := have.MemoryBytes * n; want.Memory > 0 && (memory < int64(want.Memory) || memory >= int64(want.Memory)+n) {
		return fmt.Errorf("the assignment has %d bytes, the container asks for %d", memory, want.Memory)
	}
	return nil
}

func containerAssignment(c *v1alpha1.ContainerAssignment, kind vgpu.ContainerKind) vgpu.ContainerAssignment {
	devices := make([]vgpu.DeviceID, len(c.Devices))
	for i, id := range c.Devices {
		devices[i] = vgpu.DeviceID(id)
	}
	return vgpu.ContainerAssignment{
		Name: c.Name, Kind: kind, Devices: devices, Asked: vgpu.Slots(c.AskedSlots),
		Share: vgpu.Share{
			Devices: len(devices), Slots: vgpu.Slots(c.Slots), Memory: vgpu.Bytes(c.MemoryBytes),
			ComputeLimit: vgpu.MilliGPU(int64(c.ComputeLimitPercent) * milliPerPercent),
			MemoryLimit:  vgpu.Bytes(c.MemoryLimitBytes),
		},
	}
}
