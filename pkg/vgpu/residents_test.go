package vgpu

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/tandem-gpu/tandem/test/must"
)

// TestResidents: the compute of a pod on a device is that of the containers that run together there, or of the largest init
// container, and never more than the device.
func TestResidents(t *testing.T) {
	n, err := NewNode("n1", []Device{
		{ID: "a", Model: "M", Slots: 10, Memory: 10, Healthy: true},
		{ID: "b", Index: 1, Model: "M", Slots: 10, Memory: 10, Healthy: true},
	})
	must.OK(t, err)
	container := func(name string, kind ContainerKind, device DeviceID, slots Slots, limit MilliGPU) ContainerAssignment {
		return ContainerAssignment{
			Name: name, Kind: kind, Devices: []DeviceID{device},
			Share: Share{Devices: 1, Slots: slots, Memory: 1, ComputeLimit: limit, MemoryLimit: 1},
		}
	}
	tenancy := Tenancy{Workload: 7, MaxSlowdown: 1200}
	for _, a := range []Assignment{
		{UID: "y", Pod: "y", Containers: []ContainerAssignment{
			container("i", Init, "a", 1, 700), container("s", Sidecar, "a", 1, 300), container("m", App, "a", 1, 200), container("o", App, "b", 1, 100),
		}},
		{UID: "x", Pod: "x", Tenancy: tenancy, Containers: []ContainerAssignment{
			container("i", Init, "a", 1, 200), container("m", App, "a", 1, 300), container("o", App, "a", 1, 900),
		}},
	} {
		a.Node = "n1"
		must.OK(t, n.Add(a))
	}
	if diff := cmp.Diff([]Resident{{UID: "x", Pod: "x", Tenancy: tenancy, Compute: 1000}, {UID: "y", Pod: "y", Compute: 700}}, n.Residents(0, nil)); diff != "" {
		t.Error(diff)
	}
	if diff := cmp.Diff([]Resident{{UID: "y", Pod: "y", Compute: 100}}, n.Residents(1, nil)); diff != "" {
		t.Error(diff)
	}
}

func TestTenancyValidate(t *testing.T) {
	r := Request{UID: "u", Pod: "p", Containers: []ContainerRequest{{Name: "m", Slots: 1}}}
	for limit, want := range map[int64]string{0: "", 1000: "", 999: "max-slowdown 999 is below 1000", -1: "max-slowdown -1"} {
		r.MaxSlowdown = limit
		err := r.Validate()
		if want == "" && err != nil || want != "" && (err == nil || !strings.Contains(err.Error(), want)) {
			t.Errorf("%d: got %v, want %q", limit, err, want)
		}
	}
}

func TestPromiseSentence(t *testing.T) {
	r := Refusal{
		Reason: PromiseBroken, Node: "n1", Device: "g0", Unit: UnitMilliSlowdown, Want: 1150, Best: 1310, Beside: []string{"a", "b", "c", "d", "e"},
	}
	if got, want := r.String(), "on n1/g0 a slowdown of 1.31 is predicted for the pod beside a, b, c and 2 more; its max-slowdown is 1.15"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
	r.Promised = "x/y"
	if got, want := r.String(), "on n1/g0 the pod would slow down x/y, for which 1.31 is then predicted and whose max-slowdown is 1.15"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}
