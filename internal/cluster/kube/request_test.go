package kube

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	v1 "k8s.io/api/core/v1"

	"github.com/tandem-gpu/tandem/pkg/api/v1alpha1"
	"github.com/tandem-gpu/tandem/pkg/vgpu"
	"github.com/tandem-gpu/tandem/test/must"
	"github.com/tandem-gpu/tandem/test/pods"
)

func TestRequest(t *testing.T) {
	always := v1.ContainerRestartPolicyAlways
	priority := int32(7)
	full := pods.Annotated(pods.New("3/8Gi", "", "20"), v1alpha1.AnnotationComputeLimit, "50", v1alpha1.AnnotationMemoryLimit, "10Gi")
	full.Spec.Priority = &priority
	full.Spec.InitContainers = []v1.Container{pods.Container("load", "1"), pods.Container("cache", "2"), pods.Container("log", "")}
	full.Spec.InitContainers[1].RestartPolicy = &always

	got, err := Request(full)
	must.OK(t, err)
	want := vgpu.Request{
		UID: "u1", Pod: "ns/p", Priority: 7,
		Containers: []vgpu.ContainerRequest{
			{Name: "load", Kind: vgpu.Init, Slots: 1},
			{Name: "cache", Kind: vgpu.Sidecar, Slots: 2},
			{Name: "a", Slots: 3, Memory: 8 << 30},
			{Name: "c", Slots: 20},
		},
		ComputeLimit: 500,
		MemoryLimit:  10 << 30,
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("Request (-want +got):\n%s", diff)
	}
}

func TestRequestOfPodsThatAskForNothing(t *testing.T) {
	for name, p := range map[string]*v1.Pod{
		"no limits":                    pods.New(""),
		"zero slots":                   pods.New("0"),
		"zero slots and memory":        pods.New("0/0"),
		"annotations that nobody uses": pods.Annotated(pods.New(""), v1alpha1.AnnotationComputeLimit, "x"),
	} {
		got, err := Request(p)
		if err != nil || len(got.Containers) != 0 || WantsVGPU(p) {
			t.Errorf("%s: Request = %+v, %v, WantsVGPU = %v", name, got, err, WantsVGPU(p))
		}
	}
}

