package gangs

import (
	"cmp"
	"fmt"
	"math"
	"slices"

	"github.com/tandem-gpu/tandem/internal/simulator/csvtable"
	"github.com/tandem-gpu/tandem/internal/simulator/traces"
)

// set is workloads of one format with one load: the columns of one table of Elastic.
type set struct {
	format csvtable.Format
	// load is 0 for the workloads as they are.
	load    float64
	batches []gangBatch
}

// elasticWorkload is a workload with its jobs, in the order of their arrival.
type elasticWorkload struct {
	file   string
	format csvtable.Format
	jobs   []gangJob
}

// sets checks the fields, reads the jobs, and divides them into the columns of tables: one table for each format of
// workloads and each load. It also counts the jobs that were left out.
func (e *Elastic) sets() (sets []set, leftOut int, err error) {
	apps, err := e.apps()
	if err != nil {
		return nil, 0, err
	}
	switch {
	case !(e.Least >= 0 && e.Least <= 1):
		return nil, 0, fmt.Errorf("least sizes of %v times what jobs ask for, legal is 0 to 1", e.Least)
	case e.Jobs < 1 || e.Jobs > MaxJobs:
		return nil, 0, fmt.Errorf("%d jobs of a trace, legal is 1 to %d", e.Jobs, MaxJobs)
	}
	all := make([]elasticWorkload, 0, len(e.Workloads))
	for _, w := range e.Workloads {
		of := elasticWorkload{file: w.File, format: w.Format}
		if w.Format == traces.MuriTrace {
			of.jobs, err = e.muriJobs(apps, w)
		} else {
			of.jobs, err = e.jobs(apps, w)
		}
		if err != nil {
			return nil, 0, err
		}
		for i := range of.jobs {
			of.jobs[i].least = int(math.Ceil(e.Least * float64(of.jobs[i].workers)))
		}
		leftOut += len(w.Jobs) - len(of.jobs)
		all = append(all, of)
	}
	loads := e.Loads
	if len(loads) == 0 {
		loads = []float64{0}
	}
	for _, format := range []csvtable.Format{traces.PolluxWorkload, traces.MuriTrace} {
		for _, load := range loads {
			if s := e.set(all, format, load); len(s.batches) > 0 {
				sets = append(sets, s)
			}
		}
	}
	return sets, leftOut, nil
}

// set returns the columns of one format with one load.
func (e *Elastic) set(all []elasticWorkload, format csvtable.Format, load float64) set {
	s := set{format: format, load: load}
	for i := range all {
		of := &all[i]
		if of.format != format {
			continue
		}
		b := gangBatch{name: of.file, draws: true}
		if format == traces.MuriTrace {
			b.jobs = func(seed int64) []gangJob {
				return stretch(inARow(of.jobs, e.Jobs, seed), cmp.Or(load, 1), e.Nodes*e.GPUs)
			}
		} else {
			b.draws = load != 0 && load != 1
			b.jobs = func(seed int64) []gangJob { return times(all, i, cmp.Or(load, 1), seed) }
		}
		s.batches = append(s.batches, b)
	}
	return s
}

// times returns as many times as many jobs as a workload has: a part of them, or all of them and others of the workloads
// of the same format. If there is no other workload, jobs of the same one come again.
func times(all []elasticWorkload, at int, load float64, seed int64) []gangJob {
	own := all[at].jobs
	count := max(1, int(math.Round(load*float64(len(own)))))
	if count <= len(own) {
		if count == len(own) {
			return inArrival(slices.Clone(own))
		}
		return inArrival(drawJobs(own, count, seed))
	}
	var others []gangJob
	for i := range all {
		if i != at && all[i].format == all[at].format {
			others = append(others, all[i].jobs...)
		}
	}
	if len(others) == 0 {
		others = own
	}
	return inArrival(append(slices.Clone(own), drawJobs(others, count-len(own), seed)...))
}
