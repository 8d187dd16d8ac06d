package measurements

import (
	"fmt"
	"time"

	"github.com/tandem-gpu/tandem/internal/simulator/csvtable"
	"github.com/tandem-gpu/tandem/internal/simulator/traces"
)

// igniterGPU is where the authors of iGniter (TPDS'23) measured; their files do not say it.
const igniterGPU = "v100"

// igniterPair reads a row of iGniter's pairs of inference models under MPS.
func igniterPair(t *csvtable.Table, all *File) {
	all.CoRuns = append(all.CoRuns, CoRun{
		Line: t.Line(), GPU: igniterGPU, Fits: true, A: igniterRunner(t, "1"), B: igniterRunner(t, "2"),
	})
}

// igniterRunner takes the latency alone under the same cap as the measure: the cost of the cap itself is no
// interference.
func igniterRunner(t *csvtable.Table, side string) CoRunner {
	r := CoRunner{Share: sms(t, "mps_pct"+side)}
	r.Workload, r.Family, _ = igniterWorkload(t, side)
	column := "lat" + side + "_ms"
	together, alone := positive(t, column, csvtable.MaxSeconds, "milliseconds"), positive(t, "solo_"+column, csvtable.MaxSeconds, "milliseconds")
	r.Speed = speed(t, column, "solo_"+column, alone, together)
	return r
}

// igniterWorkload names a configuration: "resnet50 batch 8".
func igniterWorkload(t *csvtable.Table, side string) (name, family string, batch int64) {
	model := t.Text("model" + side)
	batch = t.Whole("batch"+side, 1, traces.MaxBatch)
	return fmt.Sprintf("%s batch %d", model, batch), Family(model), batch
}

// igniterCurve reads a row of iGniter's latencies and throughputs by cap of the SMs.
func igniterCurve(t *csvtable.Table, all *File) {
	s := Solo{Line: t.Line(), GPU: igniterGPU, Share: sms(t, "mps_pct"), SM: unknown}
	s.Workload, s.Family, s.Batch = igniterWorkload(t, "")
	t.Unique("model", fmt.Sprintf("%q %d", s.Workload, s.Share), "model, batch and mps_pct")
	s.Latency = latency(t, "latency_ms", time.Millisecond)
	s.Rate = positive(t, "throughput_img_s", maxRate, "images per second")
	s.L2, s.Bandwidth = percentOr(t, "l2_util_pct"), percentOr(t, "dram_util_pct")
	all.Solos = append(all.Solos, s)
}
