package experiment

import (
	"github.com/tandem-gpu/tandem/pkg/interference"
	"github.com/tandem-gpu/tandem/pkg/vgpu"
)

// sharingGPU is the number of the one GPU model in books.
const sharingGPU interference.GPU = 1

// tandem starts, of the first jobs of the queue, the job on the device where the least speed is expected to be lost. What
// to expect it learns from the co-runs as they happen.
type tandem struct {
	search leastHarm
	book   *interference.Book
	model  interference.Model
	// learned lists the jobs of each device of whose speeds the book was told.
	learned     [][]int
	tenants     []interference.Tenant
	predictions []interference.Prediction
}

// newTandem returns the policy, which goes by profiles and by what the model learns or knows.
func newTandem(t *sharingTable, m interference.Model) (sharingPolicy, error) {
	p := &tandem{model: m, book: interference.NewBook(m, max(1, len(t.configs)))}
	for i := range t.configs {
		if err := p.book.Declare(workloadOf(i), sharingGPU, t.configs[i].profile); err != nil {
			return nil, err
		}
	}
	p.search = leastHarm{window: sharingWindow, speeds: p.speeds, fits: func(job *sharedJob, on []sharedJob) bool {
		return fitsBeside(job, on, horusMargin)
	}}
	return p, nil
}

func workloadOf(config int) interference.Workload { return interference.Workload(config + 1) }

func (p *tandem) choose(v *sharingView) (place, device int, ok bool) { return p.search.choose(v) }

func (p *tandem) speeds(on []sharedJob, out []float64) []float64 {
	p.tenants, out = p.tenants[:0], out[:0]
	for i := range on {
		p.tenants = append(p.tenants, p.book.Tenant(workloadOf(on[i].config), sharingGPU, vgpu.WholeGPU))
	}
	p.predictions = p.model.Predict(p.tenants, p.predictions)
	for _, s := range p.predictions {
		out = append(out, min(1, s.Speed))
	}
	return out
}

// observe tells the book of each neighbourhood once.
func (p *tandem) observe(v *sharingView, device int, speeds []float64, _ float64) {
	for len(p.learned) <= device {
		p.learned = append(p.learned, nil)
	}
	on := v.devices[device]
	if !p.isNew(device, on) || len(on) < 2 {
		return
	}
	for i := range on {
		o := interference.Observation{GPU: sharingGPU, Of: runnerOf(&on[i]), Speed: speeds[i]}
		for j := range on {
			if j != i {
				o.Beside = append(o.Beside, runnerOf(&on[j]))
			}
		}
		if err := p.book.Observe(o); err != nil {
			panic(err)
		}
	}
}

// isNew says whether the jobs of a device are others than the last time, and notes them.
func (p *tandem) isNew(device int, on []sharedJob) bool {
	last := p.learned[device]
	same := len(last) == len(on)
	for i := range min(len(last), len(on)) {
		same = same && last[i] == on[i].id
	}
	p.learned[device] = last[:0]
	for i := range on {
		p.learned[device] = append(p.learned[device], on[i].id)
	}
	return !same
}

func runnerOf(j *sharedJob) interference.Runner {
	return interference.Runner{Workload: workloadOf(j.config), Cap: vgpu.WholeGPU}
}

// measuredModel is a model that knows the measured speeds.
func measuredModel(t *sharingTable) (interference.Model, error) {
	m, err := interference.ByName("table")
	if err != nil {
		return m, err
	}
	var known interference.Table
	for i := range t.speed {
		for j, s := range t.speed[i] {
			known.Set(workloadOf(i), workloadOf(j), s)
		}
	}
	return m.WithTable(&known), nil
}
