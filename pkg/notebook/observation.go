package notebook

import (
	"fmt"
	"time"
)

// Phase is how far a notebook is.
type Phase string

// The phases. Only PhaseServing tells whether something works.
const (
	// PhaseOff: the workload asks for no pod.
	PhaseOff Phase = "Off"
	// PhaseStarting: the workload asks for a pod, and no container of it has started yet, or each start of one came to its end.
	PhaseStarting Phase = "Starting"
	// PhaseUnreachable: the pod runs, and it is unknown what works in it.
	PhaseUnreachable Phase = "Unreachable"
	// PhaseServing: the notebook's server answers.
	PhaseServing Phase = "Serving"
)

// Observation is what there is of a notebook at a moment.
type Observation struct {
	Phase Phase
	// Pod is the unique name of the pod, empty where there is none. Another pod is another start, with kernels of its own.
	Pod string
	// Busy says that something works now, and Activity when something worked last, by the clock of the notebook. Both are of PhaseServing.
	Busy     bool
	Activity time.Time
	// Note is what the pod's note is now.
	Note Note
}

// KernelBusy is the state of a kernel that runs a cell. A kernel that no client has joined stays "starting", which is no work.
const KernelBusy = "busy"

// Kernel is what a notebook's server says of a kernel.
type Kernel struct {
	State    string
	Activity time.Time
}

// GPU is what telemetry says of the pod's own use of its GPU.
type GPU string

// These are the values of GPU. GPUUnknown also stands for a use that is not the pod's own: that of neighbours would keep an idle
// notebook.
const (
	GPUUnknown GPU = "Unknown"
	GPUQuiet   GPU = "Quiet"
	GPUBusy    GPU = "Busy"
)

// Server is what the server of a notebook and the telemetry say.
type Server struct {
	Kernels []Kernel
	// Terminals are the times of the last output or input of each terminal.
	Terminals []time.Time
	// ReadySince is when the pod became ready. It counts where there is no kernel and no terminal.
	ReadySince time.Time
	GPU        GPU
}

// Serving returns the observation of a pod whose server answered.
//
// Example: kernels that are idle since 9:00 and 9:30, and a terminal silent since 9:10, make a notebook that is idle since 9:30. With a kernel
// that is busy since 8:00 in a cell without output it is busy.
func Serving(pod string, s *Server) Observation {
	o := Observation{Phase: PhaseServing, Pod: pod, Busy: s.GPU == GPUBusy}
	for _, k := range s.Kernels {
		o.Busy = o.Busy || k.State == KernelBusy
		o.Activity = later(o.Activity, k.Activity)
	}
	for _, t := range s.Terminals {
		o.Activity = later(o.Activity, t)
	}
	if len(s.Kernels)+len(s.Terminals) == 0 {
		o.Activity = s.ReadySince
	}
	return o
}

func later(a, b time.Time) time.Time {
	if b.After(a) {
		return b
	}
	return a
}

// check returns an error for an observation that cannot be.
func (o *Observation) check() error {
	switch o.Phase {
	case PhaseOff, PhaseStarting, PhaseUnreachable:
		if o.Busy {
			return fmt.Errorf("observe pod %q: it is busy and %s, which nobody can know", o.Pod, o.Phase)
		}
	case PhaseServing:
	default:
		return fmt.Errorf("observe pod %q: the phase is %q", o.Pod, o.Phase)
	}
	return nil
}
