package elastic

import (
	"cmp"
	"math"
	"slices"

	"github.com/tandem-gpu/tandem/pkg/vgpu"
)

// option is one size that a job can have: what it takes, and what it is worth.
type option struct {
	size  int
	takes vgpu.MilliGPU
	value float64
}

// maxCells bounds the table of the exact search. 160 jobs on 64 GPUs need ten thousand cells, 1,000 jobs on 8,000 GPUs
// eight million. Above the bound the search is greedy.
const maxCells = 8 << 20

// maxSteps bounds all exact searches of a call of Workers together: a step looks at one legal size for one cell, at a nanosecond or two. 160 jobs with
// eight sizes on 64 GPUs take a hundred thousand. Each search may take half of the steps that are left, and is greedy where it would need more: the first
// decision of a call, which has the most to choose from, is the most exact one.
const maxSteps = 32 << 20

// bestOptions chooses one option of each job so that all together take at most the capacity and the sum of their values
// is the greatest. The first option of a job is the one that it gets where the capacity is too small for anything; of
// equal sums it takes the one in which the first jobs have the earlier options. It returns the indices of the options.
//
// The search is exact up to maxCells and up to half of the steps that are left. Above that it is greedy: it takes the steps along the concave hull of each job's
// options by their value for each GPU, and leaves out those that do not fit. The sum is then less than the best one by at
// most the value of the first step that did not fit (Dantzig 1957).
func bestOptions(jobs [][]option, capacity vgpu.MilliGPU, steps *int) []int {
	base := make([]int, len(jobs))
	unit, most, options := vgpu.MilliGPU(0), vgpu.MilliGPU(0), 0
	for j, list := range jobs {
		options += len(list)
		for i := range list {
			if list[i].takes < list[base[j]].takes {
				base[j] = i
			}
		}
		largest := list[base[j]].takes
		for i := range list {
			unit = gcd(unit, list[i].takes-list[base[j]].takes)
			largest = max(largest, list[i].takes)
		}
		capacity -= list[base[j]].takes
		most += largest - list[base[j]].takes
	}
	if unit == 0 || capacity < unit {
		return base
	}
	cells := int64(min(capacity, most) / unit)
	needs := cells * int64(options)
	if cells*int64(len(jobs)) > maxCells || needs > int64(*steps/2) {
		return greedyOptions(jobs, base, capacity)
	}
	*steps -= int(needs)
	return exactOptions(jobs, base, unit, int(cells))
}

func gcd(a, b vgpu.MilliGPU) vgpu.MilliGPU {
	for b != 0 {
		a, b = b, a%b
	}
	return a
}

// exactOptions fills a table of the best value of the first jobs by the units of capacity that they take at most. The
// base options take none.
func exactOptions(jobs [][]option, base []int, unit vgpu.MilliGPU, cells int) []int {
	width := cells + 1
	chosen := make([]uint16, len(jobs)*width)
	best, next := make([]float64, width), make([]float64, width)
	for j, list := range jobs {
		for c := range next {
			next[c] = math.Inf(-1)
		}
		for i := range list {
			takes := int((list[i].takes - list[base[j]].takes) / unit)
			for c := takes; c < width; c++ {
				if v := best[c-takes] + list[i].value; v > next[c] {
					next[c] = v
					chosen[j*width+c] = uint16(i)
				}
			}
		}
		best, next = next, best
	}
	out := make([]int, len(jobs))
	at := cells
	for j := len(jobs) - 1; j >= 0; j-- {
		out[j] = int(chosen[j*width+at])
		at -= int((jobs[j][out[j]].takes - jobs[j][base[j]].takes) / unit)
	}
	return out
}

// step is a move along the concave hull of a job's options.
type step struct {
	job, option int
	takes       vgpu.MilliGPU
	value       float64
}

// greedyOptions takes the steps with the most value for each GPU first. A job whose step does not fit takes no further
// steps.
func greedyOptions(jobs [][]option, base []int, left vgpu.MilliGPU) []int {
	var steps []step
	for j := range jobs {
		steps = append(steps, hull(j, jobs[j], base[j])...)
	}
	slices.SortStableFunc(steps, func(a, b step) int {
		return cmp.Compare(b.value/float64(b.takes), a.value/float64(a.takes))
	})
	out, stopped := slices.Clone(base), make([]bool, len(jobs))
	for _, s := range steps {
		if stopped[s.job] {
			continue
		}
		if s.takes > left {
			stopped[s.job] = true
			continue
		}
		left -= s.takes
		out[s.job] = s.option
	}
	return out
}

// hull returns the steps from the base option along the concave hull of a job's options: each has less value for each GPU
// than the one before.
func hull(job int, list []option, base int) []step {
	order := make([]int, len(list))
	for i := range order {
		order[i] = i
	}
	slices.SortStableFunc(order, func(a, b int) int { return cmp.Compare(list[a].takes, list[b].takes) })
	points := []int{base}
	slope := func(a, b int) float64 { return (list[b].value - list[a].value) / float64(list[b].takes-list[a].takes) }
	for _, i := range order {
		last := points[len(points)-1]
		if i == base || list[i].value <= list[last].value || list[i].takes == list[last].takes {
			continue
		}
		for len(points) > 1 && slope(points[len(points)-2], points[len(points)-1]) <= slope(points[len(points)-1], i) {
			points = points[:len(points)-1]
		}
		points = append(points, i)
	}
	steps := make([]step, 0, len(points)-1)
	for p := 1; p < len(points); p++ {
		a, b := &list[points[p-1]], &list[points[p]]
		steps = append(steps, step{job, points[p], b.takes - a.takes, b.value - a.value})
	}
	return steps
}
