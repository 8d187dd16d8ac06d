package kube

import (
	"errors"
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

const gib = 1 << 30

// example is the assignment of pods.New("3", "20/60Gi") on node n1.
func example() vgpu.Assignment {
	return vgpu.Assignment{
		UID: "u1", Pod: "ns/p", Node: "n1",
		Containers: []vgpu.ContainerAssignment{
			{
				Name: "a", Devices: []vgpu.DeviceID{"GPU-0"},
				Share: vgpu.Share{Devices: 1, Slots: 3, Memory: 12 * gib, ComputeLimit: 300, MemoryLimit: 12 * gib},
			},
			{
				Name: "b", Devices: []vgpu.DeviceID{"GPU-1", "GPU-2"},
				Share: vgpu.Share{Devices: 2, Slots: 10, Memory: 30 * gib, ComputeLimit: 1000, MemoryLimit: 40 * gib},
			},
		},
	}
}

const exampleJSON = `{"version":1,"uid":"u1","node":"n1","containers":[` +
	`{"name":"a","devices":["GPU-0"],"slots":3,"memoryBytes":12884901888,"computeLimitPercent":30,"memoryLimitBytes":12884901888},` +
	`{"name":"b","devices":["GPU-1","GPU-2"],"slots":10,"memoryBytes":32212254720,"computeLimitPercent":100,"memoryLimitBytes":42949672960}]}`

func bound(p *v1.Pod, node, raw string) *v1.Pod {
	p.Spec.NodeName = node
	return pods.Annotated(p, v1alpha1.AnnotationAssignment, raw)
}

func TestAssignmentSurvivesTheAnnotation(t *testing.T) {
	raw, err := EncodeAssignment(example())
	must.OK(t, err)
	if diff := cmp.Diff(exampleJSON, raw); diff != "" {
		t.Errorf("EncodeAssignment (-want +got):\n%s", diff)
	}
	got, err := AssignmentOf(bound(pods.New("3", "20/60Gi"), "n1", raw))
	must.OK(t, err)
	if diff := cmp.Diff(example(), got); diff != "" {
		t.Errorf("AssignmentOf (-want +got):\n%s", diff)
	}
}

// The slowdown that a pod tolerates travels on the pod: users may change it while the pod runs.
func TestAssignmentReadsThePromise(t *testing.T) {
	raw, err := EncodeAssignment(example())
	must.OK(t, err)
	for value, want := range map[string]int64{"1.2": 1200, "1": 1000, "0.9": 0, "": 0} {
		p := bound(pods.New("3", "20/60Gi"), "n1", raw)
		p.Annotations[v1alpha1.AnnotationMaxSlowdown] = value
		if got, err := AssignmentOf(p); err != nil || got.MaxSlowdown != want {
			t.Errorf("%q: %d, %v, want %d", value, got.MaxSlowdown, err, want)
		}
	}
}

// A pod that asks for 2 slots and wants a rate may be given more.
func TestAssignmentOfMoreThanAskedFor(t *testing.T) {
	a := example()
	a.Containers = a.Containers[:1]
	a.Containers[0].Asked = 2
	raw, err := EncodeAssignment(a)
	must.OK(t, err)
	if want := `"slots":3,"askedSlots":2,`; !strings.Contains(raw, want) {
		t.Errorf("EncodeAssignment = %s, want %s in it", raw, want)
	}
	got, err := AssignmentOf(bound(pods.New("2"), "n1", raw))
	must.OK(t, err)
	if diff := cmp.Diff(a, got); diff != "" {
		t.Errorf("AssignmentOf (-want +got):\n%s", diff)
	}
	for _, limit := range []string{"1", "3"} {
		if a, err := AssignmentOf(bound(pods.New(limit), "n1", raw)); err == nil {
			t.Errorf("AssignmentOf a pod that asks for %s = %+v, want an error", limit, a)
		}
	}
	for name, change := range map[string]func(*vgpu.Assignment){
		"as many as given":   func(a *vgpu.Assignment) { a.Containers[0].Asked = 3 },
		"more than given":    func(a *vgpu.Assignment) { a.Containers[0].Asked = 4 },
		"less than none":     func(a *vgpu.Assignment) { a.Containers[0].Asked = -1 },
		"beyond int32":       func(a *vgpu.Assignment) { a.Containers[0].Asked = 1<<32 + 2 },
		"several containers": func(a *vgpu.Assignment) { a.Containers = append(a.Containers, example().Containers[1]) },
	} {
		b := a
		b.Containers = slices.Clone(a.Containers)
		change(&b)
		if raw, err := EncodeAssignment(b); err == nil {
			t.Errorf("%s: EncodeAssignment = %s, want an error", name, raw)
		}
	}
}

func TestEncodeAssignmentRefusesTheUnreadable(t *testing.T) {
	for name, change := range map[string]func(*vgpu.Assignment){
		"no UID":               func(a *vgpu.Assignment) { a.UID = "" },
		"no container":         func(a *vgpu.Assignment) { a.Containers = nil },
		"no device":            func(a *vgpu.Assignment) { a.Containers[0].Devices = nil },
		"slots beyond int32":   func(a *vgpu.Assignment) { a.Containers[0].Share.Slots = 1 << 40 },
		"limit below request":  func(a *vgpu.Assignment) { a.Containers[0].Share.MemoryLimit = 1 },
		"one container twice":  func(a *vgpu.Assignment) { a.Containers[1].Name = "a" },
		"a device twice":       func(a *vgpu.Assignment) { a.Containers[1].Devices[1] = "GPU-1" },
		"a part of a percent":  func(a *vgpu.Assignment) { a.Containers[0].Share.ComputeLimit = 333 },
		"no compute":           func(a *vgpu.Assignment) { a.Containers[0].Share.ComputeLimit = 0 },
		"more than one device": func(a *vgpu.Assignment) { a.Containers[1].Share.ComputeLimit = 1010 },
	} {
		a := example()
		change(&a)
		if raw, err := EncodeAssignment(a); err == nil {
			t.Errorf("%s: EncodeAssignment = %s, want an error", name, raw)
		}
	}
}

func TestDecodeAssignmentIsStrict(t *testing.T) {
	replace := func(part, by string) string { return strings.Replace(exampleJSON, part, by, 1) }
	for name, raw := range map[string]string{
		"empty":               "",
		"no JSON":             "gpu-0",
		"null":                "null",
		"a list":              "[]",
		"another version":     replace(`"version":1`, `"version":2`),
		"no version":          replace(`"version":1,`, ``),
		"unknown field":       replace(`"node"`, `"nodes":1,"node"`),
		"unknown field below": replace(`"name":"a"`, `"name":"a","host":true`),
		"repeated field":      replace(`"node":"n1"`, `"node":"n1","node":"n2"`),
		"other case":          replace(`"slots"`, `"Slots"`),
		"trailing text":       exampleJSON + "x",
		"a second value":      exampleJSON + exampleJSON,
		"slots 0":             replace(`"slots":3`, `"slots":0`),
		"slots -1":            replace(`"slots":3`, `"slots":-1`),
		"slots beyond int32":  replace(`"slots":3`, `"slots":4294967299`),
		"asked for -1":        replace(`"slots":3`, `"slots":3,"askedSlots":-1`),
		"asked for as many":   replace(`"slots":3`, `"slots":3,"askedSlots":3`),
		"slots in a fraction": replace(`"slots":3`, `"slots":3.5`),
		"memory -1":           replace(`"memoryBytes":12884901888`, `"memoryBytes":-1`),
		"limit below memory":  replace(`"memoryLimitBytes":12884901888`, `"memoryLimitBytes":1`),
		"compute 0":           replace(`"computeLimitPercent":30`, `"computeLimitPercent":0`),
		"compute 101":         replace(`"computeLimitPercent":30`, `"computeLimitPercent":101`),
		"unsorted devices":    replace(`"GPU-1","GPU-2"`, `"GPU-2","GPU-1"`),
		"a device twice":      replace(`"GPU-1","GPU-2"`, `"GPU-1","GPU-1"`),
		"no device":           replace(`["GPU-0"]`, `[]`),
		"129 devices":         replace(`["GPU-0"]`, `["`+manyDevices(129)+`"]`),
	} {
		if a, err := DecodeAssignment(raw); err == nil {
			t.Errorf("%s: DecodeAssignment = %+v, want an error", name, a)
		}
	}
}

func manyDevices(n int) string {
	ids := make([]string, n)
	for i := range ids {
		ids[i] = "GPU-" + strings.Repeat("x", i)
	}
	return strings.Join(ids, `","`)
}

func TestAssignmentOfComparesWithThePod(t *testing.T) {
	ok := func() *v1.Pod { return bound(pods.New("3", "20/60Gi"), "n1", exampleJSON) }
	if _, err := AssignmentOf(ok()); err != nil {
		t.Fatal(err)
	}
	if _, err := AssignmentOf(pods.New("3")); !errors.Is(err, ErrNoAssignment) {
		t.Errorf("AssignmentOf(a pod without one) = %v, want ErrNoAssignment", err)
	}
	edited := ok()
	edited.Annotations[v1alpha1.AnnotationComputeLimit] = "changed after the binding"
	if _, err := AssignmentOf(edited); err != nil {
		t.Errorf("a limit that was changed after the binding makes the assignment invalid: %v", err)
	}
	for name, change := range map[string]func(*v1.Pod){
		"another UID":       func(p *v1.Pod) { p.UID = "u2" },
		"another node":      func(p *v1.Pod) { p.Spec.NodeName = "n2" },
		"not bound":         func(p *v1.Pod) { p.Spec.NodeName = "" },
		"a container more":  func(p *v1.Pod) { p.Spec.Containers = append(p.Spec.Containers, pods.Container("c", "1")) },
		"a container less":  func(p *v1.Pod) { p.Spec.Containers = p.Spec.Containers[:1] },
		"asks for nothing":  func(p *v1.Pod) { p.Spec.Containers = nil },
		"another container": func(p *v1.Pod) { p.Spec.Containers[0].Name = "z" },
		"other slots":       func(p *v1.Pod) { p.Spec.Containers[0] = pods.Container("a", "2") },
		"other whole slots": func(p *v1.Pod) { p.Spec.Containers[1] = pods.Container("b", "10/60Gi") },
		"more memory":       func(p *v1.Pod) { p.Spec.Containers[1] = pods.Container("b", "20/61Gi") },
		"less memory":       func(p *v1.Pod) { p.Spec.Containers[1] = pods.Container("b", "20/59Gi") },
		"broken limits":     func(p *v1.Pod) { p.Spec.Containers[1] = pods.Container("b", "-1") },
	} {
		p := ok()
		change(p)
		if a, err := AssignmentOf(p); err == nil || errors.Is(err, ErrNoAssignment) {
			t.Errorf("%s: AssignmentOf = %+v, %v, want an error that says what disagrees", name, a, err)
		}
	}
}

func FuzzDecodeAssignment(f *testing.F) {
	f.Add(exampleJSON)
	f.Add(`{"version":1,"uid":"u","node":"n","containers":[]}`)
	f.Add(`{"version":1,"uid":"u","node":"n","containers":[{"name":"a","devices":["d","e"],"slots":2,"askedSlots":3,"computeLimitPercent":1}]}`)
	f.Add(`{"version":1,"uid":"u","node":"n","containers":[{"name":"a","devices":["d"],"slots":1,"computeLimitPercent":1}]}`)
	f.Fuzz(func(t *testing.T, raw string) {
		a, err := DecodeAssignment(raw)
		if err != nil {
			return
		}
		again := vgpu.Assignment{UID: vgpu.UID(a.UID), Node: a.Node}
		for i := range a.Containers {
			again.Containers = append(again.Containers, containerAssignment(&a.Containers[i], vgpu.App))
		}
		text, err := EncodeAssignment(again)
		if err != nil {
			t.Fatalf("what DecodeAssignment accepts cannot be encoded: %v", err)
		}
		b, err := DecodeAssignment(text)
		if err != nil {
			t.Fatalf("DecodeAssignment(%s): %v", text, err)
		}
		if diff := cmp.Diff(a, b); diff != "" {
			t.Fatalf("an assignment changes on its way (-before +after):\n%s", diff)
		}
	})
}
