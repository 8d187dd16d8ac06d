package kube

import (
	"fmt"
	"regexp"
	"strconv"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/tandem-gpu/tandem/pkg/api/v1alpha1"
	"github.com/tandem-gpu/tandem/pkg/vgpu"
)

const (
	// MaxDevices is the most devices that the GPUNode schema admits on a node.
	MaxDevices = 128

	// maxSlots is the largest request of a container: a node of maxDevices with the 1,000 slots that the schema admits.
	// The bound keeps sums over a pod's containers far from overflow.
	maxSlots = MaxDevices * 1000

	// MaxMemory is the largest request of one container for device memory: 1 PiB, some four thousand of the largest
	// devices. The bound keeps sums over a pod's containers far from overflow.
	MaxMemory = 1 << 50
)

const (
	legalContainers = "at most 16 containers of a pod may ask for vGPUs, init containers included"

	legalVGPU    = "it must be a whole number of slots from 1 to 128000"
	legalMemory  = "it must be a whole number of bytes from 1 to 1Pi"
	legalCompute = "it must be a whole number of percent of a device from 1 to 100, without a sign or unit"
	legalLimit   = "it must be a quantity of whole bytes per device from 1 to 1Pi, for example 8Gi"
)

// quantityForm is the legal form of a memory limit: a quantity without a sign and with at most two digits of exponent.
// resource.ParseQuantity accepts exponents of nine digits, which take minutes to compare.
var quantityForm = regexp.MustCompile(`^[0-9]{1,18}(\.[0-9]{1,18})?([kMGTP]|[KMGTP]i|[eE][0-9]{1,2})?$`)

// WantsVGPU reports whether any container of the pod requests vGPUs or their memory.
func WantsVGPU(pod *v1.Pod) bool {
	return AnyWants(pod.Spec.InitContainers) || AnyWants(pod.Spec.Containers)
}

// AnyWants reports whether one of the containers requests vGPUs or their memory.
func AnyWants(containers []v1.Container) bool {
	for i := range containers {
		limits := containers[i].Resources.Limits
		if len(limits) == 0 {
			continue
		}
		if q, ok := limits[v1alpha1.ResourceVGPU]; ok && !q.IsZero() {
			return true
		}
		if q, ok := limits[v1alpha1.ResourceMemory]; ok && !q.IsZero() {
			return true
		}
	}
	return false
}

// Request returns the request of a pod. The error is a *FieldError that names the first wrong field: first of the init
// containers, then of the others, then of the annotations. The result has no containers for a pod without vGPUs.
//
// The caller sets the workload (vgpu.Tenancy.Workload), which needs more than the pod. The models of
// v1alpha1.AnnotationModels are its variants. A wanted rate or latency is read by WantedRate and WantedLatency, since
// what it takes depends on throughputs. A limit of zero is no request. Request does not read the annotations of a pod
// without vGPUs.
func Request(pod *v1.Pod) (vgpu.Request, error) {
	r := vgpu.Request{UID: vgpu.UID(pod.UID), Pod: pod.Namespace + "/" + pod.Name}
	if pod.Spec.Priority != nil {
		r.Priority = *pod.Spec.Priority
	}
	var err error
	if r.Containers, err = Containers(pod); err != nil || len(r.Containers) == 0 {
		return r, err
	}
	if n := len(r.Containers); n > vgpu.MaxContainers {
		return r, &FieldError{Field: "spec.containers", Value: strconv.Itoa(n), Legal: legalContainers, MustReplace: true}
	}
	if r.ComputeLimit, err = computeLimit(pod); err != nil {
		return r, err
	}
	if r.MemoryLimit, err = memoryLimit(pod); err != nil {
		return r, err
	}
	if r.MaxSlowdown, err = MaxSlowdown(pod); err != nil {
		return r, err
	}
	r.Variants, err = variants(pod)
	return r, err
}

// WholeRequest is Request with what the pod asks of its host, and with its end where it runs from now on. The error also says that the
// annotations leave no room for an assignment.
func WholeRequest(pod *v1.Pod, now time.Time) (vgpu.Request, error) {
	r, err := Request(pod)
	var absurd error
	if r.Host, absurd = Host(pod); err == nil {
		err = absurd
	}
	if err == nil && len(r.Containers) > 0 {
		err = CheckAnnotations(pod, LargestAssignment(&r))
	}
	if longest, is := LongestRun(pod); is {
		r.Ends = vgpu.Sum(now.Unix(), longest)
	}
	return r, err
}

