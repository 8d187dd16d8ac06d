package interference

import (
	"math"
	"testing"

	"pgregory.net/rapid"

	"github.com/tandem-gpu/tandem/pkg/vgpu"
)

func TestCurveSpeed(t *testing.T) {
	for _, tc := range []struct {
		name  string
		fixed float64
		part  vgpu.MilliGPU
		want  float64
	}{
		{"all SMs", .25, 1000, 1},
		{"more than all", .25, 1001, 1},
		{"half: 1 ÷ (.25 + .75 ÷ .5)", .25, 500, 1 / 1.75},
		{"a tenth: 1 ÷ (.9 + .1 ÷ .1)", .9, 100, 1 / 1.9},
		{"in proportion", 0, 300, .3},
		{"of no matter", 1, 1, 1},
		{"a thousandth: 1 ÷ (.5 + .5 × 1000)", .5, 1, 1 / 500.5},
		{"none is as a thousandth", .5, 0, 1 / 500.5},
		{"less than none too", .5, math.MinInt64, 1 / 500.5},
	} {
		if got := (Curve{Fixed: tc.fixed}).Speed(tc.part); math.Abs(got-tc.want) > 1e-15 {
			t.Errorf("%s: %v, want %v", tc.name, got, tc.want)
		}
	}
}

// TestSpeedOfClasses: of every class, at every part: above 0, at most 1, more with more SMs, and at least in proportion.
func TestSpeedOfClasses(t *testing.T) {
	for c := range classes {
		before := 0.0
		for part := vgpu.MilliGPU(1); part <= vgpu.WholeGPU; part++ {
			got := c.Speed(part)
			if !(got > before && got <= 1) {
				t.Fatalf("%v: speed %v on %v after %v on less", c, got, part, before)
			}
			if least := float64(part) / float64(vgpu.WholeGPU); got < least {
				t.Fatalf("%v: speed %v on %v is less than in proportion", c, got, part)
			}
			before = got
		}
		if before != 1 {
			t.Errorf("%v: speed %v on the whole device", c, before)
		}
		if k := c.Curve(); !(k.Fixed >= 0 && k.Fixed < 1 && k.Error > 0 && k.Error < .5) {
			t.Errorf("%v: curve %+v", c, k)
		}
	}
}

// TestClassesAreInOrder: knowledge of work never makes it slower than unknown work, and light work is the fastest on few
// SMs. A table that is put together in another order fails here.
func TestClassesAreInOrder(t *testing.T) {
	const part = 250
	for c := range classes {
		if s := c.Speed(part); s < ClassUnknown.Speed(part) || s > ClassLight.Speed(part) {
			t.Errorf("%v has speed %v, outside of unknown work's %v and light work's %v", c, s, ClassUnknown.Speed(part), ClassLight.Speed(part))
		}
	}
	// Reading prompts needs the SMs more than writing does.
	if p, d := ClassPrefill.Speed(part), ClassDecode.Speed(part); p >= d {
		t.Errorf("prefill has speed %v, decode %v", p, d)
	}
}

func TestUnder(t *testing.T) {
	full := Profile{SM: .9, Bandwidth: .5, PCIe: .2, Memory: 3 * vgpu.GiB, Step: .2, Guessed: true}
	for _, tc := range []struct {
		name string
		part vgpu.MilliGPU
		want Profile
	}{
		{"no cap", 1000, full},
		{"a cap above all", 2000, full},
		// Unknown work has speed 0.25 on a quarter: √0.25 = 0.5.
		{"a quarter", 250, Profile{SM: .25, Bandwidth: .25, PCIe: .05, Memory: 3 * vgpu.GiB, Step: .8, Guessed: true}},
		// √0.96 × 0.5 = 0.489898, 0.96 × 0.2 = 0.192.
		{"a cap above its use", 960, Profile{SM: .9, Bandwidth: .4898979486, PCIe: .192, Memory: 3 * vgpu.GiB, Step: .2083333333, Guessed: true}},
		// As on a thousandth: √0.001 × 0.5 = 0.0158114.
		{"nothing", 0, Profile{Bandwidth: .0158113883, PCIe: .0002, Memory: 3 * vgpu.GiB, Step: 200, Guessed: true}},
		{"less than nothing", -5, Profile{Bandwidth: .0158113883, PCIe: .0002, Memory: 3 * vgpu.GiB, Step: 200, Guessed: true}},
	} {
		got := full.Under(tc.part)
		near := func(a, b float64) bool { return math.Abs(a-b) < 1e-9 }
		if !near(got.SM, tc.want.SM) || !near(got.Bandwidth, tc.want.Bandwidth) || !near(got.PCIe, tc.want.PCIe) || !near(got.Step, tc.want.Step) ||
			got.Memory != tc.want.Memory || got.Class != tc.want.Class || got.Guessed != tc.want.Guessed {
			t.Errorf("%s: %+v, want %+v", tc.name, got, tc.want)
		}
	}
	if full.SM != .9 {
		t.Errorf("the profile itself was changed: %+v", full)
	}
}

