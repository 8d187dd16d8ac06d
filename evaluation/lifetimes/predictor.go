package lifetimes

import "github.com/tandem-gpu/tandem/pkg/lifetime"

// deciles are the quantiles that are judged.
const deciles = 9

// answer is the nine deciles of the remaining time in seconds.
type answer [deciles]float64

// predictor answers moments in the order of time. It sees of the jobs those that ended before each.
type predictor interface {
	answers(jobs []job, moments []moment) ([]answer, error)
}

// tandem learns from each job when it ends.
type tandem struct{ config lifetime.Config }

func (t tandem) answers(jobs []job, moments []moment) ([]answer, error) {
	l, err := lifetime.NewLearner(t.config)
	if err != nil {
		return nil, err
	}
	told, all := history{learner: l, ended: byEnd(jobs)}, make([]answer, len(moments))
	for i, m := range moments {
		if err := told.until(m.at()); err != nil {
			return nil, err
		}
		c, err := l.Predict(m.job.pod, m.age)
		if err != nil {
			return nil, err
		}
		for d := range all[i] {
			all[i][d] = c.Quantile(float64(d+1) / 10)
		}
	}
	return all, nil
}

// history tells a learner which jobs ended, in the order of time.
type history struct {
	learner *lifetime.Learner
	// ended are the jobs that the learner does not know yet, in the order of their ends.
	ended []*job
}

func (h *history) until(now float64) error {
	for len(h.ended) > 0 && h.ended[0].end() <= now {
		if err := h.learner.Observe(lifetime.Observation{Pod: h.ended[0].pod, Length: h.ended[0].length}); err != nil {
			return err
		}
		h.ended = h.ended[1:]
	}
	return nil
}
