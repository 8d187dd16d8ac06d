package gangs

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/tandem-gpu/tandem/evaluation/measurements"
)

// timing is how long a step took, and how much of that the workers spent on each other, in seconds, at so many samples of
// each worker.
type timing struct {
	batch      int64
	step, sync float64
}

// between returns the timing a part of the way from t to u, 0 to 1.
func (t timing) between(u timing, part float64) timing {
	return timing{batch: t.batch, step: t.step + part*(u.step-t.step), sync: t.sync + part*(u.sync-t.sync)}
}

// stepTable holds the measured steps of one application on one kind of node.
type stepTable struct {
	// placed has the timings by placement string, of which the smallest rotation stands for all; counted has them by number
	// of nodes and workers, the mean of the placements. Both are ordered by batch.
	placed  map[string][]timing
	counted map[int]map[int][]timing
	// most is the largest batch of a worker.
	most int64
}

// newStepTable sums up measured steps.
func newStepTable(steps []measurements.Step) stepTable {
	t := stepTable{placed: map[string][]timing{}, counted: map[int]map[int][]timing{}}
	for i := range steps {
		s := &steps[i]
		m := timing{batch: s.Batch, step: s.Time.Seconds(), sync: s.Sync.Seconds()}
		if s.Placement != "" {
			key := smallestRotation(s.Placement)
			t.placed[key] = append(t.placed[key], m)
			t.most = max(t.most, s.Batch)
		}
		if t.counted[s.Nodes] == nil {
			t.counted[s.Nodes] = map[int][]timing{}
		}
		t.counted[s.Nodes][s.Workers] = append(t.counted[s.Nodes][s.Workers], m)
	}
	for key := range t.placed {
		t.placed[key] = meanByBatch(t.placed[key])
	}
	for _, of := range t.counted {
		for workers := range of {
			of[workers] = meanByBatch(of[workers])
		}
	}
	return t
}

// meanByBatch orders timings by batch; those of one batch become their mean.
func meanByBatch(all []timing) []timing {
	slices.SortStableFunc(all, func(a, b timing) int { return cmp.Compare(a.batch, b.batch) })
	out := make([]timing, 0, len(all))
	for len(all) > 0 {
		same := 1
		sum := all[0]
		for ; same < len(all) && all[same].batch == all[0].batch; same++ {
			sum.step += all[same].step
			sum.sync += all[same].sync
		}
		out = append(out, timing{batch: all[0].batch, step: sum.step / float64(same), sync: sum.sync / float64(same)})
		all = all[same:]
	}
	return out
}

// smallestRotation turns a placement so that it comes first by its text: which node is the first makes no difference.
func smallestRotation(placement string) string {
	least := placement
	for i := range placement {
		least = min(least, placement[i:]+placement[:i])
	}
	return least
}

// placementOf writes how many workers are on each node, in the order of the first worker of each: nodes 3, 3, 5 are
// "21". The result is "" when a node has more than nine.
func placementOf(nodes []int) (placement string, of int) {
	var order []int
	count := map[int]int{}
	for _, n := range nodes {
		if count[n] == 0 {
			order = append(order, n)
		}
		count[n]++
	}
	var b strings.Builder
	for _, n := range order {
		if count[n] > 9 {
			return "", len(order)
		}
		fmt.Fprint(&b, count[n])
	}
	return b.String(), len(order)
}

// at returns the timing of workers on these nodes, with so many samples each: of the placement if it was measured, else
// by the number of nodes and workers.
func (t *stepTable) at(nodes []int, batch int64) timing {
	placement, count := placementOf(nodes)
	if m := t.placed[smallestRotation(placement)]; len(m) > 0 {
		return atBatch(m, batch)
	}
	return t.interpolated(count, len(nodes), batch)
}

// interpolated goes between the nearest measured numbers of nodes, with as many workers on each node. Beyond the
// largest it takes that, with as many workers in all.
func (t *stepTable) interpolated(nodes, workers int, batch int64) timing {
	low, high := around(slices.Sorted(maps.Keys(t.counted)), nodes)
	if low == high {
		wanted := float64(workers)
		if nodes < low {
			wanted *= float64(low) / float64(nodes)
		}
		return t.atWorkers(low, wanted, batch)
	}
	each := float64(workers) / float64(nodes)
	a, b := t.atWorkers(low, each*float64(low), batch), t.atWorkers(high, each*float64(high), batch)
	return a.between(b, float64(nodes-low)/float64(high-low))
}

// atWorkers goes between the nearest measured numbers of workers on so many nodes.
func (t *stepTable) atWorkers(nodes int, workers float64, batch int64) timing {
	counts := slices.Sorted(maps.Keys(t.counted[nodes]))
	low, high := counts[0], counts[len(counts)-1]
	for _, n := range counts {
		if float64(n) <= workers {
			low = n
		}
	}
	for _, n := range slices.Backward(counts) {
		if float64(n) >= workers {
			high = n
		}
	}
	a := atBatch(t.counted[nodes][low], batch)
	if low >= high {
		return a
	}
	return a.between(atBatch(t.counted[nodes][high], batch), (workers-float64(low))/float64(high-low))
}

// around returns the members of an ordered list next below and above a number, or the number itself twice; at an end of the
// list that end twice.
func around(list []int, n int) (low, high int) {
	i, found := slices.BinarySearch(list, n)
	switch {
	case found || i == 0:
		return list[i], list[i]
	case i == len(list):
		return list[i-1], list[i-1]
	}
	return list[i-1], list[i]
}

// atBatch goes between the nearest measured batches. Beyond the ends it takes those.
func atBatch(of []timing, batch int64) timing {
	i, found := slices.BinarySearchFunc(of, batch, func(t timing, batch int64) int { return cmp.Compare(t.batch, batch) })
	switch {
	case found || i == 0:
		return of[i]
	case i == len(of):
		return of[i-1]
	}
	return of[i-1].between(of[i], float64(batch-of[i-1].batch)/float64(of[i].batch-of[i-1].batch))
}
