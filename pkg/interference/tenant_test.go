package interference_test

import (
	"math"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/tandem-gpu/tandem/pkg/interference"
	"github.com/tandem-gpu/tandem/pkg/vgpu"
)

func TestBelieved(t *testing.T) {
	liar := interference.Tenant{Traits: interference.Traits{Sensitivity: 3, Level: .5, Pressure: 2, Offset: -1}}
	got := liar.Believed()
	if got.Sensitivity != 1.6 || got.Pressure != 2 || got.Offset != 0 {
		t.Errorf("got %+v, want sensitivity .5 + 1.1", got.Traits)
	}
	modest := interference.Tenant{Traits: interference.Traits{Sensitivity: -2}}
	if got := modest.Believed(); got.Sensitivity != -2 {
		t.Errorf("got %+v", got.Traits)
	}
}

func TestDoubted(t *testing.T) {
	declared := interference.Profile{SM: .1, Bandwidth: .3, Declared: true}
	tests := []struct {
		name          string
		part          vgpu.MilliGPU
		change        func(*interference.Tenant)
		sm, bandwidth float64
	}{
		{"half of what is not known would use", 1000, func(*interference.Tenant) {}, .5, .3},
		{"under its cap", 400, func(on *interference.Tenant) { on.Bandwidth = 0 }, .2, .25 * math.Sqrt(.4)},
		{"observed", 1000, func(on *interference.Tenant) { on.Declared = false }, .1, .3},
		{"its harm is half known", 1000, func(on *interference.Tenant) { on.SurePressure = .5 }, .25, .3},
		{"its harm is known", 1000, func(on *interference.Tenant) { on.SurePressure = 1 }, .1, .3},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			on := declared.On(test.part)
			test.change(&on)
			want := on
			want.SM, want.Bandwidth = test.sm, test.bandwidth
			if got := on.Doubted(); math.Abs(got.SM-want.SM) > 1e-9 || math.Abs(got.Bandwidth-want.Bandwidth) > 1e-9 {
				t.Errorf("got %v and %v, want %v and %v", got.SM, got.Bandwidth, want.SM, want.Bandwidth)
			}
		})
	}
}

// TestOn: a cap bounds the SMs, thins the bandwidth and makes steps longer, as the class has it.
func TestOn(t *testing.T) {
	p := interference.Profile{SM: .9, Bandwidth: .5, Step: .01, Class: interference.ClassTraining}
	speed := interference.ClassTraining.Speed(500)
	want := interference.Tenant{SM: .5, Bandwidth: .5 * math.Sqrt(speed), Cap: .5, Brisk: math.Sqrt(.1 * speed)}
	if diff := cmp.Diff(want, p.On(500), cmpopts.EquateApprox(0, 1e-12)); diff != "" {
		t.Error(diff)
	}
	for part, cap := range map[vgpu.MilliGPU]float64{-5: .001, 0: .001, 1000: 1, 1500: 1} {
		if got := p.On(part); got.Cap != cap || math.IsNaN(got.Brisk) || math.IsInf(got.Brisk, 0) {
			t.Errorf("part %d: got %+v, want the cap %v", part, got, cap)
		}
	}
	unknown := interference.Unknown()
	if got := unknown.On(1000); !got.Guessed || got.SM != 1 || math.Abs(got.Brisk-math.Sqrt(.05)) > 1e-12 {
		t.Errorf("nothing known: got %+v, want steps of 20 ms", got)
	}
	if got := interference.Brisk(1e-9); got != 3 {
		t.Errorf("the shortest steps have %v, want 3", got)
	}
}

func TestProfileValidate(t *testing.T) {
	tests := []struct {
		profile interference.Profile
		want    string
	}{
		{interference.Profile{}, ""},
		{interference.Unknown(), ""},
		{interference.Profile{SM: 1.1}, "SM is 1.1, legal is 0 to 1"},
		{interference.Profile{Bandwidth: math.NaN()}, "Bandwidth is NaN, legal is 0 to 1"},
		{interference.Profile{PCIe: -.1}, "PCIe is -0.1, legal is 0 to 1"},
		{interference.Profile{Step: math.Inf(1)}, "Step is +Inf s, legal is 0 to 86400"},
		{interference.Profile{Memory: -1}, "Memory is -1, legal is 0 or more"},
	}
	for _, test := range tests {
		err := test.profile.Validate()
		if test.want == "" && err != nil || test.want != "" && (err == nil || !strings.Contains(err.Error(), test.want)) {
			t.Errorf("%+v: got %v, want %q", test.profile, err, test.want)
		}
	}
}
