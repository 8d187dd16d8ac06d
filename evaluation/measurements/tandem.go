package measurements

import (
	"fmt"
	"math"
	"time"

	"github.com/tandem-gpu/tandem/internal/simulator/csvtable"
)

// tandemPair reads a row of the pairs that the project's own GPU suite measures.
func tandemPair(t *csvtable.Table, all *File) {
	all.CoRuns = append(all.CoRuns, CoRun{
		Line: t.Line(), GPU: sharedGPU(t), Fits: true, A: tandemRunner(t, "1"), B: tandemRunner(t, "2"),
	})
}

// tandemRunner takes the rate alone under the same cap and the same sharing as the measure: the cost of the cap itself is
// no interference.
func tandemRunner(t *csvtable.Table, side string) CoRunner {
	model := t.Text("model" + side)
	r := CoRunner{Workload: model, Family: Family(model), Share: sms(t, "percent"+side)}
	column := "rate" + side
	together, alone := positive(t, column, maxRate, unitsPerSecond), positive(t, "solo_"+column, maxRate, unitsPerSecond)
	r.Speed = speed(t, column, "solo_"+column, together, alone)
	return r
}

// unitsPerSecond is the unit of rates of the GPU suite: the model says what a unit is, a batch of images for example.
const unitsPerSecond = "units per second"

// sharedGPU names a GPU with its way of sharing: "h100 mps". Two ways of sharing count as unlike GPUs, since a
// measurement of one says nothing of the other.
func sharedGPU(t *csvtable.Table) string { return t.Text("gpu") + " " + t.Text("sharing") }

// tandemSingle reads a row of the GPU suite's profiles. A step is one unit.
func tandemSingle(t *csvtable.Table, all *File) {
	model := t.Text("model")
	s := Solo{
		Line: t.Line(), GPU: sharedGPU(t), Workload: model, Family: Family(model), Batch: 1, Share: sms(t, "percent"), L2: unknown,
	}
	key := fmt.Sprintf("%q %q %q %d", t.Field("gpu"), t.Field("sharing"), model, s.Share)
	t.Unique("model", key, "gpu, sharing, model and percent")
	s.Rate = positive(t, "rate", maxRate, unitsPerSecond)
	s.Latency = stepAt(t, "rate", s.Rate)
	s.SM, s.Bandwidth = percent(t, "gpu_util"), percent(t, "gmem_util")
	s.Memory = mebibytes(t, "gmem")
	all.Solos = append(all.Solos, s)
}

// stepAt returns how long a step takes at a rate of a column, and fails where that is longer than any duration of a trace.
func stepAt(t *csvtable.Table, column string, rate float64) time.Duration {
	switch {
	case t.Err() != nil:
		return 0
	case 1/rate > csvtable.MaxSeconds:
		t.Fail(column, fmt.Sprintf("a number from %v to %d (%s)", 1./csvtable.MaxSeconds, maxRate, unitsPerSecond))
		return 0
	}
	return time.Duration(math.Round(float64(time.Second) / rate))
}
