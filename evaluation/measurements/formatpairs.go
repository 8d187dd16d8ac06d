package measurements

import "github.com/tandem-gpu/tandem/internal/simulator/csvtable"

// Formats of what was measured of workloads, alone and side by side, with the columns that each needs. GavelPairs is one
// of them too.
const (
	// LucidPairs has co-runs on one GPU: for each of 1 and 2 model, dataset, batchsize, amp, and speed (together ÷ alone).
	// Optional: gmem (MiB of both).
	LucidPairs csvtable.Format = "lucid-pairs"
	// LucidSingles has solo profiles: model, dataset, batchsize, amp, speed (samples per second), gpu_util, gmem_util
	// (percent), gmem (MiB).
	LucidSingles csvtable.Format = "lucid-singles"
	// IgniterPairs has co-runs under MPS: for each of 1 and 2 model, batch, mps_pct (percent of the SMs), lat and solo_lat
	// (_ms, together and alone).
	IgniterPairs csvtable.Format = "igniter-pairs"
	// IgniterCurves has solo profiles by cap of the SMs: model, batch, mps_pct, latency_ms, throughput_img_s. Optional:
	// l2_util_pct, dram_util_pct (percent).
	IgniterCurves csvtable.Format = "igniter-curves"
	// TandemPairs has co-runs of the project's own GPU suite (test/gpu): gpu, sharing (time-slicing or mps, say), and
	// three columns for each of 1 and 2. These are model, percent (of the SMs, 100 without a cap), and rate and
	// solo_rate (units per second, together and alone under the same percent and sharing).
	TandemPairs csvtable.Format = "tandem-pairs"
	// TandemSingles has solo profiles by cap of the SMs from the same suite: gpu, sharing, model, percent, rate (units per
	// second), gpu_util, gmem_util (percent), gmem (MiB).
	TandemSingles csvtable.Format = "tandem-singles"
	// GPUMemNetFeatures has networks with the use of their training. The features are Depth, Activation Function, Total
	// Activations, Total Parameters, Batch Size, Batch Normalization Layers and Dropout Layers. The use is Max GPU
	// Memory (MiB), Avg GPUTL (percent), Avg GRACT, Avg SMACT, Avg SMOCC and Avg FP32A (parts from 0 to 1).
	GPUMemNetFeatures csvtable.Format = "gpumemnet-features"
	// GletUtilisation has solo profiles: bench, batch, SM_util(%), l2_util(%), mem_util(%). Its rows may end in a comma.
	GletUtilisation csvtable.Format = "glet-utilisation"
	// MISOSlices has solo profiles by MIG slice: model, batch, mig_slice, median_step_value, mean_step_value (seconds),
	// util_sm_pct_full, util_mem_pct_full (percent), mem_mib_full (MiB).
	MISOSlices csvtable.Format = "miso-slices"
	// MuxServeLatencies has solo profiles of language models by cap of the SMs: model, num_gpus, sm_pct, batch, seq_len,
	// prefill_ms, decoding_ms (-1 where it does not fit).
	MuxServeLatencies csvtable.Format = "muxserve-latencies"
)

// pairSchemas lists the formats of measured workloads.
var pairSchemas = []csvtable.Schema[File]{
	{
		Format: LucidPairs, Row: lucidPair,
		Needs: []string{"model1", "dataset1", "batchsize1", "amp1", "speed1", "model2", "dataset2", "batchsize2", "amp2", "speed2"},
	},
	{
		Format: LucidSingles, Row: lucidSingle,
		Needs: []string{"model", "dataset", "batchsize", "amp", "speed", "gpu_util", "gmem_util", "gmem"},
	},
	{
		Format: IgniterPairs, Row: igniterPair,
		Needs: []string{
			"model1", "batch1", "mps_pct1", "lat1_ms", "solo_lat1_ms", "model2", "batch2", "mps_pct2", "lat2_ms", "solo_lat2_ms",
		},
	},
	{Format: IgniterCurves, Row: igniterCurve, Needs: []string{"model", "batch", "mps_pct", "latency_ms", "throughput_img_s"}},
	{
		Format: TandemPairs, Row: tandemPair,
		Needs: []string{
			"gpu", "sharing", "model1", "percent1", "rate1", "solo_rate1", "model2", "percent2", "rate2", "solo_rate2",
		},
	},
	{
		Format: TandemSingles, Row: tandemSingle,
		Needs: []string{"gpu", "sharing", "model", "percent", "rate", "gpu_util", "gmem_util", "gmem"},
	},
	{
		Format: GPUMemNetFeatures, Row: gpuMemNetSample,
		Needs: []string{
			"Depth", "Activation Function", "Total Activations", "Total Parameters", "Batch Size",
			"Batch Normalization Layers", "Dropout Layers", "Max GPU Memory (MiB)", "Avg GPUTL", "Avg GRACT", "Avg SMACT",
			"Avg SMOCC", "Avg FP32A",
		},
	},
	{
		Format: GletUtilisation, Row: gletSolo, Trailing: true,
		Needs: []string{"bench", "batch", "SM_util(%)", "l2_util(%)", "mem_util(%)"},
	},
	{
		Format: MISOSlices, Row: misoSlice,
		Needs: []string{
			"model", "batch", "mig_slice", "median_step_value", "mean_step_value", "util_sm_pct_full", "util_mem_pct_full",
			"mem_mib_full",
		},
	},
	{
		Format: MuxServeLatencies, Row: muxServeLatency, End: muxServeRuns,
		Needs: []string{"model", "num_gpus", "sm_pct", "batch", "seq_len", "prefill_ms", "decoding_ms"},
	},
}
