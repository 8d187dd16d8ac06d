package interference

import (
	"math"

	"github.com/tandem-gpu/tandem/pkg/vgpu"
)

// Workload is the number of a workload in a Book; 0 is one that nobody knows.
type Workload uint32

// Tenant is a workload on a share of one device, as models see it.
type Tenant struct {
	Workload Workload
	// SM and Bandwidth are what it uses of the device under its cap when it has no neighbours, 0 to 1.
	SM, Bandwidth float64
	// Cap is the part of the SMs that it may use, above 0 to 1.
	Cap float64
	// Brisk is the square root of the steps that it does in a millisecond, alone and under its cap.
	Brisk float64
	// Guessed says that its use is a guess.
	Guessed bool
	// Declared says that its use is what a user says, and that nobody observed it.
	Declared bool
	Traits
	// Pairs is what is known of it beside single others, nil for nothing.
	Pairs *Pairs
}

// Traits is what was learned of a workload beyond its profile. The zero value is of one that was never observed.
type Traits struct {
	// Sensitivity is by how much more it suffers than its profile says, as a factor's logarithm; Pressure by how much more
	// it harms its neighbours. Both are 0 for as much as the profile says.
	Sensitivity, Pressure float64
	// Level is the part of Sensitivity that all workloads on the GPU model share.
	Level float64
	// Offset is the logarithm of its speed beside no neighbours: not 0 where its speed alone was measured wrongly.
	Offset float64
	// Sure are the parts of the doubt about the three that observations have removed, 0 to 1.
	SureSensitivity, SurePressure, SureOffset float64
	// CoRuns counts its observed co-runs.
	CoRuns int
}

// mostSensitive bounds what a workload's own word is believed, as a factor's logarithm: it suffers at most three times what
// its profile says. Larger believes liars, smaller misjudges those who are truly that sensitive.
const mostSensitive = 1.1

// Believed returns the tenant as sensitive as its neighbours are refused for: what it reported of itself makes it no more
// than three times as sensitive as its profile says, so that nobody pushes neighbours away by claiming to suffer.
func (t Tenant) Believed() Tenant {
	t.Sensitivity = min(t.Sensitivity, t.Level+mostSensitive)
	t.Offset = 0
	return t
}

// leastDeclared is the part of what a workload may use that it is taken to use at least while its use is only declared. More
// keeps honest light workloads with a high compute limit from promises, less lets a workload that declares nothing evade them.
const leastDeclared = .5

// Doubted returns the tenant as the promises of its neighbours count it: where its use is only declared, it uses at least half of
// what a workload of which nothing is known would use under its cap, which is enforced. The floor goes as observed co-runs tell how
// much it harms its neighbours.
func (t Tenant) Doubted() Tenant {
	if !t.Declared {
		return t
	}
	unknown := Unknown()
	under := unknown.On(vgpu.MilliGPU(math.Round(t.Cap * float64(vgpu.WholeGPU))))
	part := leastDeclared * (1 - t.SurePressure)
	t.SM, t.Bandwidth = max(t.SM, part*under.SM), max(t.Bandwidth, part*under.Bandwidth)
	return t
}

// usualStep is taken for the time of a step where nobody knows it, in seconds: between the requests of inference, some
// milliseconds, and the steps of training, some hundred. Shorter expects more harm among capped tenants.
const usualStep = .02

// On returns the workload as a tenant that may use a part of the SMs of a device: its use under that cap, and its step as
// long as the class's speed makes it. Parts outside 1 to the whole device are taken as the nearer of the two.
func (p *Profile) On(part vgpu.MilliGPU) Tenant {
	part = min(max(part, 1), vgpu.WholeGPU)
	speed := p.Class.Speed(part)
	under := p.slowed(part, speed)
	step := p.Step
	if step == 0 {
		step = usualStep
	}
	return Tenant{
		SM: under.SM, Bandwidth: under.Bandwidth, Cap: float64(part) / float64(vgpu.WholeGPU),
		Brisk: Brisk(step / speed), Guessed: p.Guessed, Declared: p.Declared,
	}
}

// Brisk returns Tenant.Brisk for steps of so many seconds: the square root of the steps in a millisecond, at most 3, which
// are the shortest that were measured.
func Brisk(step float64) float64 { return min(3, math.Sqrt(.001/step)) }

// Prediction is what becomes of one tenant.
type Prediction struct {
	// Speed is its throughput beside its neighbours, as a part of what it does alone: above 0. It may be above 1 where
	// the speed alone was measured wrongly.
	Speed float64
	// Error is the standard error of Speed, as a part of it.
	Error float64
}

// Slowdown returns the time beside the neighbours as a multiple of the time alone, at least 1.
func (p Prediction) Slowdown() float64 { return max(1, 1/p.Speed) }
