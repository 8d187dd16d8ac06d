package traces

import (
	"cmp"
	"errors"
	"fmt"
	"time"

	"github.com/tandem-gpu/tandem/pkg/vgpu"
)

// SlotsPerDevice is N of the devices that Job.Request has in mind: a slot is a thousandth, since traces give shares in
// thousandths.
const SlotsPerDevice vgpu.Slots = 1000

// Host is a node of a trace.
type Host struct {
	Name string
	// Line of the file, from 1.
	Line int
	Room vgpu.Room
	// Devices is the number of GPUs, 0 to 64, all of the Model. The Model is "" without GPUs.
	Devices int
	Model   string
}

// Job is what a trace says of one job, or of one pod where it lists pods. Missing values are zero.
type Job struct {
	// Name is unique in the trace. Traces without names give job-000000, job-000001, … in the order of the file.
	Name string
	// Origin is the name in the file. Only a repeat by Arrivals has another Name.
	Origin string
	// Line of the file, from 1.
	Line int
	// App is the kind of job: jobs of one App behave alike.
	App string
	// Tenant is whose job it is.
	Tenant string
	// Class is the trace's own word for its service: the qos of openb, the role of DLRM.
	Class string
	// Priority as the trace gives it, a higher one first.
	Priority int32
	// Arrive is the time from the start of the trace.
	Arrive time.Duration
	// Duration is how long it ran. 0 is unknown or beyond the end of the trace; a job that took less than the trace's unit
	// has one unit.
	Duration time.Duration
	// Workers ≥ 1 run at once, each with Devices GPUs of which each gives Compute: 1000 for whole GPUs, less only for a
	// single one. Without GPUs Devices and Compute are 0.
	Workers int
	Devices int
	Compute vgpu.MilliGPU
	// DeviceMemory is the request of each worker for the memory of its devices together; 0 for memory in proportion.
	DeviceMemory vgpu.Bytes
	// Host is the CPU and memory of each worker.
	Host vgpu.Room
	// Models lists the GPU models that it may use, sorted; empty for any.
	Models []string
	// Steps is the training steps to do, Batch the samples of one step, StepTime how long one takes.
	Steps    int64
	Batch    int64
	StepTime time.Duration
}

// Total returns the compute of all workers.
func (j *Job) Total() vgpu.MilliGPU {
	return vgpu.MilliGPU(j.Workers) * vgpu.MilliGPU(j.Devices) * j.Compute
}

// Request returns the request of one worker, in slots of a thousandth of a device: the caller makes nodes with
// SlotsPerDevice. The models are variants without a price. A worker without GPUs has no containers. Example: a pod of
// openb with num_gpu 1 and gpu_milli 460 requests 460 slots, one with num_gpu 4 requests 4000.
//
// The error says what of the job is out of bounds; jobs that the readers return have none.
func (j *Job) Request(uid vgpu.UID) (vgpu.Request, error) {
	if err := j.check(); err != nil {
		return vgpu.Request{}, fmt.Errorf("make request of job %s: %w", j.Name, err)
	}
	if uid == "" {
		return vgpu.Request{}, fmt.Errorf("make request of job %s: no UID", j.Name)
	}
	r := vgpu.Request{
		UID: uid, Pod: cmp.Or(j.Tenant, "default") + "/" + j.Name, Priority: j.Priority, Host: j.Host,
	}
	if j.Devices > 0 {
		slots := vgpu.Slots(j.Devices) * vgpu.Slots(j.Compute)
		r.Containers = []vgpu.ContainerRequest{{Name: "main", Slots: slots, Memory: j.DeviceMemory}}
		for _, m := range j.Models {
			r.Variants = append(r.Variants, vgpu.Variant{Model: m})
		}
	}
	return r, nil
}

func (j *Job) check() error {
	switch {
	case j.Name == "":
		return errors.New("no name")
	case j.Workers < 1 || j.Workers > MaxWorkers:
		return fmt.Errorf("%d workers, want 1 to %d", j.Workers, MaxWorkers)
	case j.Devices < 0 || j.Devices > MaxDevices:
		return fmt.Errorf("%d devices, want 0 to %d", j.Devices, MaxDevices)
	case j.Devices == 0 && j.Compute != 0:
		return fmt.Errorf("compute of %d without devices", j.Compute)
	case j.Devices > 0 && (j.Compute < 1 || j.Compute > vgpu.WholeGPU):
		return fmt.Errorf("compute of %d on each device, want 1 to %d", j.Compute, vgpu.WholeGPU)
	case j.Devices > 1 && j.Compute != vgpu.WholeGPU:
		return fmt.Errorf("compute of %d on each of %d devices, want %d", j.Compute, j.Devices, vgpu.WholeGPU)
	case j.DeviceMemory < 0 || j.Devices == 0 && j.DeviceMemory > 0:
		return fmt.Errorf("device memory of %v on %d devices, want no negative amount, and none without devices", j.DeviceMemory, j.Devices)
	case j.Host.MilliCPU < 0 || j.Host.Memory < 0:
		return fmt.Errorf("a host room of %v, want no negative amount", j.Host)
	case len(j.Models) > vgpu.MaxVariants:
		return fmt.Errorf("%d GPU models, want at most %d", len(j.Models), vgpu.MaxVariants)
	}
	for i, m := range j.Models {
		if m == "" || (i > 0 && j.Models[i-1] >= m) {
			return fmt.Errorf("GPU models %q, want names in order, each once", j.Models)
		}
	}
	return nil
}

// memories lists the known device memory of the models in the traces.
var memories = map[string]vgpu.Bytes{
	"A10": 24 * vgpu.GiB, "P100": 16 * vgpu.GiB, "T4": 16 * vgpu.GiB, "V100M16": 16 * vgpu.GiB, "V100M32": 32 * vgpu.GiB,
	"k80": 12 * vgpu.GiB, "p100": 16 * vgpu.GiB, "v100": 16 * vgpu.GiB,
}

// DeviceMemory returns the memory of a GPU model: 16 GiB where the trace hides the model (openb's G2 and G3). No public
// trace says how much of it a pod needs, so shares take it in proportion and it never decides.
func DeviceMemory(model string) vgpu.Bytes {
	if m, ok := memories[model]; ok {
		return m
	}
	return 16 * vgpu.GiB
}

// Node returns the node with an empty ledger and the room of the host. Its devices "name/g0", "name/g1", … are healthy
// and have so many slots each, no links and no limit of contexts.
func (h *Host) Node(slots vgpu.Slots) (*vgpu.Node, error) {
	if h.Devices < 0 || h.Devices > MaxDevices {
		return nil, fmt.Errorf("make node %s: %d devices, want 0 to %d", h.Name, h.Devices, MaxDevices)
	}
	devices := make([]vgpu.Device, 0, h.Devices)
	for i := range h.Devices {
		devices = append(devices, vgpu.Device{
			ID: vgpu.DeviceID(fmt.Sprintf("%s/g%d", h.Name, i)), Index: i, Model: h.Model,
			Slots: slots, Memory: DeviceMemory(h.Model), Healthy: true,
		})
	}
	n, err := vgpu.NewNode(h.Name, devices)
	if err != nil {
		return nil, err
	}
	n.SetRoom(h.Room)
	return n, nil
}
