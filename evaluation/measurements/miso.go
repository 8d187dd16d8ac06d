package measurements

import (
	"fmt"
	"math"
	"regexp"
	"time"

	"github.com/tandem-gpu/tandem/internal/simulator/csvtable"
	"github.com/tandem-gpu/tandem/internal/simulator/traces"
	"github.com/tandem-gpu/tandem/pkg/vgpu"
)

// misoGPU is where the authors of MISO (SoCC'22) measured; their file does not say it.
const misoGPU = "a100-40g"

// migSlice matches the profile of a MIG instance: so many sevenths of the SMs, and its memory.
var migSlice = regexp.MustCompile(`^([1-7])g\.[0-9]{1,3}gb$`)

// misoSlice reads a row of MISO's step times by MIG slice. The Rate is from the mean step, the Latency is the median.
func misoSlice(t *csvtable.Table, all *File) {
	const sevenths = 7
	model, slice := t.Text("model"), t.Field("mig_slice")
	s := Solo{Line: t.Line(), GPU: misoGPU, Family: Family(model), Batch: t.Whole("batch", 1, traces.MaxBatch), L2: unknown}
	s.Workload = fmt.Sprintf("%s batch %d", model, s.Batch)
	if m := migSlice.FindStringSubmatch(slice); m != nil {
		s.Share = vgpu.MilliGPU(math.Round(float64(vgpu.WholeGPU) * float64(m[1][0]-'0') / sevenths))
	} else {
		t.Fail("mig_slice", "a MIG profile such as 1g.5gb, with 1 to 7 in front")
	}
	t.Unique("model", fmt.Sprintf("%q %s", s.Workload, slice), "model, batch and mig_slice")
	s.Latency = latency(t, "median_step_value", time.Second)
	if mean := latency(t, "mean_step_value", time.Second); mean > 0 {
		s.Rate = 1 / mean.Seconds()
	}
	s.SM, s.Bandwidth = percent(t, "util_sm_pct_full"), percent(t, "util_mem_pct_full")
	s.Memory = mebibytes(t, "mem_mib_full")
	all.Solos = append(all.Solos, s)
}
