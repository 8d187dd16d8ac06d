package measurements

import (
	"io"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/tandem-gpu/tandem/internal/simulator/csvtable"
	"github.com/tandem-gpu/tandem/test/drawntable"
)

var packed = drawntable.OneOf("0", "0.0", "0.75", "1.5", "2")

// negative is a column in which -1 stands for what does not fit.
func negative(c drawntable.Column) drawntable.Column {
	c.Negative = true
	return c
}

// drawn draws tables of each format, and reads them.
var drawn = &drawntable.Reader{
	Read:     func(r io.Reader, file string) (any, error) { return Read(r, file) },
	ReadAs:   func(r io.Reader, file string, format csvtable.Format) (any, error) { return readAs(r, file, format) },
	Needs:    func(format csvtable.Format) []string { return csvtable.Find(schemas, format).Needs },
	Closed:   func(format csvtable.Format) bool { return csvtable.Find(schemas, format).Only != nil },
	Check:    func(t testing.TB, got any) { checkFile(t, got.(*File)) },
	Describe: func(got any) string { return describe(got.(*File)) },
	Formats: map[csvtable.Format]map[string]drawntable.Column{
		GavelThroughputs: {
			"gpu": drawntable.UniqueNames(), "job": drawntable.Names(), "scale_factor": drawntable.Amount(1, 64), "tput_consolidated_steps_s": drawntable.Decimals(1000),
			"tput_unconsolidated_steps_s": drawntable.Decimals(1000),
		},
		GavelPairs: {
			"gpu": drawntable.UniqueNames(), "job_a": drawntable.Names(), "job_b": drawntable.Names(), "iso_a": drawntable.OneOf("1.5"), "iso_b": drawntable.OneOf("1.5"), "file": drawntable.Names(),
			"packed_a": packed, "packed_b": packed, "status": drawntable.Names(),
		},
		PolluxPlacementTimes: {
			"placement": {Draw: rapid.StringMatching("[1-9]{1,4}")}, "local_bsz": drawntable.Unique(), "step_time": drawntable.Amount(1, 100),
			"sync_time": drawntable.Decimals(1),
		},
		PolluxScalingTimes: {
			"num_nodes": drawntable.Unique(), "num_replicas": drawntable.Amount(5, 64), "local_bsz": drawntable.Amount(1, 128), "step_time": drawntable.Amount(1, 100), "sync_time": drawntable.Decimals(1),
		},
		PolluxValidation: {"progress": drawntable.Unique(), "grad_sqr": drawntable.Decimals(1000), "grad_var": drawntable.Decimals(1000)},
		LucidPairs: {
			"model1": drawntable.Names(), "dataset1": drawntable.Names(), "batchsize1": drawntable.Amount(1, 128), "amp1": drawntable.Amount(0, 1), "speed1": drawntable.Above(1),
			"model2": drawntable.Names(), "dataset2": drawntable.Names(), "batchsize2": drawntable.Amount(1, 128), "amp2": drawntable.Amount(0, 1), "speed2": drawntable.Above(1),
			"gmem": drawntable.Decimals(24_000),
		},
		LucidSingles: {
			"model": drawntable.UniqueNames(), "dataset": drawntable.Names(), "batchsize": drawntable.Amount(1, 128), "amp": drawntable.Amount(0, 1), "speed": drawntable.Above(1000),
			"gpu_util": drawntable.Decimals(100), "gmem_util": drawntable.Decimals(100), "gmem": drawntable.Decimals(24_000),
		},
		IgniterPairs: {
			"model1": drawntable.Names(), "batch1": drawntable.Amount(1, 32), "mps_pct1": drawntable.Amount(1, 100), "lat1_ms": drawntable.OneOf("2.5"), "solo_lat1_ms": drawntable.OneOf("2.0"),
			"model2": drawntable.Names(), "batch2": drawntable.Amount(1, 32), "mps_pct2": drawntable.Amount(1, 100), "lat2_ms": drawntable.OneOf("40"), "solo_lat2_ms": drawntable.OneOf("32"),
		},
		IgniterCurves: {
			"model": drawntable.UniqueNames(), "batch": drawntable.Amount(1, 32), "mps_pct": drawntable.Amount(1, 100), "latency_ms": drawntable.Above(100), "throughput_img_s": drawntable.Above(1000),
			"l2_util_pct": drawntable.Decimals(100), "dram_util_pct": drawntable.Decimals(100),
		},
		TandemPairs: {
			"gpu": drawntable.Names(), "sharing": drawntable.Names(),
			"model1": drawntable.Names(), "percent1": drawntable.Amount(1, 100), "rate1": drawntable.OneOf("40"), "solo_rate1": drawntable.OneOf("50"),
			"model2": drawntable.Names(), "percent2": drawntable.Amount(1, 100), "rate2": drawntable.OneOf("2.5"), "solo_rate2": drawntable.OneOf("2.0"),
		},
		TandemSingles: {
			"gpu": drawntable.Names(), "sharing": drawntable.Names(), "model": drawntable.UniqueNames(), "percent": drawntable.Amount(1, 100), "rate": drawntable.Above(1000),
			"gpu_util": drawntable.Decimals(100), "gmem_util": drawntable.Decimals(100), "gmem": drawntable.Decimals(80_000),
		},
		GPUMemNetFeatures: {
			"Depth": drawntable.Amount(1, 12), "Activation Function": drawntable.Names(), "Total Activations": drawntable.Amount(1, 1e6), "Total Parameters": drawntable.Amount(1, 1e9),
			"Batch Size": drawntable.Amount(1, 1024), "Batch Normalization Layers": drawntable.Amount(0, 12), "Dropout Layers": drawntable.Amount(0, 12),
			"Max GPU Memory (MiB)": drawntable.Decimals(24_000), "Avg GPUTL": drawntable.Decimals(100), "Avg GRACT": drawntable.Decimals(1), "Avg SMACT": drawntable.Decimals(1),
			"Avg SMOCC": drawntable.Decimals(1), "Avg FP32A": drawntable.Decimals(1),
		},
		GletUtilisation: {
			"bench": drawntable.UniqueNames(), "batch": drawntable.Amount(1, 32), "SM_util(%)": drawntable.Decimals(100), "l2_util(%)": drawntable.Decimals(100), "mem_util(%)": drawntable.Decimals(100),
		},
		MISOSlices: {
			"model": drawntable.UniqueNames(), "batch": drawntable.Amount(1, 512), "mig_slice": drawntable.OneOf("1g.5gb", "3g.20gb", "7g.40gb"),
			"median_step_value": drawntable.Above(10), "mean_step_value": drawntable.Above(10), "util_sm_pct_full": drawntable.Decimals(100),
			"util_mem_pct_full": drawntable.Decimals(100), "mem_mib_full": drawntable.Decimals(40_000),
		},
		MuxServeLatencies: {
			"model": drawntable.UniqueNames(), "num_gpus": negative(drawntable.Amount(1, 8)), "sm_pct": negative(drawntable.Amount(1, 100)), "batch": negative(drawntable.Amount(1, 2048)), "seq_len": negative(drawntable.Amount(1, 512)),
			"prefill_ms": negative(drawntable.Above(10_000)), "decoding_ms": negative(drawntable.OneOf("-1", "-1.0", "12.5", "3")),
		},
		ParvaProfile: {
			"model": drawntable.UniqueNames(), "gpc": drawntable.OneOf("1", "2", "3", "4", "7"), "batch": drawntable.Amount(1, 256), "procs": drawntable.Amount(1, 5),
			"throughput_img_s": drawntable.Above(1000), "latency_s": drawntable.Above(10),
		},
		ParvaDeployment: {
			"Num instance": drawntable.Amount(0, 3), "Num GPU": drawntable.Unique(), "Model": drawntable.Names(), "Placement": drawntable.Amount(0, 6),
			"Instance size": drawntable.OneOf("1", "2", "3", "4", "7"), "Batch size": drawntable.Amount(1, 256), "Num proc": drawntable.Amount(1, 5),
		},
	},
}

// TestAllFormatsAreDrawn: the properties below are those of every format.
func TestAllFormatsAreDrawn(t *testing.T) {
	for _, s := range slices.Concat(rateSchemas, pairSchemas, servingSchemas) {
		if len(drawn.Formats[s.Format]) == 0 {
			t.Errorf("no columns of %s are drawn", s.Format)
		}
	}
}

func TestScripts(t *testing.T)               { drawn.Scripts(t) }
func TestPropertyColumns(t *testing.T)       { drawn.Columns(t) }
func TestPropertyBrokenField(t *testing.T)   { drawn.BrokenField(t) }
func TestPropertyMissingColumn(t *testing.T) { drawn.MissingColumn(t) }

// readAs reads a file of one format.
func readAs(r io.Reader, file string, format csvtable.Format) (*File, error) {
	t, err := csvtable.New(r, file)
	if err != nil {
		return nil, err
	}
	return read(t, csvtable.Find(schemas, format))
}
