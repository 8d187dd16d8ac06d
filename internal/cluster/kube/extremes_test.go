package kube

import (
	"fmt"
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/tandem-gpu/tandem/pkg/api/v1alpha1"
	"github.com/tandem-gpu/tandem/pkg/vgpu"
	"github.com/tandem-gpu/tandem/test/must"
)

// extremePod has sixteen containers with vGPUs, and 256 annotations of 128 KiB together, among them those that Tandem reads with the given values.
func extremePod(values map[string]string) *v1.Pod {
	p := &v1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "team", Name: "pod", UID: "uid", Annotations: map[string]string{}}}
	left := 128 << 10
	for key, value := range values {
		p.Annotations[key] = value
		left -= len(key) + len(value)
	}
	for i := len(values); i < 256 && left > 0; i++ {
		key := fmt.Sprintf("example.com/key-%03d", i)
		p.Annotations[key] = strings.Repeat("x", max(0, left/(256-i)-len(key)))
		left -= len(key) + len(p.Annotations[key])
	}
	for i := range vgpu.MaxContainers {
		p.Spec.Containers = append(p.Spec.Containers, v1.Container{Name: fmt.Sprint("c", i), Resources: v1.ResourceRequirements{
			Limits: v1.ResourceList{v1alpha1.ResourceVGPU: *resource.NewQuantity(1280, resource.DecimalSI)},
		}})
	}
	return p
}

// BenchmarkExtremes is what all that Tandem reads of a pod's annotations costs, at their legal bounds: the longest lists, values that are long and not legal,
// and the longest assignment.
func BenchmarkExtremes(b *testing.B) {
	var models []string
	for i := range vgpu.MaxVariants {
		models = append(models, fmt.Sprintf("%063d", i))
	}
	long := strings.Repeat(",", 127<<10)
	a := vgpu.Assignment{UID: "uid", Pod: "team/pod", Node: "n1"}
	for i := range 8 {
		c := vgpu.ContainerAssignment{Name: fmt.Sprint("c", i), Share: vgpu.Share{Devices: MaxDevices, Slots: 10, Memory: 1 << 30, ComputeLimit: 1000, MemoryLimit: 1 << 30}}
		for k := range MaxDevices {
			c.Devices = append(c.Devices, vgpu.DeviceID(fmt.Sprintf("GPU-%060d", k)))
		}
		a.Containers = append(a.Containers, c)
	}
	raw, err := EncodeAssignment(a)
	must.OK(b, err)
	for _, bc := range []struct {
		name   string
		values map[string]string
	}{
		{"256-annotations", nil},
		{"64-models", map[string]string{v1alpha1.AnnotationModels: strings.Join(models, ",")}},
		{"models-of-127-KiB", map[string]string{v1alpha1.AnnotationModels: long}},
		{"memory-limit-of-127-KiB", map[string]string{v1alpha1.AnnotationMemoryLimit: strings.Repeat("9", len(long))}},
		{"max-slowdown-of-127-KiB", map[string]string{v1alpha1.AnnotationMaxSlowdown: "1." + strings.Repeat("0", len(long))}},
		{"progress-of-127-KiB", map[string]string{v1alpha1.AnnotationProgress: "0." + strings.Repeat("0", len(long))}},
		{"checkpoint-of-127-KiB", map[string]string{v1alpha1.AnnotationCheckpointTime: strings.Repeat("9", len(long))}},
		{fmt.Sprintf("assignment-of-%d-KiB", len(raw)>>10), map[string]string{v1alpha1.AnnotationAssignment: raw}},
	} {
		p := extremePod(bc.values)
		b.Run("pod/"+bc.name, func(b *testing.B) {
			for b.Loop() {
				_, _ = Request(p) // errors are what some values are for
				_, _, _ = Progress(p)
				_, _, _ = CheckpointTime(p)
				_, _, _ = RateMetricOf(p)
				_, _, _ = ReportedRate(p)
				_, _ = AssignmentOf(p)
				_ = CheckAnnotations(p, 0)
			}
		})
	}
}
