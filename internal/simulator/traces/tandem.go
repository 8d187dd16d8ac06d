package traces

import (
	"fmt"
	"math"
	"time"
)

// tandemPair reads a row of the pairs that the project's own GPU suite measures.
func tandemPair(t *table, all *Trace) {
	all.CoRuns = append(all.CoRuns, CoRun{
		Line: t.line(), GPU: t.sharedGPU(), Fits: true, A: t.tandemRunner("1"), B: t.tandemRunner("2"),
	})
}

// tandemRunner takes the rate alone under the same cap and the same sharing as the measure: what the cap itself costs is no
// interference.
func (t *table) tandemRunner(side string) CoRunner {
	model := t.text("model" + side)
	r := CoRunner{Workload: model, Family: Family(model), Share: t.sms("percent" + side)}
	column := "rate" + side
	together, alone := t.positive(column, maxRate, unitsPerSecond), t.positive("solo_"+column, maxRate, unitsPerSecond)
	r.Speed = t.speed(column, "solo_"+column, together, alone)
	return r
}

// unitsPerSecond is the unit of rates of the GPU suite: what a unit is, a batch of images say, is up to the model.
const unitsPerSecond = "units per second"

// sharedGPU names a GPU with the way in which it is shared: "h100 mps". What was measured in one way says nothing of another,
// so that these count as unlike GPUs.
func (t *table) sharedGPU() string { return t.text("gpu") + " " + t.text("sharing") }

// tandemSingle reads a row of the GPU suite's profiles. A step is one unit.
func tandemSingle(t *table, all *Trace) {
	model := t.text("model")
	s := Solo{
		Line: t.line(), GPU: t.sharedGPU(), Workload: model, Family: Family(model), Batch: 1, Share: t.sms("percent"), L2: unknown,
	}
	key := fmt.Sprintf("%q %q %q %d", t.field("gpu"), t.field("sharing"), model, s.Share)
	t.unique("model", key, "gpu, sharing, model and percent")
	s.Rate = t.positive("rate", maxRate, unitsPerSecond)
	s.Latency = t.stepAt("rate", s.Rate)
	s.SM, s.Bandwidth = t.percent("gpu_util"), t.percent("gmem_util")
	s.Memory = t.mebibytes("gmem")
	all.Solos = append(all.Solos, s)
}

// stepAt returns how long a step takes at a rate of a column, and fails where that is longer than any duration of a trace.
func (t *table) stepAt(column string, rate float64) time.Duration {
	switch {
	case t.err != nil:
		return 0
	case 1/rate > maxSeconds:
		t.fail(column, fmt.Sprintf("a number from %v to %d (%s)", 1./maxSeconds, maxRate, unitsPerSecond))
		return 0
	}
	return time.Duration(math.Round(float64(time.Second) / rate))
}
