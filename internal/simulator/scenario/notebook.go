package scenario

import (
	"fmt"
	"time"

	"github.com/tandem-gpu/tandem/pkg/sim"
	"github.com/tandem-gpu/tandem/pkg/vgpu"
)

// notebooks are drawn as the jobs of a generator are, and compute in bursts.
type notebooks struct {
	*generator
	after vgpu.UID
	burst time.Duration
	duty  float64
}

// jobs draws the notebooks.
func (n *notebooks) jobs(seed int64) ([]sim.Job, error) {
	jobs, err := n.generator.jobs(seed)
	for i := range jobs {
		jobs[i].After = n.after
	}
	return jobs, err
}

// notebooks reads the notebooks; left bounds their number.
func (r *reader) notebooks(files []notebookFile, a *asker, taken map[scalar]string, left int) (all []*notebooks) {
	for i := range files {
		path, f := at("workload.notebooks", i), &files[i]
		n := &notebooks{generator: r.generator(path, &f.generatorFile, a, taken, left)}
		left -= n.count
		if f.Duration == nil {
			r.wrong(path+".duration", "nothing", "how long the notebooks are open, such as {fixed: 8h}")
		}
		for k := range f.Shapes {
			shape := at(path+".shapes", k)
			if f.Shapes[k].Gang != nil || f.Shapes[k].Slots == "" {
				r.wrong(shape, "no slots, or a gang", "the slots of one notebook")
			}
		}
		n.burst = r.drainTime(path+".burst", f.Burst, 0, [2]time.Duration{time.Second, maxInterval})
		if f.Burst == "" {
			r.wrong(path+".burst", "nothing", "the mean time of a burst alone on a GPU, such as 40s")
		}
		n.duty = r.decimal(path+".duty", f.Duty, .001, 1)
		all = append(all, n)
	}
	return all
}

// oneSize returns the number of slots of the GPUs, and refuses GPUs of unlike numbers.
func (r *reader) oneSize(path string, nodes []*vgpu.Node) (slots vgpu.Slots) {
	for _, n := range nodes {
		for i := range n.Devices() {
			switch s := n.Devices()[i].Slots; {
			case slots == 0:
				slots = s
			case slots != s:
				r.wrong(path, fmt.Sprintf("GPUs of %d and of %d slots", slots, s), "one number of slots of all GPUs, so that shares can be compared with whole GPUs")
			}
		}
	}
	if slots == 0 {
		r.wrong(path, "a cluster without GPUs", "nodes with GPUs")
	}
	return slots
}
