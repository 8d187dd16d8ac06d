package measurements

import (
	"github.com/tandem-gpu/tandem/pkg/vgpu"

	"github.com/tandem-gpu/tandem/internal/simulator/csvtable"
	"github.com/tandem-gpu/tandem/internal/simulator/traces"
)

// Network is a network, with the use of a device by its training: a row of GPUMemNet. The authors do not name the GPU.
type Network struct {
	// Line of the file, from 1.
	Line int
	// Depth is the number of layers. Norms and Dropouts count those of batch normalisation and of dropout.
	Depth, Norms, Dropouts int64
	// Activation is the name of the function: "ReLU".
	Activation string
	// Activations counts the outputs of all layers for one sample, Parameters the weights, Batch the samples of a step.
	Activations, Parameters, Batch int64
	// Memory of the device at its peak.
	Memory vgpu.Bytes
	// Busy is the part of the time in which a kernel ran as NVML counts it (GPUTL), Graphics the same as DCGM counts it
	// (GRACT). SM is the mean part of the SMs with a warp (SMACT), Occupancy the mean part of the warps that they could
	// hold (SMOCC). FP32 is the part of the time in which the FP32 pipe worked (FP32A). Each is from 0 to 1.
	Busy, Graphics, SM, Occupancy, FP32 float64
}

// maxNetwork bounds counts in a network.
const maxNetwork = 1_000_000_000_000_000

func gpuMemNetSample(t *csvtable.Table, all *File) {
	part := func(column string) float64 { return t.Decimal(column, 1, "a part of the time") }
	all.Networks = append(all.Networks, Network{
		Line:  t.Line(),
		Depth: t.Whole("Depth", 1, traces.MaxBatch), Norms: t.Whole("Batch Normalization Layers", 0, traces.MaxBatch),
		Dropouts: t.Whole("Dropout Layers", 0, traces.MaxBatch), Activation: t.Text("Activation Function"),
		Activations: t.Whole("Total Activations", 1, maxNetwork), Parameters: t.Whole("Total Parameters", 1, maxNetwork),
		Batch: t.Whole("Batch Size", 1, traces.MaxBatch), Memory: mebibytes(t, "Max GPU Memory (MiB)"),
		Busy: percent(t, "Avg GPUTL"), Graphics: part("Avg GRACT"), SM: part("Avg SMACT"), Occupancy: part("Avg SMOCC"),
		FP32: part("Avg FP32A"),
	})
}
