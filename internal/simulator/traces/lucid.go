package traces

import (
	"fmt"

	"github.com/tandem-gpu/tandem/pkg/vgpu"
)

// lucidGPU is where the authors of Lucid (ASPLOS'23) measured; their files do not say it.
const lucidGPU = "rtx3090"

const speedWords = "speed together ÷ speed alone"

// lucidPair reads a row of Lucid's colocate_info.csv.
func lucidPair(t *table, all *Trace) {
	c := CoRun{Line: t.line(), GPU: lucidGPU, Fits: true, A: t.lucidRunner("1"), B: t.lucidRunner("2")}
	if t.field("gmem") != "" {
		c.Memory = t.mebibytes("gmem")
	}
	all.CoRuns = append(all.CoRuns, c)
}

func (t *table) lucidRunner(side string) CoRunner {
	r := CoRunner{Share: vgpu.WholeGPU, Speed: t.decimal("speed"+side, maxSpeed, speedWords)}
	r.Workload, r.Family, _ = t.lucidWorkload(side)
	if !legalSpeed(r.Speed) {
		t.fail("speed"+side, fmt.Sprintf("a number from %v to %d (%s)", leastSpeed, maxSpeed, speedWords))
	}
	return r
}

// lucidWorkload names a configuration: "ResNet18 CIFAR-10 batch 32", with "amp" behind it for mixed precision.
func (t *table) lucidWorkload(side string) (name, family string, batch int64) {
	model := t.text("model" + side)
	batch = t.whole("batchsize"+side, 1, maxBatch)
	name = fmt.Sprintf("%s %s batch %d", model, t.text("dataset"+side), batch)
	if t.whole("amp"+side, 0, 1) == 1 {
		name += " amp"
	}
	return name, Family(model), batch
}

// lucidSingle reads a row of Lucid's single_data.csv.
func lucidSingle(t *table, all *Trace) {
	s := Solo{Line: t.line(), GPU: lucidGPU, Share: vgpu.WholeGPU}
	s.Workload, s.Family, s.Batch = t.lucidWorkload("")
	t.unique("model", s.Workload, "model, dataset, batchsize and amp")
	s.Rate = t.positive("speed", maxRate, "samples per second")
	s.SM, s.Bandwidth, s.L2 = t.percent("gpu_util"), t.percent("gmem_util"), unknown
	s.Memory = t.mebibytes("gmem")
	all.Solos = append(all.Solos, s)
}
