package gangs

import (
	"math"
	"slices"
)

// polluxLike divides the GPUs as Pollux (Qiao et al., OSDI 2021) does, with fixed batches. It maximises the power mean,
// with the exponent −1, of the speed-ups relative to an equal share of the cluster. The speed-up of a job counts less
// after a change of its size, by the part of the job's age that all its changes will have taken. Pollux searches with a
// genetic algorithm; this is a local search, which moves GPUs one size at a time while that helps.
type polluxLike struct{ known known }

// idleSpeedup stands for the speed-up of a job without GPUs.
const idleSpeedup = 1e-3

// change is a step of the search: job grow has its next size, and job shrink, unless it is −1, the size below.
type change struct {
	grow, shrink int
	gain         float64
}

func (p *polluxLike) sizes(r *elasticRun, there []*elasticJob) (want, order []int, err error) {
	left := r.nodes * r.perNode
	for _, j := range there {
		want = append(want, len(j.places))
		left -= len(j.places)
	}
	for {
		best := change{gain: 1e-9, grow: -1}
		for i := range there {
			next := above(there[i].sizes, want[i])
			if next == 0 {
				continue
			}
			p.tryGrow(r, there, want, i, next, left, &best)
		}
		if best.grow < 0 {
			break
		}
		if best.shrink >= 0 {
			less := largest(there[best.shrink].sizes, want[best.shrink]-1)
			left += want[best.shrink] - less
			want[best.shrink] = less
		}
		next := above(there[best.grow].sizes, want[best.grow])
		left -= next - want[best.grow]
		want[best.grow] = next
	}
	for _, grows := range []bool{false, true} {
		for i, j := range there {
			if want[i] != len(j.places) && grows == (want[i] > len(j.places)) {
				order = append(order, i)
			}
		}
	}
	return want, order, nil
}

// tryGrow compares the growth of a job into free GPUs, or else by those of another job, with the best step so far.
func (p *polluxLike) tryGrow(r *elasticRun, there []*elasticJob, want []int, i, next, left int, best *change) {
	gain := p.harm(r, there, i, want[i]) - p.harm(r, there, i, next)
	more := float64(next - want[i])
	if next-want[i] <= left {
		if gain/more > best.gain {
			*best = change{i, -1, gain / more}
		}
		return
	}
	for k, o := range there {
		less := largest(o.sizes, want[k]-1)
		if k == i || less == 0 || left+want[k]-less < next-want[i] {
			continue
		}
		if both := (gain + p.harm(r, there, k, want[k]) - p.harm(r, there, k, less)) / more; both > best.gain {
			*best = change{i, k, both}
		}
	}
}

// above returns the least size above a number, 0 for none.
func above(sizes []int, n int) int {
	i, _ := slices.BinarySearch(sizes, n+1)
	if i == len(sizes) {
		return 0
	}
	return sizes[i]
}

// harm is the inverse of a job's speed-up with so many workers on as few nodes as possible.
func (p *polluxLike) harm(r *elasticRun, there []*elasticJob, i, workers int) float64 {
	j := there[i]
	if workers == 0 {
		return 1 / idleSpeedup
	}
	c, _ := p.known.of(r, j)
	rate := func(n int) float64 { return c.Rate(n, int(ceil(int64(n), int64(r.perNode)))) }
	fair := largest(j.sizes, max(j.sizes[0], r.nodes*r.perNode/len(there)))
	speedup := rate(workers) / rate(fair)
	if workers != len(j.places) && len(j.places) > 0 {
		age := r.now - j.arrive
		speedup *= math.Max(idleSpeedup, (age-float64(len(j.moved)+1)*j.cost)/(age+j.cost))
	}
	return 1 / speedup
}
