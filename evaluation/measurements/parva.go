package measurements

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/tandem-gpu/tandem/evaluation/mig"
	"github.com/tandem-gpu/tandem/internal/simulator/csvtable"
	"github.com/tandem-gpu/tandem/internal/simulator/traces"
	"github.com/tandem-gpu/tandem/pkg/vgpu"
)

// Formats of ParvaGPU (SC'24), with the columns that each needs. Its rates and latencies have no header: see SLOs.
const (
	// ParvaProfile has ways to serve models on MIG instances: model, gpc (compute slices), batch, procs,
	// throughput_img_s (of one process), latency_s (both 0 where it does not fit). Load reads Servings from it, and
	// Solos of those with one process.
	ParvaProfile csvtable.Format = "parva-profile"
	// ParvaDeployment has instances on GPUs: Num instance (the node), Num GPU, Model, Placement (the first memory slice),
	// Instance size (compute slices), Batch size, Num proc.
	ParvaDeployment csvtable.Format = "parva-deployment"
)

// servingSchemas lists the formats of ParvaGPU.
var servingSchemas = []csvtable.Schema[File]{
	{
		Format: ParvaProfile, Row: parvaServing,
		Needs: []string{"model", "gpc", "batch", "procs", "throughput_img_s", "latency_s"},
	},
	{
		Format: ParvaDeployment, Row: parvaInstance,
		Needs: []string{"Num instance", "Num GPU", "Model", "Placement", "Instance size", "Batch size", "Num proc"},
	},
}

// parvaGPU is where the authors of ParvaGPU measured; their files do not say it.
const parvaGPU = "a100-80g"

// maxProcesses bounds the processes of an instance: MPS serves at most 60 clients of a device.
const maxProcesses = 60

// Serving is one measured way to serve a model: on a MIG instance that several processes of the model share by MPS.
type Serving struct {
	// Line of the file, from 1.
	Line  int
	Model string
	// Slices is the size of the instance, Batch the requests that are answered together, by each of the Processes.
	Slices    mig.Slices
	Batch     int
	Processes int
	// Rate is requests per second of all processes together, Latency how long a batch took. Both are 0 for a batch that
	// did not fit in the memory of the instance, or without a measurement.
	Rate    float64
	Latency time.Duration
}

// Deployed is an instance on a GPU.
type Deployed struct {
	// Line of the file, from 1.
	Line int
	// Node and GPU count from 0, GPU on each node.
	Node, GPU int
	// Start is the memory slice where the instance starts, as the file has it.
	Start int
	// Model, Slices, Batch and Processes are as in Serving.
	Model     string
	Slices    mig.Slices
	Batch     int
	Processes int
}

// sliceSize reads the size of a MIG instance.
func sliceSize(t *csvtable.Table, column string) mig.Slices {
	legal := mig.Sizes()
	s := mig.Slices(t.Whole(column, int64(legal[0]), int64(legal[len(legal)-1])))
	if !slices.Contains(legal, s) {
		t.Fail(column, "the compute slices of a MIG instance: "+strings.Trim(fmt.Sprint(legal), "[]"))
	}
	return s
}

// parvaServing reads a row of ParvaGPU's profile. The file has what one process reaches beside the others.
func parvaServing(t *csvtable.Table, all *File) {
	const words = "images per second"
	s := Serving{
		Line: t.Line(), Model: t.Text("model"), Slices: sliceSize(t, "gpc"), Batch: int(t.Whole("batch", 1, traces.MaxBatch)),
		Processes: int(t.Whole("procs", 1, maxProcesses)),
	}
	t.Unique("model", fmt.Sprintf("%q %d %d %d", s.Model, s.Slices, s.Batch, s.Processes), "model, gpc, batch and procs")
	one := t.Decimal("throughput_img_s", maxRate, words)
	seconds := t.Decimal("latency_s", csvtable.MaxSeconds, csvtable.Unit(time.Second))
	if (one == 0) != (seconds == 0) {
		t.Fail("latency_s", "0 where throughput_img_s is 0, and only there")
	}
	s.Rate = one * float64(s.Processes)
	if seconds > 0 {
		s.Latency = csvtable.Lasting(t.Time("latency_s", time.Second), time.Nanosecond)
	}
	all.Servings = append(all.Servings, s)
	if s.Processes == 1 && s.Rate > 0 {
		all.Solos = append(all.Solos, s.solo())
	}
}

// solo returns a way to serve with one process as a workload alone on a part of the device.
func (s *Serving) solo() Solo {
	const sevenths = 7
	return Solo{
		Line: s.Line, GPU: parvaGPU, Workload: fmt.Sprintf("%s batch %d", s.Model, s.Batch), Family: Family(s.Model),
		Batch: int64(s.Batch), Share: vgpu.MilliGPU(math.Round(float64(vgpu.WholeGPU) * float64(s.Slices) / sevenths)),
		SM: unknown, Bandwidth: unknown, L2: unknown, Rate: s.Rate, Latency: s.Latency,
	}
}

// parvaInstance reads a row of a deployment.
func parvaInstance(t *csvtable.Table, all *File) {
	const lastSlice = 7
	d := Deployed{
		Line: t.Line(), Node: int(t.Whole("Num instance", 0, traces.MaxWorkers)), GPU: int(t.Whole("Num GPU", 0, traces.MaxDevices-1)),
		Start: int(t.Whole("Placement", 0, lastSlice)), Model: t.Text("Model"), Slices: sliceSize(t, "Instance size"),
		Batch: int(t.Whole("Batch size", 1, traces.MaxBatch)), Processes: int(t.Whole("Num proc", 1, maxProcesses)),
	}
	t.Unique("Placement", fmt.Sprint(d.Node, d.GPU, d.Start), "Num instance, Num GPU and Placement")
	all.Deployed = append(all.Deployed, d)
}
