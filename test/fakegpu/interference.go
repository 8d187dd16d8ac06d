package fakegpu

import (
	"math"
	"time"
)

// Interference is how the tenants of a device slow each other down, which shows only by its effects. A tenant with
// sensitivity S beside neighbours with pressures P runs at
//
//	speed = min(1, cap ÷ SM) ÷ (1 + S·ΣP)      times a noise from 1−Noise to 1+Noise
//
// of what it does alone on the whole device. The tenant uses its SM and its bandwidth in proportion to its speed.
// Example: S is 0.5, two neighbours press with 0.4 and 0.2: 1/(1 + 0.5·0.6) = 77 % of its speed. An idle tenant, one
// with neither SM nor bandwidth, presses on none. Without noise, and with tenants of sensitivity 0, there is no
// slowdown.
//
// The form is that of a rank-one model (sensitivity × pressure), an invention like its figures, without a measurement
// on a real GPU.
type Interference struct {
	// Seed of the noise. Equal seeds, tenants and steps give equal figures.
	Seed uint64 `json:"seed,omitempty"`
	// Noise is the greatest part by which a speed is off, from 0 to below 1: 0.1 is ±10 %, evenly spread.
	Noise float64 `json:"noise,omitempty"`
	// StepMillis is how long the fakes keep one draw of the noise; 0 means a second.
	StepMillis int `json:"stepMillis,omitempty"`
}

// Hidden is what a tenant is like.
type Hidden struct {
	// ID separates the tenants of a device for the noise; in the fakes it is the PID.
	ID uint64
	// SM and Bandwidth are what the tenant uses of the device alone and without a cap, parts from 0 to 1.
	SM, Bandwidth float64
	// Sensitivity says how much the tenant suffers from its neighbours, Pressure how much they suffer from it; 0 or more.
	Sensitivity, Pressure float64
	// Cap is the part of the SMs that the tenant may use; 0 for all.
	Cap float64
}

// CoRun is what happened on a device in one step. Speeds and SM are those of each tenant, in their order; the bandwidth
// is that of the device alone, as in NVML.
type CoRun struct {
	// Speeds are the work done ÷ the work done alone on the whole device in that time: an honest tenant reports it,
	// times its rate alone. Noise may lift one above 1.
	Speeds []float64
	// SM is what each tenant used, DeviceSM and DeviceBandwidth what all did: parts of the device from 0 to 1.
	SM                        []float64
	DeviceSM, DeviceBandwidth float64
}

// Speed returns the speed of the at-th tenant without noise, which is what a learner should find.
func Speed(tenants []Hidden, at int) float64 {
	pressed := 0.0
	for i := range tenants {
		if i != at && !tenants[i].idle() {
			pressed += tenants[i].Pressure
		}
	}
	t := &tenants[at]
	speed := 1 / (1 + t.Sensitivity*pressed)
	if t.Cap > 0 && t.Cap < t.SM {
		speed *= t.Cap / t.SM
	}
	return speed
}

func (h *Hidden) idle() bool { return h.SM == 0 && h.Bandwidth == 0 }

// Run writes what the tenants do in a step to out, whose slices it uses again. The same step gives the same figures,
// whatever the order of the tenants.
func (i Interference) Run(tenants []Hidden, step uint64, out *CoRun) {
	out.Speeds, out.SM = out.Speeds[:0], out.SM[:0]
	out.DeviceSM, out.DeviceBandwidth = 0, 0
	for at := range tenants {
		t := &tenants[at]
		speed := Speed(tenants, at) * i.noise(t.ID, step)
		sm := min(1, t.SM*speed)
		out.Speeds, out.SM = append(out.Speeds, speed), append(out.SM, sm)
		out.DeviceSM = min(1, out.DeviceSM+sm)
		out.DeviceBandwidth = min(1, out.DeviceBandwidth+t.Bandwidth*speed)
	}
}

// noise returns the factor of a tenant in a step.
func (i Interference) noise(id, step uint64) float64 {
	if i.Noise == 0 {
		return 1
	}
	drawn := mix(mix(mix(i.Seed)+id) + step)
	part := float64(drawn>>11) / (1 << 53) // 53 random bits: from 0 to below 1
	return 1 + i.Noise*(2*part-1)
}

// mix is the output function of SplitMix64 (Steele, Lea and Flood, "Fast splittable pseudorandom number generators",
// OOPSLA 2014). A small change of the input changes half of the bits of the output.
func mix(x uint64) uint64 {
	x += 0x9e3779b97f4a7c15
	x = (x ^ x>>30) * 0xbf58476d1ce4e5b9
	x = (x ^ x>>27) * 0x94d049bb133111eb
	return x ^ x>>31
}

// Step returns the number of the step at a time.
func (i Interference) Step(now time.Time) uint64 {
	every := int64(i.StepMillis)
	if every <= 0 {
		every = 1000
	}
	return uint64(now.UnixMilli() / every)
}

// Slow returns the speeds of clients and of processes without MPS on one device at a time, in that order. Caps do not
// count in them: the use of clients is after limits.
func (i Interference) Slow(clients []ClientUsage, alone []Process, now time.Time) []float64 {
	tenants := make([]Hidden, 0, len(clients)+len(alone))
	for _, c := range clients {
		tenants = append(tenants, Hidden{
			ID: uint64(c.PID), SM: percent(c.SM), Bandwidth: percent(c.Bandwidth), Sensitivity: c.Sensitivity, Pressure: c.Pressure,
		})
	}
	for _, p := range alone {
		tenants = append(tenants, Hidden{
			ID: uint64(p.PID), SM: percent(int(p.SM)), Bandwidth: percent(int(p.MemoryBandwidth)), Sensitivity: p.Sensitivity, Pressure: p.Pressure,
		})
	}
	var together CoRun
	i.Run(tenants, i.Step(now), &together)
	return together.Speeds
}

func percent(n int) float64 { return float64(n) / 100 }

// Slowed returns the rest of a use in percent at a speed.
func Slowed(use int, speed float64) int { return int(math.Round(float64(use) * speed)) }
