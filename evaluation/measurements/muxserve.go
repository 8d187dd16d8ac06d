package measurements

import (
	"fmt"
	"strings"
	"time"

	"github.com/tandem-gpu/tandem/internal/simulator/csvtable"
	"github.com/tandem-gpu/tandem/internal/simulator/traces"
)

// muxServeGPU is where the authors of MuxServe (ICML'24) measured; their file does not say it.
const muxServeGPU = "a100-80g"

// muxServeLatency reads a row of MuxServe's latencies: a solo profile of the prefill and one of a step of decoding. The
// Workload "llama-7b gpus 1 batch 8 seq 128 decode" has the same name at each cap. A latency of -1 gives none.
func muxServeLatency(t *csvtable.Table, all *File) {
	model, batch := t.Text("model"), t.Whole("batch", 1, traces.MaxBatch)
	name := fmt.Sprintf("%s gpus %d batch %d seq %d", model, t.Whole("num_gpus", 1, traces.MaxDevices), batch, t.Whole("seq_len", 1, traces.MaxBatch))
	share := sms(t, "sm_pct")
	t.Unique("model", fmt.Sprintf("%q %d", name, share), "model, num_gpus, sm_pct, batch and seq_len")
	for _, phase := range []struct{ column, name string }{{"prefill_ms", "prefill"}, {"decoding_ms", "decode"}} {
		if text := t.Field(phase.column); text == "-1" || strings.HasPrefix(text, "-1.") && strings.Trim(text[3:], "0") == "" {
			continue
		}
		s := Solo{
			Line: t.Line(), GPU: muxServeGPU, Workload: name + " " + phase.name, Family: Family(model), Batch: batch, Share: share,
			SM: unknown, Bandwidth: unknown, L2: unknown,
		}
		if s.Latency = latency(t, phase.column, time.Millisecond); s.Latency > 0 {
			s.Rate = float64(batch) / s.Latency.Seconds()
		}
		all.Solos = append(all.Solos, s)
	}
}

// muxServeRuns: something ran.
func muxServeRuns(t *csvtable.Table, all *File) {
	if len(all.Solos) == 0 {
		t.Refuse("prefill_ms", "-1 in all rows, as in decoding_ms", "at least one latency")
	}
}
