package traces

import (
	"fmt"
	"time"
)

// igniterGPU is where the authors of iGniter (TPDS'23) measured; their files do not say it.
const igniterGPU = "v100"

// igniterPair reads a row of iGniter's pairs of inference models under MPS.
func igniterPair(t *table, all *Trace) {
	all.CoRuns = append(all.CoRuns, CoRun{
		Line: t.line(), GPU: igniterGPU, Fits: true, A: t.igniterRunner("1"), B: t.igniterRunner("2"),
	})
}

// igniterRunner takes the latency alone under the same cap as the measure: what the cap itself costs is no interference.
func (t *table) igniterRunner(side string) CoRunner {
	r := CoRunner{Share: t.sms("mps_pct" + side)}
	r.Workload, r.Family, _ = t.igniterWorkload(side)
	column := "lat" + side + "_ms"
	together, alone := t.positive(column, maxSeconds, "milliseconds"), t.positive("solo_"+column, maxSeconds, "milliseconds")
	r.Speed = t.speed(column, "solo_"+column, alone, together)
	return r
}

// igniterWorkload names a configuration: "resnet50 batch 8".
func (t *table) igniterWorkload(side string) (name, family string, batch int64) {
	model := t.text("model" + side)
	batch = t.whole("batch"+side, 1, maxBatch)
	return fmt.Sprintf("%s batch %d", model, batch), Family(model), batch
}

// igniterCurve reads a row of iGniter's latencies and throughputs by cap of the SMs.
func igniterCurve(t *table, all *Trace) {
	s := Solo{Line: t.line(), GPU: igniterGPU, Share: t.sms("mps_pct"), SM: unknown}
	s.Workload, s.Family, s.Batch = t.igniterWorkload("")
	t.unique("model", fmt.Sprintf("%q %d", s.Workload, s.Share), "model, batch and mps_pct")
	s.Latency = t.latency("latency_ms", time.Millisecond)
	s.Rate = t.positive("throughput_img_s", maxRate, "images per second")
	s.L2, s.Bandwidth = t.percentOr("l2_util_pct"), t.percentOr("dram_util_pct")
	all.Solos = append(all.Solos, s)
}
