package experiment

import (
	"cmp"
	"math"

	"github.com/tandem-gpu/tandem/pkg/interference"
	"github.com/tandem-gpu/tandem/pkg/vgpu"
)

// mostSharing is how many jobs share a device at most. Measurements exist for two at once only: the product of their
// pairs counts for three, and no further.
const mostSharing = 3

// sharingWindow is the number of waiting jobs that a policy looks at, the first of the queue.
const sharingWindow = 40

// leastSpeed is the speed below which no job of a device is to fall.
const leastSpeed = .8

// leastHarm starts the job on the device where all jobs together lose the least speed, and every job keeps leastSpeed.
// Among equal choices it takes the device with fewer jobs, then the first job, then the first device. A job does no
// harm on an idle device.
type leastHarm struct {
	unlearning
	// speeds writes the expected speeds of the jobs of a device.
	speeds func(on []sharedJob, out []float64) []float64
	// fits says whether the memory probably suffices.
	fits func(job *sharedJob, on []sharedJob) bool

	// tried holds the configurations that this choice has looked at.
	tried         map[int]bool
	together      []sharedJob
	before, after []float64
}

// sharingChoice is a job, a device, and the loss.
type sharingChoice struct {
	harm          float64
	place, device int
	tenants       int
}

func (p *leastHarm) choose(v *sharingView) (place, device int, ok bool) {
	best := sharingChoice{harm: math.Inf(1)}
	if !v.hasRoom(mostSharing) {
		return 0, 0, false
	}
	clear(p.tried)
	for i := range v.queue[:min(sharingWindow, len(v.queue))] {
		if p.tried[v.queue[i].config] {
			continue // as good as the one before
		}
		p.tried[v.queue[i].config] = true
		for d, on := range v.devices {
			if len(on) >= mostSharing || !p.fits(&v.queue[i], on) {
				continue
			}
			c := sharingChoice{p.harm(&v.queue[i], on), i, d, len(on)}
			if cmp.Or(cmp.Compare(c.harm, best.harm), cmp.Compare(c.tenants, best.tenants)) < 0 {
				best = c
			}
		}
	}
	return best.place, best.device, best.harm < math.Inf(1)
}

// harm returns what all jobs lose of their speeds when one comes, +Inf if one of them becomes too slow.
func (p *leastHarm) harm(job *sharedJob, on []sharedJob) float64 {
	p.together = append(append(p.together[:0], on...), *job)
	p.before, p.after = p.speeds(on, p.before), p.speeds(p.together, p.after)
	lost := 1.0
	for _, s := range p.before {
		lost += s
	}
	for _, s := range p.after {
		if s < leastSpeed {
			return math.Inf(1)
		}
		lost -= s
	}
	return lost
}

// oracle knows the measured speeds and memory.
func oracle(t *sharingTable) sharingPolicy {
	var together []sharedJob
	return &leastHarm{
		tried: map[int]bool{}, speeds: t.speeds,
		fits: func(job *sharedJob, on []sharedJob) bool {
			together = append(append(together[:0], on...), *job)
			return t.memory(together) <= sharedMemory
		},
	}
}

// predicted goes by a model as it is shipped, and chooses among as many jobs as the others.
func predicted(model string) (sharingPolicy, error) {
	m, err := interference.ByName(model)
	if err != nil {
		return nil, err
	}
	var tenants []interference.Tenant
	var predictions []interference.Prediction
	return &leastHarm{
		tried: map[int]bool{},
		fits:  func(job *sharedJob, on []sharedJob) bool { return fitsBeside(job, on, 0) },
		speeds: func(on []sharedJob, out []float64) []float64 {
			tenants, out = tenants[:0], out[:0]
			for i := range on {
				tenants = append(tenants, on[i].profile.On(vgpu.WholeGPU))
			}
			predictions = m.Predict(tenants, predictions)
			for _, p := range predictions {
				out = append(out, min(1, p.Speed))
			}
			return out
		},
	}, nil
}
