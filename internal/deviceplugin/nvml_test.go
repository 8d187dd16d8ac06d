package deviceplugin

import (
	"context"
	"errors"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/tandem-gpu/tandem/internal/nvml"
	"github.com/tandem-gpu/tandem/pkg/api/v1alpha1"
)

// library is an NVML with fixed answers.
type library struct {
	devices []nvml.Device
	health  map[string]nvml.Health
}

func (l library) Devices() ([]nvml.Device, error)               { return l.devices, nil }
func (l library) DriverVersion() string                         { return "580.95.05" }
func (l library) CUDAVersion() int                              { return 13010 }
func (l library) Health(uuid string) nvml.Health                { return l.health[uuid] }
func (l library) Watch(context.Context, func(nvml.Event)) error { return nil }
func (l library) Close() error                                  { return nil }

func TestFromNVML(t *testing.T) {
	d := FromNVML(library{
		devices: []nvml.Device{
			{}, // lost before anybody learned its UUID
			{UUID: g0, Index: 1, Minor: 5, Model: "Tesla-T4", Memory: 15 << 30, Capability: nvml.Capability{Major: 7, Minor: 5}, NUMANode: -1,
				Links: []nvml.Link{{Peer: "b", Type: v1alpha1.LinkPHB}, {Peer: "a", Type: v1alpha1.LinkNVLink, Lanes: 4}}},
			{UUID: g1, Index: 2, MIG: &nvml.MIG{}},
		},
		health: map[string]nvml.Health{g0: {Reason: nvml.Lost, Message: "fell off the bus"}},
	})
	got, err := d.GPUs()
	if err != nil || len(got) != 2 {
		t.Fatalf("%d devices (%v), want the two that have a UUID", len(got), err)
	}
	want := GPU{
		ID: g0, Index: 1, Minor: 5, Model: "Tesla-T4", Memory: 15 << 30, ComputeMajor: 7, ComputeMinor: 5, NUMANode: -1, Contexts: 60,
		Links: []v1alpha1.GPULink{{Peer: "a", Type: v1alpha1.LinkNVLink, Lanes: 4}, {Peer: "b", Type: v1alpha1.LinkPHB}},
	}
	if diff := cmp.Diff(want, got[0]); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	var sick *Sickness
	if err := d.Health(g0); !errors.As(err, &sick) || sick.Reason != string(nvml.Lost) {
		t.Errorf("health of a lost device: %v", err)
	}
	// NVML finds nothing wrong with it; it cannot be shared all the same.
	if err := d.Health(g1); !errors.As(err, &sick) || sick.Reason != reasonMIG {
		t.Errorf("health of a device in MIG mode: %v", err)
	}
}
