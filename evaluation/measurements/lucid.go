package measurements

import (
	"fmt"

	"github.com/tandem-gpu/tandem/internal/simulator/csvtable"
	"github.com/tandem-gpu/tandem/internal/simulator/traces"
	"github.com/tandem-gpu/tandem/pkg/vgpu"
)

// lucidGPU is where the authors of Lucid (ASPLOS'23) measured; their files do not say it.
const lucidGPU = "rtx3090"

const speedWords = "speed together ÷ speed alone"

// lucidPair reads a row of Lucid's colocate_info.csv.
func lucidPair(t *csvtable.Table, all *File) {
	c := CoRun{Line: t.Line(), GPU: lucidGPU, Fits: true, A: lucidRunner(t, "1"), B: lucidRunner(t, "2")}
	if t.Field("gmem") != "" {
		c.Memory = mebibytes(t, "gmem")
	}
	all.CoRuns = append(all.CoRuns, c)
}

func lucidRunner(t *csvtable.Table, side string) CoRunner {
	r := CoRunner{Share: vgpu.WholeGPU, Speed: t.Decimal("speed"+side, maxSpeed, speedWords)}
	r.Workload, r.Family, _ = lucidWorkload(t, side)
	if !legalSpeed(r.Speed) {
		t.Fail("speed"+side, fmt.Sprintf("a number from %v to %d (%s)", leastSpeed, maxSpeed, speedWords))
	}
	return r
}

// lucidWorkload names a configuration: "ResNet18 CIFAR-10 batch 32", with "amp" behind it for mixed precision.
func lucidWorkload(t *csvtable.Table, side string) (name, family string, batch int64) {
	model := t.Text("model" + side)
	batch = t.Whole("batchsize"+side, 1, traces.MaxBatch)
	name = fmt.Sprintf("%s %s batch %d", model, t.Text("dataset"+side), batch)
	if t.Whole("amp"+side, 0, 1) == 1 {
		name += " amp"
	}
	return name, Family(model), batch
}

// lucidSingle reads a row of Lucid's single_data.csv.
func lucidSingle(t *csvtable.Table, all *File) {
	s := Solo{Line: t.Line(), GPU: lucidGPU, Share: vgpu.WholeGPU}
	s.Workload, s.Family, s.Batch = lucidWorkload(t, "")
	t.Unique("model", s.Workload, "model, dataset, batchsize and amp")
	s.Rate = positive(t, "speed", maxRate, "samples per second")
	s.SM, s.Bandwidth, s.L2 = percent(t, "gpu_util"), percent(t, "gmem_util"), unknown
	s.Memory = mebibytes(t, "gmem")
	all.Solos = append(all.Solos, s)
}
