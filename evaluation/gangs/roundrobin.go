package gangs

import "slices"

// turn is how many seconds a job of roundRobin keeps its GPUs while others wait.
const turn = 600

// roundRobin gives the jobs the sizes that they asked for, in turns. A job that has had its turn stops where others wait,
// and continues behind them with the work that it did.
type roundRobin struct {
	queue []*elasticJob
	// since is when the turn of a job began.
	since map[int]float64
}

func (p *roundRobin) sizes(r *elasticRun, there []*elasticJob) (want, order []int, err error) {
	if p.since == nil {
		p.since = map[int]float64{}
	}
	had := func(j *elasticJob) bool { return len(j.places) > 0 && r.now-p.since[j.id] >= turn }
	var first, last []*elasticJob
	for _, j := range p.queue {
		switch {
		case !slices.Contains(there, j):
		case had(j):
			last = append(last, j)
		default:
			first = append(first, j)
		}
	}
	for _, j := range there {
		if !slices.Contains(p.queue, j) {
			first = append(first, j)
		}
	}
	p.queue = slices.Concat(first, last)
	want, left := make([]int, len(there)), r.nodes*r.perNode
	var starts []int
	for _, j := range p.queue {
		size, i := largest(j.sizes, j.workers), slices.Index(there, j)
		if size > left {
			continue
		}
		left -= size
		want[i] = size
		if len(j.places) == 0 {
			p.since[j.id] = r.now
			starts = append(starts, i)
		}
	}
	for i, j := range there {
		if want[i] == 0 && len(j.places) > 0 {
			order = append(order, i)
		}
	}
	return want, append(order, starts...), nil
}
