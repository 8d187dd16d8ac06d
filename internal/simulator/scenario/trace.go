package scenario

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/tandem-gpu/tandem/internal/simulator/csvtable"
	"github.com/tandem-gpu/tandem/internal/simulator/traces"
	"github.com/tandem-gpu/tandem/pkg/gang"
	"github.com/tandem-gpu/tandem/pkg/sim"
	"github.com/tandem-gpu/tandem/pkg/vgpu"
)

// traced is a workload from a trace.
type traced struct {
	all []traces.Job
	// inflate is the load in parts of the cluster's compute, with arrivals in an order that the seed draws; 0: the times of
	// the trace.
	inflate  float64
	nodes    int
	capacity vgpu.MilliGPU
	// usual are the levels that gangs prefer.
	usual []string
}

// load reads a trace, beside the scenario unless its path is absolute.
func (r *reader) load(path string, s scalar) *traces.Trace {
	if s == "" {
		r.wrong(path, "nothing", "the path of a trace")
		return nil
	}
	name := string(s)
	if !filepath.IsAbs(name) {
		name = filepath.Join(filepath.Dir(r.file), name)
	}
	t, err := traces.Load(name)
	var broken *csvtable.Error
	switch {
	case errors.Is(err, os.ErrNotExist):
		r.wrong(path, quote(s)+", which is not there", "the path of a trace, from the folder of the scenario")
	case errors.As(err, &broken):
		r.wrong(path, "a broken trace ("+broken.Error()+")", "a trace without errors")
	case err != nil:
		r.wrong(path, "a trace that cannot be read ("+err.Error()+")", "one that can")
	}
	if r.err != nil {
		return nil
	}
	return t
}

// nodesOfTrace reads the nodes of a node list.
func (r *reader) nodesOfTrace(path string, f *nodesFile) []*vgpu.Node {
	t := r.load(path+".path", f.Path)
	if t == nil {
		return nil
	}
	if len(t.Hosts) == 0 || len(t.Hosts) > maxNodes {
		r.wrong(path+".path", fmt.Sprintf("%s with %d nodes", t.Format, len(t.Hosts)), fmt.Sprintf("a list of 1 to %d nodes", maxNodes))
		return nil
	}
	nodes := make([]*vgpu.Node, 0, len(t.Hosts))
	for i := range t.Hosts {
		n, err := t.Hosts[i].Node(traces.SlotsPerDevice)
		if err != nil {
			r.wrong(path+".path", err.Error(), "nodes that can be")
			return nil
		}
		nodes = append(nodes, n)
	}
	return nodes
}

// trace reads the jobs of a trace.
func (r *reader) trace(path string, f *traceFile, nodes []*vgpu.Node, usual []string) source {
	t := r.load(path+".path", f.Path)
	if t == nil {
		return nil
	}
	s := &traced{all: t.Jobs, nodes: len(nodes), usual: usual}
	if f.Format != "" && string(t.Format) != string(f.Format) {
		r.wrong(path+".format", quote(f.Format), "the format of the file, "+string(t.Format))
	}
	if len(t.Jobs) == 0 || len(t.Jobs) > maxJobs {
		r.wrong(path+".path", fmt.Sprintf("%s with %d jobs", t.Format, len(t.Jobs)), fmt.Sprintf("a trace of 1 to %d jobs", maxJobs))
	}
	for _, o := range vgpu.Offers(nodes) {
		if o.Device.Slots != traces.SlotsPerDevice {
			r.wrong(path, fmt.Sprintf("a cluster with devices of %d slots", o.Device.Slots),
				fmt.Sprintf("slots: %d in all groups, since traces give shares in thousandths", traces.SlotsPerDevice))
		}
	}
	s.capacity = sim.Capacity(nodes)
	if f.Inflate != "" {
		s.inflate = r.decimal(path+".inflate", f.Inflate, 0.01, 100)
		if s.capacity == 0 {
			r.wrong(path+".inflate", quote(f.Inflate), "nothing, since the cluster has no GPUs")
		}
	}
	if r.err == nil {
		if _, err := s.jobs(0); err != nil {
			r.wrong(path, "jobs that cannot be ("+err.Error()+")", "others")
		}
	}
	return s
}

// step is the time between two arrivals where the trace's own times do not count.
const step = time.Second

// jobs returns a pod for each worker of each job. Several workers of one job are a gang.
func (s *traced) jobs(seed int64) ([]sim.Job, error) {
	list := s.all
	if s.inflate > 0 {
		var err error
		if list, _, err = traces.Arrivals(s.all, s.nodes, int64(s.capacity), seed, s.inflate); err != nil {
			return nil, err
		}
	}
	var jobs []sim.Job
	for i := range list {
		var own *sim.Gang
		if list[i].Workers > 1 {
			own = &sim.Gang{Name: "trace/" + list[i].Name, Wishes: gang.Wishes{Preferred: s.usual}}
		}
		for w := range list[i].Workers {
			job, err := s.job(&list[i], w)
			if err != nil {
				return nil, err
			}
			if s.inflate > 0 {
				job.Arrive, job.Duration = time.Duration(i)*step, 0
			}
			job.Gang = own
			jobs = append(jobs, job)
		}
		if len(jobs) > maxJobs {
			return nil, fmt.Errorf("more than %d workers", maxJobs)
		}
	}
	return jobs, nil
}

func (s *traced) job(j *traces.Job, worker int) (sim.Job, error) {
	pod := "trace/" + j.Name
	if j.Workers > 1 {
		pod += fmt.Sprintf("/%d", worker)
	}
	r, err := j.Request(vgpu.UID(pod))
	if err != nil {
		return sim.Job{}, err
	}
	r.Pod = pod
	return sim.Job{Request: r, Arrive: j.Arrive, Duration: j.Duration}, nil
}
