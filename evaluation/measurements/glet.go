package measurements

import (
	"fmt"

	"github.com/tandem-gpu/tandem/internal/simulator/csvtable"
	"github.com/tandem-gpu/tandem/internal/simulator/traces"
	"github.com/tandem-gpu/tandem/pkg/vgpu"
)

// gletSolo reads a row of the utilisation of gpulet (ATC'22). The file's name says the GPU: "2080ti_UTIL.csv". gletSolo
// skips its durations: they are milliseconds in one published file and seconds in the other, under the same heading.
func gletSolo(t *csvtable.Table, all *File) {
	model := t.Text("bench")
	s := Solo{
		Line: t.Line(), GPU: prefixOf(t.File(), "_UTIL.csv"), Family: Family(model), Batch: t.Whole("batch", 1, traces.MaxBatch),
		Share: vgpu.WholeGPU,
	}
	s.Workload = fmt.Sprintf("%s batch %d", model, s.Batch)
	t.Unique("bench", s.Workload, "bench and batch")
	s.SM, s.L2, s.Bandwidth = percent(t, "SM_util(%)"), percent(t, "l2_util(%)"), percent(t, "mem_util(%)")
	all.Solos = append(all.Solos, s)
}