func TestRequestRefusesWrongFields(t *testing.T) {
	const (
		slotsOf0  = "spec.containers[0].resources.limits[tandem-gpu.io/vgpu]"
		memoryOf0 = "spec.containers[0].resources.limits[tandem-gpu.io/vgpu-memory]"
		compute   = "metadata.annotations[tandem-gpu.io/compute-limit]"
		memory    = "metadata.annotations[tandem-gpu.io/memory-limit]"
		models    = "metadata.annotations[tandem-gpu.io/gpu-models]"
	)
	withInit := pods.New("1")
	withInit.Spec.InitContainers = []v1.Container{pods.Container("ok", "1"), pods.Container("bad", "-1")}
	limitOf := func(key, value string) *v1.Pod { return pods.Annotated(pods.New("1"), key, value) }

	cases := []struct {
		name    string
		pod     *v1.Pod
		field   string
		value   string
		replace bool
	}{
		{"negative slots", pods.New("-3"), slotsOf0, "-3", true},
		{"half a slot", pods.New("500m"), slotsOf0, "500m", true},
		{"one slot and a half", pods.New("1500m"), slotsOf0, "1500m", true},
		{"more slots than any node", pods.New("128001"), slotsOf0, "128001", true},
		{"more than int64", pods.New("100000000000000000000"), slotsOf0, "100E", true},
		{"memory alone", pods.New("/8Gi"), slotsOf0, "", true},
		{"memory with zero slots", pods.New("0/8Gi"), slotsOf0, "", true},
		{"negative memory", pods.New("1/-1"), memoryOf0, "-1", true},
		{"more memory than any device", pods.New("1/2Pi"), memoryOf0, "2Pi", true},
		{"memory beyond int64 (Quantity caps it)", pods.New("1/1000Ei"), memoryOf0, "9223372036854775807", true},
		{"more containers than there are GPUs", pods.New(slices.Repeat([]string{"1"}, 17)...), "spec.containers", "17", true},
		{"init container", withInit, "spec.initContainers[1].resources.limits[tandem-gpu.io/vgpu]", "-1", true},
		{"compute limit 0", limitOf(v1alpha1.AnnotationComputeLimit, "0"), compute, "0", false},
		{"compute limit 101", limitOf(v1alpha1.AnnotationComputeLimit, "101"), compute, "101", false},
		{"compute limit 357 (wraps in 8 bits)", limitOf(v1alpha1.AnnotationComputeLimit, "357"), compute, "357", false},
		{"compute limit with a unit", limitOf(v1alpha1.AnnotationComputeLimit, "50%"), compute, "50%", false},
		{"compute limit with a sign", limitOf(v1alpha1.AnnotationComputeLimit, "+50"), compute, "+50", false},
		{"compute limit with a blank", limitOf(v1alpha1.AnnotationComputeLimit, " 50"), compute, " 50", false},
		{"compute limit with a fraction", limitOf(v1alpha1.AnnotationComputeLimit, "33.3"), compute, "33.3", false},
		{"empty compute limit", limitOf(v1alpha1.AnnotationComputeLimit, ""), compute, "", false},
		{"memory limit in words", limitOf(v1alpha1.AnnotationMemoryLimit, "lots"), memory, "lots", false},
		{"memory limit 0", limitOf(v1alpha1.AnnotationMemoryLimit, "0"), memory, "0", false},
		{"memory limit of half a byte", limitOf(v1alpha1.AnnotationMemoryLimit, "0.5"), memory, "0.5", false},
		{"negative memory limit", limitOf(v1alpha1.AnnotationMemoryLimit, "-1Gi"), memory, "-1Gi", false},
		{"memory limit beyond int64", limitOf(v1alpha1.AnnotationMemoryLimit, "1e40"), memory, "1e40", false},
		{"no model", limitOf(v1alpha1.AnnotationModels, ""), models, "", false},
		{"an empty model", limitOf(v1alpha1.AnnotationModels, "T4,,A100"), models, "T4,,A100", false},
		{"a model twice", limitOf(v1alpha1.AnnotationModels, "T4, A100, T4"), models, "T4, A100, T4", false},
		{"a model of 64 letters", limitOf(v1alpha1.AnnotationModels, strings.Repeat("x", 64)), models, strings.Repeat("x", 64), false},
		{"65 models", limitOf(v1alpha1.AnnotationModels, manyModels(65)), models, Shown(manyModels(65)), false},
		{"memory limit with a huge exponent", limitOf(v1alpha1.AnnotationMemoryLimit, "1e999999999"), memory, "1e999999999", false},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			_, err := Request(c.pod)
			var got *FieldError
			if !errors.As(err, &got) {
				t.Fatalf("Request = %v, want a FieldError", err)
			}
			if got.Field != c.field || got.Value != c.value || got.MustReplace != c.replace || got.Legal == "" {
				t.Errorf("Request = %+v, want field %s, value %q, replace %v", got, c.field, c.value, c.replace)
			}
			if told := strings.Contains(got.Error(), "must be replaced"); told != c.replace {
				t.Errorf("the message %q tells to replace the pod: %v, want %v", got, told, c.replace)
			}
		})
	}
}

func manyModels(n int) string {
	names := make([]string, n)
	for i := range names {
		names[i] = fmt.Sprint("m", i)
	}
	return strings.Join(names, ",")
}

