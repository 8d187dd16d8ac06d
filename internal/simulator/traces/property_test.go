package traces

import (
	"bytes"
	"encoding/csv"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"pgregory.net/rapid"
)

// drawn is a legal table: rows of fields by column.
type drawn struct {
	format  Format
	columns []string
	rows    []map[string]string
}

// amount draws a whole number as text.
func amount(least, most int) *rapid.Generator[string] {
	return rapid.Map(rapid.IntRange(least, most), func(n int) string { return fmt.Sprint(n) })
}

// decimals draws a number as programs write them.
func decimals(most int) *rapid.Generator[string] {
	return rapid.Map(rapid.IntRange(0, 1000*most), func(n int) string { return fmt.Sprintf("%d.%03d", n/1000, n%1000) })
}

// above draws a number above zero.
func above(most int) *rapid.Generator[string] {
	return rapid.Map(rapid.IntRange(1, 1000*most), func(n int) string { return fmt.Sprintf("%d.%03d", n/1000, n%1000) })
}

var (
	words  = rapid.SampledFrom([]string{"bert", "ResNet (batch size 16)", `a "quoted" word`, "käse", "one, two", "#1"})
	packed = rapid.SampledFrom([]string{"0", "0.0", "0.75", "1.5", "2"})
	dates  = rapid.Map(rapid.IntRange(0, 59), func(n int) string { return fmt.Sprintf("2017-10-%02d 07:01:%02d", 1+n%28, n) })
)

