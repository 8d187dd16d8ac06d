package deviceplugin

import (
	"context"
	"errors"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/tandem-gpu/tandem/internal/agent/fixture"
	"github.com/tandem-gpu/tandem/internal/agent/health"
	"github.com/tandem-gpu/tandem/internal/agent/inventory"
	"github.com/tandem-gpu/tandem/internal/agent/nvml"
	"github.com/tandem-gpu/tandem/pkg/api/v1alpha1"
)

// library is an NVML with fixed answers.
type library struct {
	devices []nvml.Device
	health  map[string]nvml.Health
	action  nvml.Action
	mode    nvml.Mode
	events  []nvml.Event
}

func (l library) Devices() ([]nvml.Device, error)        { return l.devices, nil }
func (l library) DriverVersion() string                  { return "580.95.05" }
func (l library) CUDAVersion() int                       { return 13010 }
func (l library) Health(uuid string) nvml.Health         { return l.health[uuid] }
func (l library) Close() error                           { return nil }
func (l library) Sample(string) (nvml.Sample, error)     { return nvml.Sample{}, nil }
func (l library) ComputeMode(string) (nvml.Mode, error)  { return l.mode, nil }
func (l library) SetComputeMode(string, nvml.Mode) error { return nil }
func (l library) Recovery(string) (nvml.Action, bool)    { return l.action, l.action != "" }
func (l library) Watch(_ context.Context, report func(nvml.Event)) error {
	for _, e := range l.events {
		report(e)
	}
	return nil
}

func TestFromNVML(t *testing.T) {
	d := FromNVML(library{
		devices: []nvml.Device{
			{}, // lost before anybody learned its UUID
			{UUID: fixture.G0, Index: 1, Minor: 5, Model: "Tesla-T4", Memory: 15 << 30, Capability: nvml.Capability{Major: 7, Minor: 5}, NUMANode: -1,
				Links: []nvml.Link{{Peer: "b", Type: v1alpha1.LinkPHB}, {Peer: "a", Type: v1alpha1.LinkNVLink, Lanes: 4}}},
			{UUID: "MIG-1", Index: 2, Minor: 5, Model: "NVIDIA-A100-MIG-1g.5gb", Capability: nvml.Capability{Major: 8}, Parent: fixture.G1, GI: 7, CI: 1},
		},
		health: map[string]nvml.Health{fixture.G0: {Reason: nvml.Lost, Message: "fell off the bus"}},
	})
	got, err := d.GPUs()
	if err != nil || len(got) != 2 {
		t.Fatalf("%d devices (%v), want the two that have a UUID", len(got), err)
	}
	want := inventory.GPU{
		ID: fixture.G0, Index: 1, Minor: 5, Model: "Tesla-T4", Memory: 15 << 30, ComputeMajor: 7, ComputeMinor: 5, NUMANode: -1, Contexts: 60,
		Links: []v1alpha1.GPULink{{Peer: "a", Type: v1alpha1.LinkNVLink, Lanes: 4}, {Peer: "b", Type: v1alpha1.LinkPHB}},
	}
	if diff := cmp.Diff(want, got[0]); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if m := got[1]; m.ID != "MIG-1" || m.Parent != fixture.G1 || m.GI != 7 || m.CI != 1 {
		t.Errorf("MIG instance %+v", m)
	}
	var sick *inventory.Sickness
	if err := d.Health(fixture.G0); !errors.As(err, &sick) || sick.Reason != string(nvml.Lost) {
		t.Errorf("health of a lost device: %v", err)
	}
}

func TestFromNVMLNamesWhatTheDriverWants(t *testing.T) {
	for action, want := range map[nvml.Action]health.Recovery{
		"": health.RecoveryUnknown, nvml.RecoveryNone: health.RecoveryNone, nvml.RecoveryReset: health.RecoveryReset, nvml.RecoveryBusReset: health.RecoveryReset,
		nvml.RecoveryReboot: health.RecoveryReboot, nvml.RecoveryDrain: health.RecoveryOther, nvml.RecoveryOther: health.RecoveryOther,
	} {
		if got := FromNVML(library{action: action}).Recovery(fixture.G0); got != want {
			t.Errorf("%q is %v, want %v", action, got, want)
		}
	}
	for xid, want := range map[uint64]health.XIDClass{31: health.XIDApplication, 94: health.XIDContained, 48: health.XIDReset, 79: health.XIDReset, 63: health.XIDApplication, 999: health.XIDContained} {
		_ = FromNVML(library{events: []nvml.Event{{UUID: fixture.G0, XID: xid, Class: nvml.ClassOf(xid), Count: 3}}}).Watch(t.Context(), func(x health.XID) {
			if x.Class != want || x.Device != fixture.G0 || x.Number != xid || x.More != 2 || x.Label != string(nvml.ClassOf(xid)) {
				t.Errorf("XID %d: %+v, want class %v", xid, x, want)
			}
		})
	}
	for mode, want := range map[nvml.Mode]bool{nvml.ModeDefault: false, nvml.ModeExclusiveProcess: true} {
		if on, err := FromNVML(library{mode: mode}).Exclusive(fixture.G0); on != want || err != nil {
			t.Errorf("%v: %v %v", mode, on, err)
		}
	}
	if _, err := FromNVML(library{mode: nvml.ModeOther}).Exclusive(fixture.G0); err == nil {
		t.Error("a mode that the agent must not change: no error")
	}
}
