package experiment

import (
	"fmt"

	"github.com/tandem-gpu/tandem/pkg/interference"
	"github.com/tandem-gpu/tandem/pkg/vgpu"
)

// expectation is the expected speed of a tenant. The doubt is the standard error of its logarithm.
type expectation struct{ speed, doubt float64 }

// settling is after how many seconds a learner goes over all that it knows, as the scheduler's does.
const settling = 600.

// bookLearner learns with what the scheduler learns with, interference.Book, as the scheduler does: from each co-run,
// and every ten minutes from all together. It limits its knowledge of a job's sensitivity as the scheduler does.
type bookLearner struct {
	model interference.Model
	book  *interference.Book
	// settled is when it last went over all.
	settled float64
	tenants []interference.Tenant
	// pairs remembers speeds of pairs until the next co-run.
	pairs     map[[2]int]float64
	on        []interference.Tenant
	predicted []interference.Prediction
}

// bookGPU numbers the only GPU model.
const bookGPU interference.GPU = 1

func newBookLearner(t *sharingTable, m interference.Model) (*bookLearner, error) {
	l := &bookLearner{model: m, book: interference.NewBook(m, len(t.configs)), pairs: map[[2]int]float64{}}
	for i := range t.configs {
		if err := l.book.Declare(workloadOf(i), bookGPU, t.configs[i].profile); err != nil {
			return nil, fmt.Errorf("declare configuration %s: %w", t.configs[i].name, err)
		}
	}
	l.tenants = make([]interference.Tenant, len(t.configs))
	l.refresh()
	return l, nil
}

// refresh takes over what the book has learned.
func (l *bookLearner) refresh() {
	for i := range l.tenants {
		l.tenants[i] = l.book.Tenant(workloadOf(i), bookGPU, vgpu.WholeGPU)
	}
	clear(l.pairs)
}

func (l *bookLearner) expect(on []sharedJob, out []expectation) []expectation {
	out, l.on = out[:0], l.on[:0]
	for i := range on {
		l.on = append(l.on, l.tenants[on[i].config])
	}
	l.predicted = l.model.Predict(l.on, l.predicted)
	for _, p := range l.predicted {
		out = append(out, expectation{speed: min(1, p.Speed), doubt: p.Error})
	}
	return out
}

func (l *bookLearner) speed(of, beside int) float64 {
	pair := [2]int{of, beside}
	if s, known := l.pairs[pair]; known {
		return s
	}
	l.on = append(l.on[:0], l.tenants[of], l.tenants[beside])
	l.predicted = l.model.Predict(l.on, l.predicted)
	l.pairs[pair] = min(1, l.predicted[0].Speed)
	return l.pairs[pair]
}

func (l *bookLearner) learn(on []sharedJob, speeds []float64, now float64) {
	for at := range on {
		o := interference.Observation{GPU: bookGPU, Of: bookRunner(&on[at]), Speed: speeds[at]}
		for k := range on {
			if k != at {
				o.Beside = append(o.Beside, bookRunner(&on[k]))
			}
		}
		if err := l.book.Observe(o); err != nil {
			panic("learn from a co-run: " + err.Error()) // measured speeds and configurations are legal
		}
	}
	if now >= l.settled+settling {
		l.book.Settle(1)
		l.settled = now
	}
	l.refresh()
}

func workloadOf(config int) interference.Workload { return interference.Workload(config + 1) }

func bookRunner(j *sharedJob) interference.Runner {
	return interference.Runner{Workload: workloadOf(j.config), Cap: vgpu.WholeGPU}
}
