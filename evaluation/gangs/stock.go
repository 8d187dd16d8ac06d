package gangs

import (
	"cmp"
	"math/rand/v2"
	"slices"
)

// deadlocked is after how many seconds with GPUs for a part of its workers a job is started anew by its user.
const deadlocked = 600

// stock is the default scheduler of Kubernetes, which knows pods and no jobs. Each worker in turn gets a GPU of the
// node with the most free ones, of several a random one. A user deletes a job when a part of its workers has waited for
// the others for ten minutes, and creates it again, behind all others.
type stock struct {
	random *rand.Rand
	// created is when the pods of each job were, since when a part of its workers has GPUs.
	created, since map[int]float64
	// stuck lists the jobs of that kind.
	stuck map[int]bool
}

func newStock(random *rand.Rand) *stock {
	return &stock{random: random, created: map[int]float64{}, since: map[int]float64{}, stuck: map[int]bool{}}
}

func (s *stock) round(c *gangCluster) error {
	for _, j := range c.jobs {
		if _, known := s.created[j.id]; !known {
			s.created[j.id] = j.arrive
		}
		if since, partly := s.since[j.id]; partly && c.now-since >= deadlocked {
			c.stop(j)
			s.created[j.id], s.stuck[j.id] = c.now, true
			delete(s.since, j.id)
		}
	}
	queue := waiting(c, func(a, b *gangJob) int {
		return cmp.Or(cmp.Compare(s.created[a.id], s.created[b.id]), cmp.Compare(a.id, b.id))
	})
	for _, j := range queue {
		for rank := range j.nodes {
			if j.nodes[rank] == nowhere && c.idle() > 0 {
				c.put(j, rank, emptiest(c.free, s.random))
			}
		}
		_, partly := s.since[j.id]
		switch {
		case !j.waits():
			delete(s.since, j.id)
		case !partly && j.placed() > 0:
			s.since[j.id] = c.now
		}
	}
	return nil
}

// waiting returns the jobs that have not all their workers, in an order.
func waiting(c *gangCluster, order func(a, b *gangJob) int) []*gangJob {
	var list []*gangJob
	for _, j := range c.jobs {
		if j.waits() {
			list = append(list, j)
		}
	}
	slices.SortFunc(list, order)
	return list
}

// byArrival is first come, first served.
func byArrival(a, b *gangJob) int { return cmp.Compare(a.id, b.id) }

// emptiest returns the node with the most free GPUs, of several a random one.
func emptiest(free []int, random *rand.Rand) int {
	best, ties := 0, 0
	for n := range free {
		switch {
		case free[n] > free[best] || ties == 0:
			best, ties = n, 1
		case free[n] == free[best]:
			if ties++; random.IntN(ties) == 0 {
				best = n
			}
		}
	}
	return best
}

// gangsAnywhere starts whole jobs, first come, first served; one that does not fit lets others pass. Its workers go where
// the default scheduler would put them.
type gangsAnywhere struct{ random *rand.Rand }

func (g *gangsAnywhere) round(c *gangCluster) error {
	for _, j := range waiting(c, byArrival) {
		if c.idle() < j.workers {
			continue
		}
		for rank := range j.nodes {
			c.put(j, rank, emptiest(c.free, g.random))
		}
	}
	return nil
}

// dragon follows the controller of DRAGON (Lin, Yeh, Chou, CLOSER 2019; github.com/NTHU-LSALAB/DRAGON) for jobs with a
// fixed number of workers. The controller has three phases. When the first job has waited for half a minute, the
// running jobs give GPUs back for it, and no other job starts before it does. Else the first job that fits starts.
// After a minute without an event the running jobs grow. With a fixed number of workers no job gives back or grows.
//
// A job goes to one node that takes all of it, else to the node that takes the most and then to others. Among equals it
// goes to a random one, like the map iteration of the controller.
type dragon struct{ random *rand.Rand }

// dragonPatience is the number of seconds after which the controller waits for the first job.
const dragonPatience = 30

func (d *dragon) round(c *gangCluster) error {
	for {
		queue := waiting(c, byArrival)
		if len(queue) == 0 {
			return nil
		}
		if first := queue[0]; c.now-first.arrive >= dragonPatience && c.idle() < first.workers {
			return nil
		}
		i := slices.IndexFunc(queue, func(j *gangJob) bool { return j.workers <= c.idle() })
		if i < 0 {
			return nil
		}
		c.start(queue[i], d.nodes(c, queue[i].workers))
	}
}

// nodes returns where a job that fits goes.
func (d *dragon) nodes(c *gangCluster, workers int) []int {
	order := d.random.Perm(len(c.free))
	if one := slices.IndexFunc(order, func(n int) bool { return c.free[n] >= workers }); one >= 0 {
		return slices.Repeat(order[one:one+1], workers)
	}
	most := 0
	for i := range order {
		if c.free[order[i]] > c.free[order[most]] {
			most = i
		}
	}
	order[0], order[most] = order[most], order[0]
	return fill(c.free, order, workers)
}

// fill takes the free GPUs of nodes in an order, as many as there are workers.
func fill(free, order []int, workers int) []int {
	nodes := make([]int, 0, workers)
	for _, n := range order {
		for range min(free[n], workers-len(nodes)) {
			nodes = append(nodes, n)
		}
	}
	return nodes
}