// profiles draws legal profiles.
func profiles() *rapid.Generator[Profile] {
	return rapid.Custom(func(t *rapid.T) Profile {
		part := rapid.OneOf(rapid.Float64Range(0, 1), rapid.SampledFrom([]float64{0, 1, 5e-324}))
		return Profile{
			SM: part.Draw(t, "sm"), Bandwidth: part.Draw(t, "bandwidth"), PCIe: part.Draw(t, "pcie"),
			Step: rapid.Float64Range(0, maxStep).Draw(t, "step"), Memory: vgpu.Bytes(rapid.Int64Range(0, math.MaxInt64).Draw(t, "memory")),
			Class: Class(rapid.Uint8().Draw(t, "class")), Guessed: rapid.Bool().Draw(t, "guessed"),
		}
	})
}

// TestPropertyUnder: under any cap a legal profile is legal, uses at most what it uses without, and no more under a lower
// cap.
func TestPropertyUnder(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		p := profiles().Draw(t, "profile")
		parts := rapid.Int64Range(-10, 1100)
		low, high := parts.Draw(t, "low"), parts.Draw(t, "high")
		low, high = min(low, high), max(low, high)
		a, b := p.Under(vgpu.MilliGPU(low)), p.Under(vgpu.MilliGPU(high))
		if err := a.Validate(); err != nil {
			t.Fatal(err)
		}
		if a.SM > b.SM || a.Bandwidth > b.Bandwidth || a.PCIe > b.PCIe || b.SM > p.SM || b.Bandwidth > p.Bandwidth || b.PCIe > p.PCIe {
			t.Fatalf("%+v uses %+v under %d and %+v under %d", p, a, low, b, high)
		}
		if a.Step < b.Step || b.Step < p.Step {
			t.Fatalf("steps of %v s take %v s under %d and %v s under %d", p.Step, a.Step, low, b.Step, high)
		}
		if a.Memory != p.Memory || a.Class != p.Class || a.Guessed != p.Guessed {
			t.Fatalf("%+v becomes %+v under %d", p, a, low)
		}
		if limit := max(float64(low), 0) / 1000; a.SM > limit {
			t.Fatalf("%+v uses SM %v under %d", p, a.SM, low)
		}
	})
}

// TestUnderAllocates: both are asked for every neighbour of every candidate.
func TestUnderAllocates(t *testing.T) {
	p, sum := Profile{SM: .8, Bandwidth: .4, Class: ClassTraining}, 0.0
	if n := testing.AllocsPerRun(100, func() { q := p.Under(370); sum += q.Bandwidth + q.Class.Speed(370) }); n != 0 {
		t.Errorf("%v allocations, want none", n)
	}
}

// Measured on one core of an AMD EPYC: see docs/decisions/0012-features-and-curves.md.
func BenchmarkSpeed(b *testing.B) {
	sum := 0.0
	for i := range b.N {
		sum += Class(i % int(classes)).Speed(vgpu.MilliGPU(i % 1000))
	}
	if sum < 0 {
		b.Fatal(sum)
	}
}

func BenchmarkUnder(b *testing.B) {
	p, sum := Profile{SM: .8, Bandwidth: .4, Class: ClassTraining}, 0.0
	for i := range b.N {
		q := p.Under(vgpu.MilliGPU(i % 1000))
		sum += q.SM + q.Bandwidth
	}
	if sum < 0 {
		b.Fatal(sum)
	}
}