func TestRequestReadsModels(t *testing.T) {
	got, err := Request(pods.Annotated(pods.New("3"), v1alpha1.AnnotationModels, "Tesla-T4, NVIDIA-A100-SXM4-40GB"))
	must.OK(t, err)
	want := []vgpu.Variant{{Model: "NVIDIA-A100-SXM4-40GB"}, {Model: "Tesla-T4"}}
	if diff := cmp.Diff(want, got.Variants); diff != "" {
		t.Errorf("variants (-want +got):\n%s", diff)
	}
	most, err := Request(pods.Annotated(pods.New("3"), v1alpha1.AnnotationModels, manyModels(64)))
	if err != nil || len(most.Variants) != 64 || most.Validate() != nil {
		t.Errorf("64 models: %d variants, %v, %v", len(most.Variants), err, most.Validate())
	}
}

func TestRequestTakesTheLargestLegalValues(t *testing.T) {
	p := pods.Annotated(pods.New("128000/1Pi"), v1alpha1.AnnotationComputeLimit, "100", v1alpha1.AnnotationMemoryLimit, "1Pi")
	got, err := Request(p)
	must.OK(t, err)
	if got.Containers[0].Slots != 128000 || got.Containers[0].Memory != 1<<50 || got.MemoryLimit != 1<<50 {
		t.Errorf("Request = %+v", got)
	}
}

func TestFieldOf(t *testing.T) {
	p := pods.Annotated(pods.New("1", "13/90Gi"), v1alpha1.AnnotationComputeLimit, "5", v1alpha1.AnnotationMemoryLimit, "1Gi")
	cases := []struct {
		refusal vgpu.Refusal
		want    string
	}{
		{
			vgpu.Refusal{Reason: vgpu.IllegalSlots, Container: "b", Legal: []vgpu.Slots{10, 20}},
			`spec.containers[1].resources.limits[tandem-gpu.io/vgpu]: "13" is not legal, ` +
				`the nearest legal values are 10 and 20; the field is immutable: the pod must be replaced`,
		},
		{
			vgpu.Refusal{Reason: vgpu.MemoryAboveDevice, Container: "b", Of: 40 << 30},
			`spec.containers[1].resources.limits[tandem-gpu.io/vgpu-memory]: "90Gi" is not legal, ` +
				`it can be at most 40Gi; the field is immutable: the pod must be replaced`,
		},
		{
			vgpu.Refusal{Reason: vgpu.ComputeLimitBelowRequest, Container: "a", Best: 340},
			`metadata.annotations[tandem-gpu.io/compute-limit]: "5" is not legal, it must not be below the request, ` +
				`34 percent of a device; correct the annotation and the pod is tried again`,
		},
	}
	for _, c := range cases {
		got, ok := FieldOf(p, c.refusal)
		if !ok || got.Error() != c.want {
			t.Errorf("FieldOf(%s) = %v, %v\nwant %s", c.refusal.Reason, got, ok, c.want)
		}
	}
	if _, ok := FieldOf(p, vgpu.Refusal{Reason: vgpu.NoShareFits}); ok {
		t.Error("FieldOf(NoShareFits) names a field, but no field is wrong")
	}
}

func FuzzRequest(f *testing.F) {
	f.Add("50", "8Gi")
	f.Add("0", "1e99")
	f.Add("+7", "1e999999999")
	f.Add("100", "0.0000000000000000001Pi")
	f.Fuzz(func(t *testing.T, compute, memory string) {
		p := pods.Annotated(pods.New("1"), v1alpha1.AnnotationComputeLimit, compute, v1alpha1.AnnotationMemoryLimit, memory)
		r, err := Request(p)
		if err != nil {
			var field *FieldError
			if !errors.As(err, &field) || field.MustReplace || len(field.Error()) > 512 {
				t.Fatalf("Request(%q, %q) = %v", compute, memory, err)
			}
			return
		}
		if r.ComputeLimit < 10 || r.ComputeLimit > vgpu.WholeGPU || r.ComputeLimit%10 != 0 {
			t.Fatalf("Request(%q) gives a compute limit of %d", compute, r.ComputeLimit)
		}
		if r.MemoryLimit < 1 || r.MemoryLimit > MaxMemory {
			t.Fatalf("Request(%q) gives a memory limit of %d", memory, r.MemoryLimit)
		}
	})
}
