package experiment

import (
	"math"

	"github.com/tandem-gpu/tandem/evaluation/results"
	"github.com/tandem-gpu/tandem/pkg/vgpu"
)

// unlearning is for policies that do not look at what became of their decisions.
type unlearning struct{}

func (unlearning) observe(*sharingView, int, []float64, float64) {}

// firstFit starts the first job of the queue for which a device has room, on the device of least cost, of equal ones on
// the first.
type firstFit struct {
	unlearning
	// most is how many jobs a device takes.
	most int
	// margin is the memory that stays free beside others.
	margin vgpu.Bytes
	// cost of a job on a device; NaN where it may not start.
	cost func(job *sharedJob, on []sharedJob) float64
}

func (p *firstFit) choose(v *sharingView) (place, device int, ok bool) {
	if !v.hasRoom(p.most) {
		return 0, 0, false
	}
	for i := range v.queue {
		job := &v.queue[i]
		best, least := -1, math.Inf(1)
		for d, on := range v.devices {
			if len(on) >= p.most || !fitsBeside(job, on, p.margin) {
				continue
			}
			if c := p.cost(job, on); c < least {
				best, least = d, c
			}
		}
		if best >= 0 {
			return i, best, true
		}
	}
	return 0, 0, false
}

// hasRoom says whether some device has fewer jobs than so many.
func (v *sharingView) hasRoom(most int) bool {
	for _, on := range v.devices {
		if len(on) < most {
			return true
		}
	}
	return false
}

// fitsBeside says whether the profiles leave so much memory free. On an idle device every job fits.
func fitsBeside(job *sharedJob, on []sharedJob, margin vgpu.Bytes) bool {
	return len(on) == 0 || memoryOf(on)+job.profile.Memory+margin <= sharedMemory
}

func memoryOf(on []sharedJob) vgpu.Bytes {
	sum := vgpu.Bytes(0)
	for i := range on {
		sum += on[i].profile.Memory
	}
	return sum
}

func smOf(on []sharedJob) float64 {
	sum := 0.0
	for i := range on {
		sum += on[i].profile.SM
	}
	return sum
}

// fewest goes by the number of jobs on a device, and where that is equal by what they use.
func fewest(_ *sharedJob, on []sharedJob) float64 {
	return float64(len(on)) + smOf(on)/float64(len(on)+1)
}

// horusMargin is what Horus leaves free of the memory of a shared device.
const horusMargin = 500 * vgpu.MiB

// horus is the cost of Horus (Yeung et al., IEEE TPDS 2022): memory, distance from full utilisation, worse above it, and
// the number of jobs.
//
// Example: 6 GiB beside 6 GiB of 24, SM 0.5 beside SM 0.8: 1.3·½ + 30·1.6/100 + 1 = 2.13.
func horus(job *sharedJob, on []sharedJob) float64 {
	over := 100*min(1, smOf(on)) + 100*job.profile.SM - 100
	weight := 1.0
	if over > 0 {
		weight = 1.6
	}
	memory := float64(memoryOf(on)+job.profile.Memory) / float64(sharedMemory)
	return 1.3*memory + math.Abs(over)*weight/100 + float64(len(on))
}

// lucid returns the cost of Lucid (Hu et al., ASPLOS 2023). Jobs are tiny, medium or jumbo by their mean speed beside
// others, and two share a device whose sizes add up to at most 2. The cost uses the measured speeds.
func lucid(t *sharingTable) func(job *sharedJob, on []sharedJob) float64 {
	sizes := make([]float64, len(t.configs))
	for i := range sizes {
		switch speed := results.Mean(t.speed[i]); {
		case speed < .85:
			sizes[i] = 2
		case speed < .95:
			sizes[i] = 1
		}
	}
	return func(job *sharedJob, on []sharedJob) float64 {
		if len(on) == 0 {
			return -1
		}
		sum := sizes[job.config] + sizes[on[0].config]
		if sum > 2 {
			return math.NaN()
		}
		return sum
	}
}
