package gangs

import (
	"cmp"
	"slices"
)

// preemptive runs the first jobs of an order, as many as there are GPUs for. A running job that is not among them
// stops, and continues later.
type preemptive struct {
	// order sorts the jobs, the first to run first.
	order func(c *gangCluster) []*gangJob
	// place returns where a job goes for which there are enough free GPUs, and books it.
	place func(c *gangCluster, j *gangJob) ([]int, error)
	// book receives the state of the cluster before each placement; nil without ledgers.
	book *gangBook
}

func (p *preemptive) round(c *gangCluster) error {
	left := len(c.free) * c.perNode
	var run []*gangJob
	for _, j := range p.order(c) {
		if j.workers <= left {
			left -= j.workers
			run = append(run, j)
		} else {
			c.stop(j)
		}
	}
	if p.book != nil {
		p.book.sync(c)
	}
	for _, j := range run {
		if !j.waits() {
			continue
		}
		nodes, err := p.place(c, j)
		if err != nil {
			return err
		}
		c.start(j, nodes)
	}
	return nil
}

// tiresiasQueue is the service, in GPU-seconds, with which a job leaves the first queue: 16 GPU-hours, as in the simulator
// of Pollux.
const tiresiasQueue = 16 * 3600

// tiresias orders jobs by discretised attained service with two queues (Gu et al., NSDI 2019), as the simulator of
// Pollux (Qiao et al., OSDI 2021) does. Jobs with less service than tiresiasQueue come before the others, and each
// queue has the order in which jobs entered it.
type tiresias struct {
	queues [2][]*gangJob
	known  map[int]bool
}

func newTiresias() *tiresias { return &tiresias{known: map[int]bool{}} }

func (t *tiresias) order(c *gangCluster) []*gangJob {
	there := map[int]bool{}
	for _, j := range c.jobs {
		there[j.id] = true
		if !t.known[j.id] {
			t.known[j.id] = true
			t.queues[0] = append(t.queues[0], j)
		}
	}
	for q := range t.queues {
		t.queues[q] = slices.DeleteFunc(t.queues[q], func(j *gangJob) bool { return !there[j.id] })
	}
	for _, j := range c.jobs {
		if i := slices.Index(t.queues[0], j); i >= 0 && !j.waits() && j.service >= tiresiasQueue {
			t.queues[0] = slices.Delete(t.queues[0], i, i+1)
			t.queues[1] = append(t.queues[1], j)
		}
	}
	return slices.Concat(t.queues[0], t.queues[1])
}

// emptiestFirst fills the node with the most free GPUs, then the next, the first by number among equals: Tiresias in the
// simulator of Pollux.
func emptiestFirst(c *gangCluster, j *gangJob) ([]int, error) {
	order := make([]int, len(c.free))
	for n := range order {
		order[n] = n
	}
	slices.SortStableFunc(order, func(a, b int) int { return cmp.Compare(c.free[b], c.free[a]) })
	return fill(c.free, order, j.workers), nil
}

// inClasses orders jobs by class, the least first, then those that run, then by arrival. So a job stops only for one of a
// lesser class.
func inClasses(class func(c *gangCluster, j *gangJob) int) func(c *gangCluster) []*gangJob {
	return func(c *gangCluster) []*gangJob {
		list := slices.Clone(c.jobs)
		slices.SortStableFunc(list, func(a, b *gangJob) int {
			return cmp.Or(cmp.Compare(class(c, a), class(c, b)), compareBool(a.waits(), b.waits()), byArrival(a, b))
		})
		return list
	}
}

func compareBool(a, b bool) int {
	switch {
	case a == b:
		return 0
	case b:
		return -1
	}
	return 1
}

// scale returns how many times as large as the cluster of Pollux, for which the bounds of classes are, a cluster is.
func (c *gangCluster) scale() float64 { return float64(len(c.free)*c.perNode) / 64 }

// byService makes two classes of the GPU time that a job had, with the bound of Tiresias.
func byService(c *gangCluster, j *gangJob) int {
	return hoursClass(j.service/c.scale(), tiresiasQueue/3600)
}

// bySize puts jobs with more than a quarter of the cluster behind the others: 16 GPUs of that of Pollux.
func bySize(c *gangCluster, j *gangJob) int {
	if float64(j.workers) > 16*c.scale() {
		return 1
	}
	return 0
}

// byHours makes three classes of the expected GPU-hours of a job, with bounds at 4 and 16, of which the latter is that
// of Tiresias.
func byHours(c *gangCluster, j *gangJob) int {
	return hoursClass(j.expected*float64(j.workers)/c.scale(), 4, 16)
}

// hoursClass returns how many of the bounds, in GPU-hours, an amount in GPU-seconds reaches.
func hoursClass(amount float64, bounds ...float64) int {
	n := 0
	for _, b := range bounds {
		if amount >= b*3600 {
			n++
		}
	}
	return n
}