// fields says how to draw each column of a format. What must be unique, and what hangs together, is seen to by tables.
var fields = map[Format]map[string]*rapid.Generator[string]{
	JobList: {
		"name": nil, "submitted": decimals(1e6), "gpus": rapid.SampledFrom([]string{"0.25", "1", "8"}), "namespace": words,
		"duration_seconds": decimals(1e6), "members": amount(1, 64), "cpus": decimals(64), "memory_gib": decimals(512),
		"gpu_memory_gib": decimals(64), "gpu_models": rapid.SampledFrom([]string{"", "T4", "T4|A100"}), "priority": amount(-10, 1000),
	},
	OpenbNodeList: {
		"sn": nil, "cpu_milli": amount(1, 1e6), "memory_mib": amount(1, 1e6), "gpu": amount(1, 64), "model": words,
	},
	OpenbPodList: {
		"name": nil, "cpu_milli": amount(0, 1e6), "memory_mib": amount(0, 1e6), "num_gpu": amount(1, 1),
		"gpu_milli": amount(1, 1000), "gpu_spec": rapid.SampledFrom([]string{"", "T4", "T4|G2", "G2|T4|G2"}), "qos": words,
		"creation_time": amount(0, 1000), "scheduled_time": amount(1000, 2000), "deletion_time": amount(2000, 3000),
	},
	GavelTrace: {
		"job_type": words, "scale_factor": amount(1, 64), "total_steps": amount(1, 1e9), "arrival_s": decimals(1e6),
	},
	GavelThroughputs: {
		"gpu": nil, "job": words, "scale_factor": amount(1, 64), "tput_consolidated_steps_s": decimals(1000),
		"tput_unconsolidated_steps_s": decimals(1000),
	},
	GavelPairs: {
		"gpu": nil, "job_a": words, "job_b": words, "iso_a": rapid.Just("1.5"), "iso_b": rapid.Just("1.5"), "file": words,
		"packed_a": packed, "packed_b": packed, "status": words,
	},
	PhillyTrace: {
		"timestamp": dates, "duration": decimals(1e6), "num_gpus": amount(1, 128), "cluster": words,
	},
	PolluxWorkload: {
		"name": nil, "time": decimals(1e6), "application": words, "num_replicas": amount(1, 64), "batch_size": amount(1, 1e6),
	},
	PolluxPlacementTimes: {
		"placement": rapid.StringMatching("[1-9]{1,4}"), "local_bsz": nil, "step_time": amount(1, 100),
		"sync_time": decimals(1),
	},
	PolluxScalingTimes: {
		"num_nodes": nil, "num_replicas": amount(5, 64), "local_bsz": amount(1, 128), "step_time": amount(1, 100), "sync_time": decimals(1),
	},
	PolluxValidation: {"progress": nil, "grad_sqr": decimals(1000), "grad_var": decimals(1000)},
	MuriTrace: {
		"job_id": nil, "num_gpu": amount(1, 32), "submit_time": amount(0, 1e9), "duration": amount(0, 1e9),
		"iterations": amount(1, 1e9), "model_name": words, "batch_size": amount(1, 128), "iteration_time": decimals(1000),
		"priority": amount(0, 1),
	},
	DLRMTrace: {
		"instance_sn": nil, "app_name": words, "cpu_request": decimals(192), "gpu_request": amount(0, 8),
		"memory_request": decimals(960), "creation_time": amount(0, 1000), "scheduled_time": amount(1000, 2000),
		"deletion_time": amount(2000, 3000), "role": words,
	},
	LucidPairs: {
		"model1": words, "dataset1": words, "batchsize1": amount(1, 128), "amp1": amount(0, 1), "speed1": above(1),
		"model2": words, "dataset2": words, "batchsize2": amount(1, 128), "amp2": amount(0, 1), "speed2": above(1),
		"gmem": decimals(24_000),
	},
	LucidSingles: {
		"model": nil, "dataset": words, "batchsize": amount(1, 128), "amp": amount(0, 1), "speed": above(1000),
		"gpu_util": decimals(100), "gmem_util": decimals(100), "gmem": decimals(24_000),
	},
	IgniterPairs: {
		"model1": words, "batch1": amount(1, 32), "mps_pct1": amount(1, 100), "lat1_ms": rapid.Just("2.5"), "solo_lat1_ms": rapid.Just("2.0"),
		"model2": words, "batch2": amount(1, 32), "mps_pct2": amount(1, 100), "lat2_ms": rapid.Just("40"), "solo_lat2_ms": rapid.Just("32"),
	},
	IgniterCurves: {
		"model": nil, "batch": amount(1, 32), "mps_pct": amount(1, 100), "latency_ms": above(100), "throughput_img_s": above(1000),
		"l2_util_pct": decimals(100), "dram_util_pct": decimals(100),
	},
	TandemPairs: {
		"gpu": words, "sharing": words,
		"model1": words, "percent1": amount(1, 100), "rate1": rapid.Just("40"), "solo_rate1": rapid.Just("50"),
		"model2": words, "percent2": amount(1, 100), "rate2": rapid.Just("2.5"), "solo_rate2": rapid.Just("2.0"),
	},
	TandemSingles: {
		"gpu": words, "sharing": words, "model": nil, "percent": amount(1, 100), "rate": above(1000),
		"gpu_util": decimals(100), "gmem_util": decimals(100), "gmem": decimals(80_000),
	},
	GPUMemNetFeatures: {
		"Depth": amount(1, 12), "Activation Function": words, "Total Activations": amount(1, 1e6), "Total Parameters": amount(1, 1e9),
		"Batch Size": amount(1, 1024), "Batch Normalization Layers": amount(0, 12), "Dropout Layers": amount(0, 12),
		"Max GPU Memory (MiB)": decimals(24_000), "Avg GPUTL": decimals(100), "Avg GRACT": decimals(1), "Avg SMACT": decimals(1),
		"Avg SMOCC": decimals(1), "Avg FP32A": decimals(1),
	},
	GletUtilisation: {
		"bench": nil, "batch": amount(1, 32), "SM_util(%)": decimals(100), "l2_util(%)": decimals(100), "mem_util(%)": decimals(100),
	},
	MISOSlices: {
		"model": nil, "batch": amount(1, 512), "mig_slice": rapid.SampledFrom([]string{"1g.5gb", "3g.20gb", "7g.40gb"}),
		"median_step_value": above(10), "mean_step_value": above(10), "util_sm_pct_full": decimals(100),
		"util_mem_pct_full": decimals(100), "mem_mib_full": decimals(40_000),
	},
	MuxServeLatencies: {
		"model": nil, "num_gpus": amount(1, 8), "sm_pct": amount(1, 100), "batch": amount(1, 2048), "seq_len": amount(1, 512),
		"prefill_ms": above(10_000), "decoding_ms": rapid.SampledFrom([]string{"-1", "-1.0", "12.5", "3"}),
	},
	ParvaProfile: {
		"model": nil, "gpc": rapid.SampledFrom([]string{"1", "2", "3", "4", "7"}), "batch": amount(1, 256), "procs": amount(1, 5),
		"throughput_img_s": above(1000), "latency_s": above(10),
	},
	ParvaDeployment: {
		"Num instance": amount(0, 3), "Num GPU": nil, "Model": words, "Placement": amount(0, 6),
		"Instance size": rapid.SampledFrom([]string{"1", "2", "3", "4", "7"}), "Batch size": amount(1, 256), "Num proc": amount(1, 5),
	},
}

