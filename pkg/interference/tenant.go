package interference

import (
	"math"

	"github.com/tandem-gpu/tandem/pkg/vgpu"
)

// Workload is the number of a workload in a Book; 0 is an unknown workload.
type Workload uint32

// Tenant is a workload on a share of one device, as models see it.
type Tenant struct {
	Workload Workload
	// SM and Bandwidth are what it uses of the device under its cap without neighbours, 0 to 1.
	SM, Bandwidth float64
	// Cap is the part of the SMs that it may use, above 0 to 1.
	Cap float64
	// Brisk is the square root of its steps in a millisecond, without neighbours and under its cap.
	Brisk float64
	// Guessed says that its use is a guess.
	Guessed bool
	// Declared says that its use is a declaration without an observation.
	Declared bool
	Traits
	// Pairs is the knowledge of it beside single others, nil for none.
	Pairs *Pairs
}

// Traits is the learned part of a workload beyond its profile. The zero value is that of a workload without
// observations.
type Traits struct {
	// Sensitivity is how much more it suffers than its profile says, as the logarithm of a factor. Pressure is how much
	// more it harms its neighbours. 0 is as much as the profile says.
	Sensitivity, Pressure float64
	// Level is the part of Sensitivity that all workloads on the GPU model share.
	Level float64
	// Offset is the logarithm of its speed without neighbours: not 0 after a wrong measurement of that speed.
	Offset float64
	// Sure are the parts of the doubt about the three that observations have removed, 0 to 1.
	SureSensitivity, SurePressure, SureOffset float64
	// CoRuns counts its observed co-runs.
	CoRuns int
}

// mostSensitive bounds the effect of a workload's own reports, as the logarithm of a factor: it suffers at most three
// times what its profile says. A larger bound gives more weight to false reports, a smaller one underestimates
// workloads that are truly that sensitive.
const mostSensitive = 1.1

// Believed returns the tenant with the sensitivity that may keep neighbours away. Its own reports make it no more than
// three times as sensitive as its profile says, so that no workload keeps neighbours away by false reports.
func (t Tenant) Believed() Tenant {
	t.Sensitivity = min(t.Sensitivity, t.Level+mostSensitive)
	t.Offset = 0
	return t
}

// leastDeclared is a part of what an unknown workload may use. A workload with a declared use counts for at least that
// part. A larger part keeps honest light workloads with a high compute limit away from promises, a smaller one lets a
// workload that declares nothing evade them.
const leastDeclared = .5

// Doubted returns the tenant as the promises of its neighbours count it. A workload with only a declared use counts
// with at least half of the use of an unknown workload under its enforced cap. Observed co-runs lower that floor as
// they reveal how much it harms its neighbours.
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

// usualStep stands for an unknown time of a step, in seconds. The value is between the requests of inference, some
// milliseconds, and the steps of training, some hundred. A shorter time predicts more harm among capped tenants.
const usualStep = .02

// On returns the workload as a tenant that may use a part of the SMs of a device. The tenant has its use under that
// cap, and its step at the speed of its class. On clamps the part to 1 and the whole device.
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

// Brisk returns Tenant.Brisk for steps of so many seconds: the square root of the steps in a millisecond, at most 3,
// for the shortest measured steps.
func Brisk(step float64) float64 { return min(3, math.Sqrt(.001/step)) }

// Prediction is the predicted speed of one tenant.
type Prediction struct {
	// Speed is its throughput beside its neighbours, as a part of that without: above 0. A value above 1 comes from a
	// wrong measurement of the speed without neighbours.
	Speed float64
	// Error is the standard error of Speed, as a part of it.
	Error float64
}

// Slowdown returns the time beside the neighbours as a multiple of the time alone, at least 1.
func (p Prediction) Slowdown() float64 { return max(1, 1/p.Speed) }
