package traces

import (
	"math"

	"github.com/tandem-gpu/tandem/pkg/vgpu"
)

// dlrmPod reads a row of Alibaba's trace of disaggregated recommendation models (2025): one job per instance, of the App
// app_name, with whole GPUs or, in the role CN, with none. Empty times are before the start or after the end of the trace.
// Limits, RDMA, disk and the most instances per node are not read.
func dlrmPod(t *table, all *Trace) {
	j := t.job(t.text("instance_sn"))
	t.unique("instance_sn", j.Name, "name")
	j.App, j.Class = t.text("app_name"), t.textOr("role")
	if j.Devices = int(t.whole("gpu_request", 0, maxDevices)); j.Devices > 0 {
		j.Compute = vgpu.WholeGPU
	}
	j.Host = vgpu.Room{
		MilliCPU: int64(math.Round(t.decimal("cpu_request", maxMilliCPU/1000, "cores") * 1000)),
		Memory:   vgpu.Bytes(math.Round(t.decimal("memory_request", maxMemoryMiB>>10, "GiB") * float64(vgpu.GiB))),
	}
	j.Arrive, j.Duration = t.life()
	all.Jobs = append(all.Jobs, j)
}
