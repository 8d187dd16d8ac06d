package traces

import (
	"math"

	"github.com/tandem-gpu/tandem/internal/simulator/csvtable"
	"github.com/tandem-gpu/tandem/pkg/vgpu"
)

// dlrmPod reads a row of Alibaba's trace of disaggregated recommendation models (2025): one job per instance, of the
// App app_name, with whole GPUs or, in the role CN, with none. Empty times are before the start or after the end of the
// trace. dlrmPod does not read limits, RDMA, disk and the most instances per node.
func dlrmPod(t *csvtable.Table, all *Trace) {
	j := job(t, t.Text("instance_sn"))
	t.Unique("instance_sn", j.Name, "name")
	j.App, j.Class = t.Text("app_name"), t.TextOr("role")
	if j.Devices = int(t.Whole("gpu_request", 0, MaxDevices)); j.Devices > 0 {
		j.Compute = vgpu.WholeGPU
	}
	j.Host = vgpu.Room{
		MilliCPU: int64(math.Round(t.Decimal("cpu_request", maxMilliCPU/1000, "cores") * 1000)),
		Memory:   vgpu.Bytes(math.Round(t.Decimal("memory_request", MaxMemoryMiB>>10, "GiB") * float64(vgpu.GiB))),
	}
	j.Arrive, j.Duration = life(t)
	all.Jobs = append(all.Jobs, j)
}
