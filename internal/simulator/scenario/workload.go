package scenario

import (
	"fmt"
	"time"

	"github.com/tandem-gpu/tandem/pkg/sim"
	"github.com/tandem-gpu/tandem/pkg/vgpu"
)

// source is a part of a workload: the jobs that it gives with a seed.
type source interface {
	jobs(seed int64) ([]sim.Job, error)
}

// listed is jobs that stand in the scenario: the same with every seed.
type listed []sim.Job

func (l listed) jobs(int64) ([]sim.Job, error) { return l, nil }

// workload reads the sources of the jobs.
func (r *reader) workload(f *workloadFile, nodes []*vgpu.Node, usual, policies []string) (all []source, fleets []*fleet, order []orderedPart) {
	a := asker{reader: r, nodes: distinct(nodes), models: modelsOf(nodes), all: nodes}
	a.levels, a.usual = r.known(nodes), usual
	list := r.listed(f.Jobs, &a)
	if len(list) > 0 {
		all = append(all, list)
	}
	taken, left := map[scalar]string{}, maxJobs-len(f.Jobs)
	for i := range f.Generators {
		g := r.generator(at("workload.generators", i), &f.Generators[i], &a, taken, left)
		if left -= g.count * g.largest(); g.count > 0 {
			all = append(all, g)
		}
	}
	books := r.notebooks(f.Notebooks, &a, taken, left)
	for _, n := range books {
		if n.count > 0 {
			all = append(all, n)
		}
	}
	if f.Trace != nil {
		all = append(all, r.trace("workload.trace", f.Trace, nodes, usual))
	}
	fleets = r.fleets(f.Fleets, &a, map[scalar]string{}, policies)
	if len(all) == 0 && len(fleets) == 0 {
		r.wrong("workload", "no jobs", "jobs, generators, fleets, notebooks or a trace")
	}
	if r.err == nil {
		order = r.order(partsOf(f, list, fleets, books))
	}
	return all, fleets, order
}

func (r *reader) listed(files []jobFile, a *asker) listed {
	if len(files) > maxJobs {
		r.wrong("workload.jobs", fmt.Sprintf("%d jobs", len(files)), fmt.Sprintf("at most %d", maxJobs))
		return nil
	}
	var list listed
	taken := map[scalar]string{}
	for i := range files {
		path, f := at("workload.jobs", i), &files[i]
		name := r.name(path+".name", f.Name, taken)
		w := a.work(path, &f.workFile)
		arrive, duration := r.start(path+".arrive", f.Arrive), time.Duration(0)
		if f.Duration != "" {
			duration = r.duration(path+".duration", f.Duration, time.Millisecond)
		}
		declares := r.declares(path, f.DeclaresEnd, f.Duration != "")
		s := r.standing(path, &f.standingFile, "jobs/"+name)
		r.suits(path, &w, declares, &s)
		if list = append(list, s.give(w.jobs("jobs/"+name, arrive, duration, declares))...); len(list) > maxJobs {
			r.wrong("workload.jobs", fmt.Sprintf("%d pods", len(list)), fmt.Sprintf("at most %d", maxJobs))
			return nil
		}
	}
	return list
}

// suits refuses what an elastic gang cannot have.
func (r *reader) suits(path string, w *work, declares bool, s *standing) {
	switch {
	case w.gang == nil || w.gang.Elastic == nil:
	case declares:
		r.wrong(path+".declares_end", `"true"`, "nothing, since the end of an elastic job depends on its workers")
	case s.budget != nil:
		r.wrong(path+".max_unavailable", fmt.Sprintf("%q", fmt.Sprint(s.budget.MaxUnavailable)), "nothing, since the members of an elastic job that are held back would count")
	}
}

// declares reads whether pods say when they end.
func (r *reader) declares(path string, s scalar, end bool) bool {
	declares := r.yes(path+".declares_end", s)
	if declares && !end {
		r.wrong(path+".declares_end", quote(s), "a duration beside it: without one the pods never end")
	}
	return declares
}

// named gives a request its identity.
func named(r *vgpu.Request, pod string) { r.Pod, r.UID = pod, vgpu.UID(pod) }

// asker reads the requests of pods, and refuses those that no node of the empty cluster could meet.
type asker struct {
	*reader
	nodes  []*vgpu.Node
	models []string
	// all nodes, not only those that differ.
	all []*vgpu.Node
	// levels that gangs may wish for, and those that they prefer if they name none.
	levels, usual []string
}

// request reads the request of a pod: one container.
func (a *asker) request(path string, f *askFile) vgpu.Request {
	r := vgpu.Request{Host: vgpu.Room{MilliCPU: a.cpu(path+".cpu", f.CPU), Memory: a.memory(path+".memory", f.Memory)}}
	slots := vgpu.Slots(a.wholeOr(0, path+".slots", f.Slots, 0, maxDevices*maxSlots))
	memory := a.memory(path+".gpu_memory", f.GPUMemory)
	models := a.reader.models(path+".models", f.Models, a.models)
	switch {
	case slots > 0:
		r.Containers = []vgpu.ContainerRequest{{Name: "main", Slots: slots, Memory: memory}}
		for _, m := range models {
			r.Variants = append(r.Variants, vgpu.Variant{Model: m})
		}
	case memory > 0 || len(models) > 0:
		a.wrong(path+".slots", quote(f.Slots), "1 or more, since the pod asks for gpu_memory or models")
	case r.Host == vgpu.Room{}:
		a.wrong(path, "a pod that asks for nothing", "slots, cpu or memory")
	}
	if a.err != nil {
		return r
	}
	if refusal := sim.Explain(a.nodes, &r); refusal != nil {
		a.wrong(path, "more than any node has ("+refusal.Why()+")", "what an empty node of the cluster can give")
	}
	return r
}
