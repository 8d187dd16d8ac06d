package kube

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/validation"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"pgregory.net/rapid"

	"github.com/tandem-gpu/tandem/pkg/api/v1alpha1"
	"github.com/tandem-gpu/tandem/pkg/vgpu"
	"github.com/tandem-gpu/tandem/test/pods"
)

// A pod passes with as many bytes as the API server's own check takes beside the assignment, and not with one more.
func TestCheckAnnotations(t *testing.T) {
	for _, size := range []int{0, 1000} {
		p := pods.Annotated(pods.New("1"), v1alpha1.AnnotationAssignment, strings.Repeat("old", 1000), "k", "")
		p.Annotations["k"] = strings.Repeat("v", validation.TotalAnnotationSizeLimitB-1-len(v1alpha1.AnnotationAssignment)-size)
		if err := CheckAnnotations(p, size); err != nil {
			t.Errorf("%d bytes: %v", size, err)
		}
		p.Annotations["k"] += "v"
		bound := p.DeepCopy()
		bound.Annotations[v1alpha1.AnnotationAssignment] = strings.Repeat("x", size)
		err := CheckAnnotations(p, size)
		if err == nil || validation.ValidateAnnotationsSize(bound.Annotations) == nil {
			t.Fatalf("%d bytes: %v for a pod that cannot be updated", size, err)
		}
		for _, want := range []string{"metadata.annotations: ", fmt.Sprint(AnnotationBytes(p)), "262144 for all"} {
			if !strings.Contains(err.Error(), want) {
				t.Errorf("%d bytes: %q lacks %q", size, err, want)
			}
		}
	}
}

// No assignment of a request is longer than LargestAssignment.
func TestLargestAssignment(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		r := vgpu.Request{}
		a := vgpu.Assignment{UID: vgpu.UID(strings.Repeat("u", 36)), Pod: "p", Node: strings.Repeat("n", 253)}
		for i := range rapid.IntRange(1, 4).Draw(t, "containers") {
			name := fmt.Sprintf("%d%s", i, strings.Repeat("c", rapid.IntRange(0, 62).Draw(t, "name")))
			count := rapid.SampledFrom([]int{1, 2, 8, MaxDevices}).Draw(t, "devices")
			c := vgpu.ContainerAssignment{Name: name, Share: vgpu.Share{
				Devices: count, Slots: maxSlots, Memory: MaxMemory, ComputeLimit: 1000, MemoryLimit: MaxMemory,
			}}
			for d := range count {
				c.Devices = append(c.Devices, vgpu.DeviceID(fmt.Sprintf("%064d", d)))
			}
			a.Containers = append(a.Containers, c)
			r.Containers = append(r.Containers, vgpu.ContainerRequest{Name: name, Slots: vgpu.Slots(count)})
		}
		if len(r.Containers) == 1 && rapid.Bool().Draw(t, "rate") {
			r.Containers[0].Slots, r.Variants, a.Containers[0].Asked = 1, []vgpu.Variant{{Model: "A"}}, 1
		}
		raw, err := EncodeAssignment(a)
		if err != nil {
			t.Fatal(err)
		}
		if most := LargestAssignment(&r); len(raw) > most {
			t.Fatalf("an assignment has %d bytes, at most are %d", len(raw), most)
		}
	})
}

func TestIsTooLong(t *testing.T) {
	kind := schema.GroupKind{Kind: "Pod"}
	long := apierrors.NewInvalid(kind, "p", field.ErrorList{field.TooLong(field.NewPath("metadata", "annotations"), "", validation.TotalAnnotationSizeLimitB)})
	for name, c := range map[string]struct {
		err  error
		want bool
	}{
		"none": {}, "another": {err: errors.New("x")}, "long": {err: long, want: true}, "wrapped": {err: fmt.Errorf("evict: %w", long), want: true},
		"budget":      {err: apierrors.NewTooManyRequests("no", 1)},
		"policy":      {err: apierrors.NewInvalid(kind, "p", nil)},
		"other field": {err: apierrors.NewInvalid(kind, "p", field.ErrorList{field.TooLong(field.NewPath("metadata", "labels"), "", 1)})},
		"other cause": {err: apierrors.NewInvalid(kind, "p", field.ErrorList{field.Invalid(field.NewPath("metadata", "annotations"), "", "x")})},
	} {
		if got := IsTooLong(c.err); got != c.want {
			t.Errorf("%s: %v", name, got)
		}
	}
	if AnnotationBytes(&v1.Pod{}) != 0 {
		t.Error("a pod without annotations has bytes of them")
	}
}