// Containers returns the containers with slots, init containers and sidecars first. Containers reads no annotation: a
// user may have changed those of a running pod. The error is a *FieldError.
func Containers(pod *v1.Pod) ([]vgpu.ContainerRequest, error) {
	var all []vgpu.ContainerRequest
	add := func(path string, c *v1.Container, kind vgpu.ContainerKind) error {
		r, err := containerRequest(path, c)
		if err != nil || r.Slots == 0 {
			return err
		}
		r.Kind = kind
		all = append(all, r)
		return nil
	}
	for i := range pod.Spec.InitContainers {
		c := &pod.Spec.InitContainers[i]
		kind := vgpu.Init
		if c.RestartPolicy != nil && *c.RestartPolicy == v1.ContainerRestartPolicyAlways {
			kind = vgpu.Sidecar
		}
		if err := add(fmt.Sprintf("spec.initContainers[%d]", i), c, kind); err != nil {
			return nil, err
		}
	}
	for i := range pod.Spec.Containers {
		if err := add(fmt.Sprintf("spec.containers[%d]", i), &pod.Spec.Containers[i], vgpu.App); err != nil {
			return nil, err
		}
	}
	return all, nil
}

func containerRequest(path string, c *v1.Container) (vgpu.ContainerRequest, error) {
	r := vgpu.ContainerRequest{Name: c.Name}
	slots, err := limit(path, c, v1alpha1.ResourceVGPU, maxSlots, legalVGPU)
	if err != nil {
		return r, err
	}
	memory, err := limit(path, c, v1alpha1.ResourceMemory, MaxMemory, legalMemory)
	if err != nil {
		return r, err
	}
	if memory > 0 && slots == 0 {
		return r, &FieldError{
			Field:       limitPath(path, v1alpha1.ResourceVGPU),
			Legal:       fmt.Sprintf("a container with %s needs slots too, from 1", v1alpha1.ResourceMemory),
			MustReplace: true,
		}
	}
	r.Slots, r.Memory = vgpu.Slots(slots), vgpu.Bytes(memory)
	return r, nil
}

// limit returns a whole number from 0 to most; 0 also where the resource is absent.
func limit(path string, c *v1.Container, name v1.ResourceName, most int64, legal string) (int64, error) {
	q, ok := c.Resources.Limits[name]
	if !ok || q.IsZero() {
		return 0, nil
	}
	value, ok := Whole(q, most)
	if !ok {
		return 0, &FieldError{Field: limitPath(path, name), Value: ShownQuantity(q), Legal: legal, MustReplace: true}
	}
	return value, nil
}

func computeLimit(pod *v1.Pod) (vgpu.MilliGPU, error) {
	raw, ok := pod.Annotations[v1alpha1.AnnotationComputeLimit]
	if !ok {
		return 0, nil
	}
	percent, err := strconv.ParseUint(raw, 10, 8)
	if err != nil || percent < 1 || percent > 100 {
		return 0, Malformed(v1alpha1.AnnotationComputeLimit, raw, legalCompute)
	}
	return vgpu.MilliGPU(percent) * vgpu.WholeGPU / 100, nil
}

func memoryLimit(pod *v1.Pod) (vgpu.Bytes, error) {
	raw, ok := pod.Annotations[v1alpha1.AnnotationMemoryLimit]
	if !ok {
		return 0, nil
	}
	if !quantityForm.MatchString(raw) {
		return 0, Malformed(v1alpha1.AnnotationMemoryLimit, raw, legalLimit)
	}
	q, err := resource.ParseQuantity(raw)
	if err != nil {
		return 0, Malformed(v1alpha1.AnnotationMemoryLimit, raw, legalLimit)
	}
	bytes, ok := Whole(q, MaxMemory)
	if !ok {
		return 0, Malformed(v1alpha1.AnnotationMemoryLimit, raw, legalLimit)
	}
	return vgpu.Bytes(bytes), nil
}

// Malformed returns what is wrong with an annotation whose value is not legal.
func Malformed(key, raw, legal string) *FieldError {
	if raw == "" {
		legal = "it is empty, " + legal
	}
	return &FieldError{Field: AnnotationPath(key), Value: Shown(raw), Legal: legal}
}
