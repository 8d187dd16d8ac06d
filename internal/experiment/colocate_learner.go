package experiment

import (
	"fmt"
	"math"

	"github.com/tandem-gpu/tandem/pkg/interference"
	"github.com/tandem-gpu/tandem/pkg/vgpu"
)

// Standard deviations of what a model leaves unexplained, in logarithms of speeds: by how much a configuration suffers more
// than the model expects beside anything, by how much it harms anything, what is left of the pair alone, and the noise of
// an observation. Larger ones believe the co-runs sooner, and doubt pairs for longer that were never seen.
const (
	suffersSD = .05
	harmsSD   = .05
	pairSD    = .10
	noiseSD   = .02
)

// pairLearner expects of each tenant that the logarithms of its speeds beside each neighbour add up, and that each of them
// is what the model says plus three errors: one of the tenant, one of the neighbour and one of the pair. It learns the
// errors from co-runs: each co-run corrects them in proportion to how much of the surprise each may explain (a Kalman
// filter that keeps no covariances, so it is sure a little too soon).
//
//	log speed of i = Σ over neighbours j of model(i, j) + suffers(i) + harms(j) + pair(i, j)
//
// Example: a pair that is .1 slower than expected, with doubts of .05, .05 and .1 and noise of .02: of the variance .0154 the
// three explain .0025, .0025 and .01, so they take .016, .016 and .065 of the .1.
type pairLearner struct {
	model          [][]float64
	suffers, harms []belief
	pair           [][]belief
}

// belief is an error of the model as it is known.
type belief struct{ mean, variance float64 }

// expectation is how fast a tenant is expected to be. The doubt is the standard error of its logarithm.
type expectation struct{ speed, doubt float64 }

// newPairLearner returns a learner that has seen no co-run. Pairs that the model is sure of have no error.
func newPairLearner(t *sharingTable, m interference.Model) *pairLearner {
	n := len(t.configs)
	l := &pairLearner{suffers: make([]belief, n), harms: make([]belief, n)}
	var predicted []interference.Prediction
	for i := range n {
		row, pair := make([]float64, n), make([]belief, n)
		for j := range n {
			predicted = m.Predict([]interference.Tenant{t.tenant(i), t.tenant(j)}, predicted)
			row[j] = min(0, math.Log(predicted[0].Speed))
			if predicted[0].Error > 0 {
				pair[j].variance = pairSD * pairSD
				l.suffers[i].variance, l.harms[j].variance = suffersSD*suffersSD, harmsSD*harmsSD
			}
		}
		l.model, l.pair = append(l.model, row), append(l.pair, pair)
	}
	return l
}

// tenant is a configuration on a whole device.
func (t *sharingTable) tenant(config int) interference.Tenant {
	tenant := t.configs[config].profile.On(vgpu.WholeGPU)
	tenant.Workload = workloadOf(config)
	return tenant
}

func workloadOf(config int) interference.Workload { return interference.Workload(config + 1) }

// expect writes how fast each tenant of a device is.
func (l *pairLearner) expect(on []sharedJob, out []expectation) []expectation {
	out = out[:0]
	for i := range on {
		log, variance := l.sum(on, i)
		out = append(out, expectation{speed: math.Exp(min(0, log)), doubt: math.Sqrt(variance)})
	}
	return out
}

// sum returns the logarithm of the speed of one tenant, and its variance but for noise.
func (l *pairLearner) sum(on []sharedJob, at int) (log, variance float64) {
	i, others := on[at].config, float64(len(on)-1)
	log, variance = others*l.suffers[i].mean, others*others*l.suffers[i].variance
	for k := range on {
		if k == at {
			continue
		}
		j := on[k].config
		log += l.model[i][j] + l.harms[j].mean + l.pair[i][j].mean
		variance += l.harms[j].variance + l.pair[i][j].variance
	}
	return log, variance
}

// speed returns how fast a configuration is beside one other.
func (l *pairLearner) speed(of, beside int) float64 {
	return math.Exp(min(0, l.model[of][beside]+l.suffers[of].mean+l.harms[beside].mean+l.pair[of][beside].mean))
}

// learn takes in how fast the tenants of a device were.
func (l *pairLearner) learn(on []sharedJob, speeds []float64) {
	for at := range on {
		log, variance := l.sum(on, at)
		variance += noiseSD * noiseSD
		surprise := math.Log(speeds[at]) - log
		i := on[at].config
		l.suffers[i].correct(float64(len(on)-1), surprise, variance)
		for k := range on {
			if k != at {
				j := on[k].config
				l.harms[j].correct(1, surprise, variance)
				l.pair[i][j].correct(1, surprise, variance)
			}
		}
	}
}

// correct takes its part of a surprise, in which it counts so many times.
func (b *belief) correct(times, surprise, variance float64) {
	part := times * b.variance / variance
	b.mean += part * surprise
	b.variance -= part * times * b.variance
}

// measuredModel is a model that knows the measured speeds.
func measuredModel(t *sharingTable) (interference.Model, error) {
	m, err := interference.ByName("table")
	if err != nil {
		return m, fmt.Errorf("make model of measured pairs: %w", err)
	}
	var known interference.Table
	for i := range t.speed {
		for j, s := range t.speed[i] {
			known.Set(workloadOf(i), workloadOf(j), s)
		}
	}
	return m.WithTable(&known), nil
}
