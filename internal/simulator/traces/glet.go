package traces

import (
	"fmt"

	"github.com/tandem-gpu/tandem/pkg/vgpu"
)

// gletSolo reads a row of the utilisation of gpulet (ATC'22). The file's name says the GPU: "2080ti_UTIL.csv". Its
// durations are not read: they are milliseconds in one published file and seconds in the other, under the same heading.
func gletSolo(t *table, all *Trace) {
	model := t.text("bench")
	s := Solo{
		Line: t.line(), GPU: prefixOf(t.file, "_UTIL.csv"), Family: Family(model), Batch: t.whole("batch", 1, maxBatch),
		Share: vgpu.WholeGPU,
	}
	s.Workload = fmt.Sprintf("%s batch %d", model, s.Batch)
	t.unique("bench", s.Workload, "bench and batch")
	s.SM, s.L2, s.Bandwidth = t.percent("SM_util(%)"), t.percent("l2_util(%)"), t.percent("mem_util(%)")
	all.Solos = append(all.Solos, s)
}