// tables draws a legal table of any format.
func tables(t *rapid.T) drawn {
	d := drawn{format: schemas[rapid.IntRange(0, len(schemas)-1).Draw(t, "format")].format}
	for column := range fields[d.format] {
		d.columns = append(d.columns, column)
	}
	slices.Sort(d.columns)
	for i := range rapid.IntRange(1, 5).Draw(t, "rows") {
		row := map[string]string{}
		for _, column := range d.columns {
			row[column] = fmt.Sprint(i + 1)
			if g := fields[d.format][column]; g != nil {
				row[column] = g.Draw(t, column)
			}
		}
		d.rows = append(d.rows, row)
	}
	return d
}

// csv writes the table with the columns in some order. Columns that it does not know get junk.
func (d *drawn) csv(t *rapid.T, columns []string) []byte {
	var b bytes.Buffer
	w := csv.NewWriter(&b)
	w.UseCRLF = rapid.Bool().Draw(t, "CR LF")
	if rapid.Bool().Draw(t, "mark") {
		b.WriteString(byteOrderMark)
	}
	all := [][]string{columns}
	for _, row := range d.rows {
		var line []string
		for _, column := range columns {
			text, known := row[column]
			if !known {
				text = rapid.SampledFrom([]string{"", "NaN", "-1", `"`, "x,y"}).Draw(t, "junk")
			}
			line = append(line, text)
		}
		all = append(all, line)
	}
	if err := w.WriteAll(all); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

// TestPropertyColumns: the order of the columns, further columns and the ends of lines change nothing, and the format is
// detected.
func TestPropertyColumns(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		d := tables(t)
		want, err := readAs(bytes.NewReader(d.csv(t, d.columns)), "t.csv", d.format)
		if err != nil {
			t.Fatal(err)
		}
		further := []string{"extra", "tenant", ""}
		if d.format == JobList {
			further = nil // it has no others
		}
		shuffled := rapid.Permutation(append(further, d.columns...)).Draw(t, "columns")
		got, err := Read(bytes.NewReader(d.csv(t, shuffled)), "t.csv")
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(want, got, cmpopts.EquateNaNs()); diff != "" {
			t.Fatalf("trace (-want +got):\n%s", diff)
		}
	})
}

// TestPropertyBrokenField: a number that is none, in any row and column, is named with its line and column.
func TestPropertyBrokenField(t *testing.T) {
	text := []string{"sn", "model", "name", "gpu_spec", "qos", "job_type", "gpu", "job", "cluster", "application", "job_id",
		"model_name", "instance_sn", "app_name", "role", "file", "job_a", "job_b", "status", "model1", "model2", "dataset", "dataset1", "dataset2", "bench", "Activation Function", "Model", "namespace", "gpu_models", "sharing"}
	rapid.Check(t, func(t *rapid.T) {
		d := tables(t)
		i := rapid.IntRange(0, len(d.rows)-1).Draw(t, "row")
		column := rapid.SampledFrom(d.columns).Draw(t, "column")
		bad := []string{"NaN", "nan", "Inf", "+Inf", "-1", "1e400", "99999999999999999990", "0x10", "1_000", "1,5", "x", " 1", "1 "}
		if slices.Contains(text, column) && (column != "gpu" || d.format != OpenbNodeList) {
			bad = []string{" x", "x ", "\x00", "a\x7f", "\xff", strings.Repeat("x", 254)}
		}
		if d.format == MuxServeLatencies || column == "priority" && d.format == JobList {
			bad = slices.DeleteFunc(bad, func(s string) bool { return s == "-1" }) // does not fit, and a low priority
		}
		d.rows[i][column] = rapid.SampledFrom(bad).Draw(t, "bad")
		_, err := readAs(bytes.NewReader(d.csv(t, d.columns)), "t.csv", d.format)
		var own *Error
		if !errors.As(err, &own) || own.File != "t.csv" || own.Line != i+2 || own.Column != column || own.Value != quote(d.rows[i][column]) {
			t.Fatalf("error %v, want one of t.csv line %d column %s", err, i+2, column)
		}
	})
}

// TestPropertyMissingColumn: a column that is needed and missing is named.
func TestPropertyMissingColumn(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		d := tables(t)
		var needs []string
		for i := range schemas {
			if schemas[i].format == d.format {
				needs = schemas[i].needs
			}
		}
		missing := rapid.SampledFrom(needs).Draw(t, "missing")
		columns := slices.DeleteFunc(slices.Clone(d.columns), func(c string) bool { return c == missing })
		_, err := readAs(bytes.NewReader(d.csv(t, columns)), "t.csv", d.format)
		var own *Error
		if !errors.As(err, &own) || own.Line != 1 || own.Column != missing {
			t.Fatalf("error %v, want one of column %s", err, missing)
		}
	})
}
