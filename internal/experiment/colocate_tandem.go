package experiment

import (
	"math"
	"slices"

	"github.com/tandem-gpu/tandem/pkg/interference"
	"github.com/tandem-gpu/tandem/pkg/vgpu"
)

const (
	// keptSpeed is what every tenant of a device has to keep, less one standard error. Larger shares less: at .8 the
	// makespan is 2 to 3 % longer than where nobody looks at harm, and the mean slowdown lower by .03.
	keptSpeed = .7
	// keptMemory is what stays free of the memory of a shared device. Less ran out of memory once in some thousand starts,
	// since some pairs hold up to 2 GiB more than their profiles say.
	keptMemory = 1536 * vgpu.MiB
)

// tandem starts, of the first jobs of the queue, the job on the device where the least speed is expected to be lost, if
// every tenant keeps enough. What to expect it learns from the co-runs as they happen. Of equal choices it takes the first
// job, then the first device; a job does no harm on an idle device.
type tandem struct {
	learner *pairLearner
	// known lists the tenants of each device whose speeds are learned.
	known [][]int
	// tried says which configurations were looked at in this choice: two jobs of one are alike.
	tried    []bool
	together []sharedJob
	before   []expectation
	after    []expectation
}

func newTandem(t *sharingTable, m interference.Model) *tandem {
	return &tandem{learner: newPairLearner(t, m), tried: make([]bool, len(t.configs))}
}

func (p *tandem) choose(v *sharingView) (place, device int, ok bool) {
	if !v.hasRoom(mostSharing) {
		return 0, 0, false
	}
	clear(p.tried)
	least := math.Inf(1)
	for i := range v.queue[:min(sharingWindow, len(v.queue))] {
		job := &v.queue[i]
		if p.tried[job.config] {
			continue
		}
		p.tried[job.config] = true
		for d, on := range v.devices {
			if len(on) >= mostSharing || !fitsBeside(job, on, keptMemory) {
				continue
			}
			if harm := p.harm(job, on); harm < least {
				least, place, device = harm, i, d
			}
		}
	}
	return place, device, least < math.Inf(1)
}

// harm returns what all tenants lose of their speeds when a job comes, +Inf if one of them may not keep enough.
func (p *tandem) harm(job *sharedJob, on []sharedJob) float64 {
	p.together = append(append(p.together[:0], on...), *job)
	p.before, p.after = p.learner.expect(on, p.before), p.learner.expect(p.together, p.after)
	lost := 1.0
	for _, e := range p.before {
		lost += e.speed
	}
	for _, e := range p.after {
		if e.speed*math.Exp(-e.doubt) < keptSpeed && len(on) > 0 {
			return math.Inf(1)
		}
		lost -= e.speed
	}
	return lost
}

// observe learns from each neighbourhood once: its speeds do not change.
func (p *tandem) observe(v *sharingView, device int, speeds []float64, _ float64) {
	on := v.devices[device]
	ids := make([]int, 0, mostSharing)
	for i := range on {
		ids = append(ids, on[i].id)
	}
	if p.known == nil {
		p.known = make([][]int, len(v.devices))
	}
	if len(on) > 1 && !slices.Equal(ids, p.known[device]) {
		p.learner.learn(on, speeds)
	}
	p.known[device] = ids
}
