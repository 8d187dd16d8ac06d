package interference

import (
	"math"

	"github.com/tandem-gpu/tandem/pkg/vgpu"
)

// Curve says how the speed of a class of work follows its part of the SMs, with an error. A fixed part of the time of a
// step passes as fast on few SMs as on many. The rest takes longer with fewer SMs (Amdahl's law).
//
//	time(part) ÷ time(whole) = Fixed + (1 − Fixed) ÷ part
//
// Example: with Fixed 0.25, half of the SMs take 0.25 + 0.75 ÷ 0.5 = 1.75 times as long, and the speed is 1 ÷ 1.75 = 0.571.
type Curve struct {
	// Fixed is that part of the time, from 0 (speed in proportion to the SMs) to 1 (the SMs do not matter).
	Fixed float64
	// Error is the standard error of the speed for work and GPU models outside the fit: 0 to 1.
	Error float64
}

// Speed returns the speed on a part of the SMs as a part of the speed on all of them. The speed is above 0, at most 1,
// and never less on more SMs. The part counts within a thousandth and the whole device.
func (c Curve) Speed(part vgpu.MilliGPU) float64 {
	if part >= vgpu.WholeGPU {
		return 1
	}
	sms := float64(max(part, 1))
	return sms / (c.Fixed*sms + (1-c.Fixed)*float64(vgpu.WholeGPU))
}

// Curve returns the fitted curve of the class. A number that stands for no class is unknown work.
func (c Class) Curve() Curve {
	if c >= classes {
		c = ClassUnknown
	}
	return fittedCurves[c]
}

// Speed returns the speed of the class on a part of the SMs as a part of its speed on all of them: see Curve.Speed.
func (c Class) Speed(part vgpu.MilliGPU) float64 { return c.Curve().Speed(part) }

// Under returns what the workload uses of the device, as its neighbours see it, when it may use only a part of the SMs.
// The workload then uses at most that part of the SMs, and the bus in proportion to its speed. Its memory bandwidth
// follows the square root of its speed, since fewer SMs at once find less of their data in the cache. Its memory stays
// the same, and its steps take longer. Measurements exist only for the bandwidth (iGniter, decisions/0012); the others
// are bounds or follow from the speed. Under clamps the part to 0 and the whole device.
//
// Example: training with SM 0.9 and Bandwidth 0.5 on half of the SMs has SM 0.5; at speed 0.571 its Bandwidth is 0.5 × √0.571
// = 0.378.
func (p Profile) Under(part vgpu.MilliGPU) Profile {
	return p.slowed(part, p.Class.Speed(part))
}

// slowed is Under for a known speed.
func (p Profile) slowed(part vgpu.MilliGPU, speed float64) Profile {
	if part >= vgpu.WholeGPU {
		return p
	}
	p.SM = min(p.SM, float64(max(part, 0))/float64(vgpu.WholeGPU))
	p.Bandwidth *= math.Sqrt(speed)
	p.PCIe *= speed
	p.Step = min(p.Step/speed, maxStep)
	return p
}
