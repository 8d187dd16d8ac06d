package traces

import (
	"fmt"
	"io"
	"testing"

	"pgregory.net/rapid"

	"github.com/tandem-gpu/tandem/internal/simulator/csvtable"
	"github.com/tandem-gpu/tandem/test/drawntable"
)

var dates = rapid.Map(rapid.IntRange(0, 59), func(n int) string { return fmt.Sprintf("2017-10-%02d 07:01:%02d", 1+n%28, n) })

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
	Check:    func(t testing.TB, got any) { checkTrace(t, got.(*Trace)) },
	Describe: func(got any) string { return describe(got.(*Trace)) },
	Formats: map[csvtable.Format]map[string]drawntable.Column{
		JobList: {
			"name": drawntable.UniqueNames(), "submitted": drawntable.Decimals(1e6), "gpus": drawntable.OneOf("0.25", "1", "8"), "namespace": drawntable.Names(),
			"duration_seconds": drawntable.Decimals(1e6), "members": drawntable.Amount(1, 64), "cpus": drawntable.Decimals(64), "memory_gib": drawntable.Decimals(512),
			"gpu_memory_gib": drawntable.Decimals(64), "gpu_models": drawntable.NamesOf("", "T4", "T4|A100"), "priority": negative(drawntable.Amount(-10, 1000)),
		},
		OpenbNodeList: {
			"sn": drawntable.UniqueNames(), "cpu_milli": drawntable.Amount(1, 1e6), "memory_mib": drawntable.Amount(1, 1e6), "gpu": drawntable.Amount(1, 64), "model": drawntable.Names(),
		},
		OpenbPodList: {
			"name": drawntable.UniqueNames(), "cpu_milli": drawntable.Amount(0, 1e6), "memory_mib": drawntable.Amount(0, 1e6), "num_gpu": drawntable.Amount(1, 1),
			"gpu_milli": drawntable.Amount(1, 1000), "gpu_spec": drawntable.NamesOf("", "T4", "T4|G2", "G2|T4|G2"), "qos": drawntable.Names(),
			"creation_time": drawntable.Amount(0, 1000), "scheduled_time": drawntable.Amount(1000, 2000), "deletion_time": drawntable.Amount(2000, 3000),
		},
		GavelTrace: {
			"job_type": drawntable.Names(), "scale_factor": drawntable.Amount(1, 64), "total_steps": drawntable.Amount(1, 1e9), "arrival_s": drawntable.Decimals(1e6),
		},
		PhillyTrace: {
			"timestamp": {Draw: dates}, "duration": drawntable.Decimals(1e6), "num_gpus": drawntable.Amount(1, 128), "cluster": drawntable.Names(),
		},
		PolluxWorkload: {
			"name": drawntable.UniqueNames(), "time": drawntable.Decimals(1e6), "application": drawntable.Names(), "num_replicas": drawntable.Amount(1, 64), "batch_size": drawntable.Amount(1, 1e6),
		},
		MuriTrace: {
			"job_id": drawntable.UniqueNames(), "num_gpu": drawntable.Amount(1, 32), "submit_time": drawntable.Amount(0, 1e9), "duration": drawntable.Amount(0, 1e9),
			"iterations": drawntable.Amount(1, 1e9), "model_name": drawntable.Names(), "batch_size": drawntable.Amount(1, 128), "iteration_time": drawntable.Decimals(1000),
			"priority": drawntable.Amount(0, 1),
		},
		DLRMTrace: {
			"instance_sn": drawntable.UniqueNames(), "app_name": drawntable.Names(), "cpu_request": drawntable.Decimals(192), "gpu_request": drawntable.Amount(0, 8),
			"memory_request": drawntable.Decimals(960), "creation_time": drawntable.Amount(0, 1000), "scheduled_time": drawntable.Amount(1000, 2000),
			"deletion_time": drawntable.Amount(2000, 3000), "role": drawntable.Names(),
		},
	},
}

// TestAllFormatsAreDrawn: the properties below are those of every format.
func TestAllFormatsAreDrawn(t *testing.T) {
	for _, s := range schemas {
		if len(drawn.Formats[s.Format]) == 0 {
			t.Errorf("no columns of %s are drawn", s.Format)
		}
	}
}

func TestScripts(t *testing.T)               { drawn.Scripts(t) }
func TestPropertyColumns(t *testing.T)       { drawn.Columns(t) }
func TestPropertyBrokenField(t *testing.T)   { drawn.BrokenField(t) }
func TestPropertyMissingColumn(t *testing.T) { drawn.MissingColumn(t) }
