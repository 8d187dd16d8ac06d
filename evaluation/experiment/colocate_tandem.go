package experiment

import (
	"math"
	"slices"

	"github.com/tandem-gpu/tandem/pkg/vgpu"
)

const (
	// keptSpeed is the speed that every tenant of a device has to keep, so many doubts below the expectation. A larger
	// speed shares less and slows down less; more doubts are more careful only with new pairs.
	keptSpeed = .58
	doubts    = 2.2
	// keptUnmet is the speed that two jobs have to keep that have never been together, keptUnmetOfThree the one beside
	// a third. A bad pair stays together until one of the two ends, and beside a third it loses more. A larger value
	// bounds the slowest job, and shares less while pairs are unknown. All four come from a search on Lucid's pairs
	// with seeds 1 to 60.
	keptUnmet        = .6
	keptUnmetOfThree = .65
	// keptMemory is what stays free of the memory of a shared device. Less ran out of memory once in some thousand starts,
	// since some pairs hold up to 2 GiB more than their profiles say.
	keptMemory = 1536 * vgpu.MiB
)

// tandem starts, of the first jobs of the queue, the job on the device where it does less harm than elsewhere by the
// most, where every tenant keeps enough. Elsewhere is beside the jobs that run or wait: so a job that harms most gets
// an idle device, and a job that does no harm waits for the place that needs it. The policy learns its expectations
// from the co-runs as they happen. Among equal choices it takes the first job, then the first device. Once as many
// later jobs as the window holds have passed a job, only that job may start.
type tandem struct {
	learner *bookLearner
	// first is the first job of the queue, and passed how many others started since it is.
	first, passed int
	// known lists the tenants of each device whose speeds the policy learns.
	known [][]int
	// met lists the pairs of configurations that were together.
	met map[[2]int]bool
	// present is how many jobs of each configuration run or wait.
	present       []float64
	together      []sharedJob
	before, after []expectation
}

func newTandem(t *sharingTable, learner *bookLearner) *tandem {
	return &tandem{learner: learner, met: map[[2]int]bool{}, present: make([]float64, len(t.configs))}
}

func (p *tandem) choose(v *sharingView) (place, device int, ok bool) {
	if !v.hasRoom(mostSharing) {
		return 0, 0, false
	}
	place, device, ok = p.best(v, v.queue[:p.window(v)])
	if ok {
		p.passed++
	}
	return place, device, ok
}

// window is how many jobs may start.
func (p *tandem) window(v *sharingView) int {
	if id := v.queue[0].id; id != p.first {
		p.first, p.passed = id, 0
	}
	if p.passed >= sharingWindow {
		return 1
	}
	return min(sharingWindow, len(v.queue))
}

// best returns which of some jobs starts where.
func (p *tandem) best(v *sharingView, jobs []sharedJob) (place, device int, ok bool) {
	p.count(v, jobs)
	least := math.Inf(1)
	for i := range jobs {
		job := &jobs[i]
		if slices.ContainsFunc(jobs[:i], func(j sharedJob) bool { return j.config == job.config }) {
			continue // alike
		}
		usual := p.usualHarm(job.config)
		for d, on := range v.devices {
			if len(on) >= mostSharing || !fitsBeside(job, on, keptMemory) {
				continue
			}
			if harm := p.harm(job, on) - usual; harm < least {
				least, place, device = harm, i, d
			}
		}
	}
	return place, device, least < math.Inf(1)
}

// count notes how many jobs of each configuration run or wait.
func (p *tandem) count(v *sharingView, jobs []sharedJob) {
	clear(p.present)
	for i := range jobs {
		p.present[jobs[i].config]++
	}
	for _, on := range v.devices {
		for i := range on {
			p.present[on[i].config]++
		}
	}
}

// usualHarm is what two lose of their speeds, of which one is of this configuration, on average over the others.
func (p *tandem) usualHarm(config int) float64 {
	sum, n := 0.0, 0.0
	for other, jobs := range p.present {
		if jobs > 0 {
			sum += jobs * (2 - p.learner.speed(config, other) - p.learner.speed(other, config))
			n += jobs
		}
	}
	return sum / n
}

// harm returns what all tenants lose of their speeds when a job comes, +Inf if one of them may not keep enough.
func (p *tandem) harm(job *sharedJob, on []sharedJob) float64 {
	if len(on) == 0 {
		return 0
	}
	p.together = append(append(p.together[:0], on...), *job)
	p.before, p.after = p.learner.expect(on, p.before), p.learner.expect(p.together, p.after)
	least := keptSpeed
	switch {
	case p.allMet(p.together):
	case len(p.together) > 2:
		least = keptUnmetOfThree
	default:
		least = keptUnmet
	}
	lost := 1.0
	for _, e := range p.before {
		lost += e.speed
	}
	for _, e := range p.after {
		if e.speed*math.Exp(-doubts*e.doubt) < least {
			return math.Inf(1)
		}
		lost -= e.speed
	}
	return lost
}

// allMet says whether each two of the tenants have been together before.
func (p *tandem) allMet(tenants []sharedJob) bool {
	for i := range tenants {
		for k := range tenants[:i] {
			if !p.met[[2]int{tenants[i].config, tenants[k].config}] {
				return false
			}
		}
	}
	return true
}

// observe learns from each neighbourhood once: its speeds do not change.
func (p *tandem) observe(v *sharingView, device int, speeds []float64, _ float64) {
	on := v.devices[device]
	ids := make([]int, 0, mostSharing)
	for i := range on {
		ids = append(ids, on[i].id)
	}
	for i := range on {
		for k := range on {
			if i != k {
				p.met[[2]int{on[i].config, on[k].config}] = true
			}
		}
	}
	if p.known == nil {
		p.known = make([][]int, len(v.devices))
	}
	if len(on) > 1 && !slices.Equal(ids, p.known[device]) {
		p.learner.learn(on, speeds, v.now)
	}
	p.known[device] = ids
}
