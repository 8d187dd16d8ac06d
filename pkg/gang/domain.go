package gang

import (
	"cmp"
	"slices"
)

// domain is a set of cells that are close together and may take the whole load.
type domain struct {
	cells []int32
	// takes is the capacity of the cells in the units of load, or what topology.cost says.
	takes int64
	// spreads are the least number of domains of each objective that the load uses.
	spreads []int
	// index is the place of the domain in the order of names.
	index int
}

// load is the request of some members. If all members are of one class, it counts members. Else it counts slots in
// thousandths and one for each member, so that members without GPUs count.
type load struct {
	counts []int
	sum    int64
}

const perSlot = 1000

func (t *topology) load(counts []int) load {
	l := load{counts: counts}
	for k, n := range counts {
		l.sum += int64(n) * t.weight(k)
	}
	return l
}

// weight is what one member of a class adds to a load.
func (t *topology) weight(k int) int64 {
	if len(t.caps) == 1 {
		return 1
	}
	return t.snapshot.members.classes[k].slots()*perSlot + 1
}

// takes returns the capacity of a cell for a load.
func (t *topology) takes(l *load, i int32) int64 {
	if len(t.caps) == 1 {
		return int64(t.caps[0][i])
	}
	members, sum := int64(0), int64(0)
	for k, n := range l.counts {
		fit := min(int64(n), int64(t.caps[k][i]))
		members += fit
		sum += fit * t.weight(k)
	}
	return min(sum, t.slots[i]*perSlot+members)
}

// takesTogether returns the capacity of cells for a load, where islands of one node share its host.
func (t *topology) takesTogether(l *load, cells []int32) (sum int64) {
	if t.hosts == nil {
		for _, i := range cells {
			sum += t.takes(l, i)
		}
		return sum
	}
	for _, i := range cells {
		t.left[t.cells[i].node] = t.hosts[t.cells[i].node]
	}
	for _, i := range cells {
		more := min(t.left[t.cells[i].node], t.caps[0][i])
		t.left[t.cells[i].node] -= more
		sum += int64(more)
	}
	return sum
}

// suffices reports whether the bounds of the cells admit the load, and returns the capacity of the cells.
func (t *topology) suffices(cells []int32, l *load) (takes int64, sufficient bool) {
	for k, n := range l.counts {
		sum := 0
		for _, i := range cells {
			if sum += int(t.caps[k][i]); sum >= n && len(t.caps) > 1 {
				break
			}
		}
		if sum < n {
			return 0, false
		}
	}
	takes = t.takesTogether(l, cells)
	return takes, takes >= l.sum
}

// domains returns the cells by the domains of all levels together, by name. Cells without one of the labels belong to
// none. If members have places, it returns only the domain that has them all.
func (t *topology) domains(levels []*division) []domain {
	number := make([]int64, len(t.cells))
	for _, v := range levels {
		only, one := v.onlyDomain()
		for i, d := range v.of {
			if !one || d >= v.named || only >= 0 && d != only {
				number[i] = -1
			}
			if number[i] >= 0 {
				number[i] = number[i]*int64(v.named) + int64(d)
			}
		}
		number = renumber(number)
	}
	return groupCells(number)
}

// renumber numbers from 0 without gaps, in the same order; −1 stays.
func renumber(number []int64) []int64 {
	most := slices.Max(append(number[:len(number):len(number)], -1))
	if most < int64(4*len(number)) {
		at := make([]int64, most+1)
		for _, d := range number {
			if d >= 0 {
				at[d] = 1
			}
		}
		next := int64(0)
		for d := range at {
			at[d], next = next, next+at[d]
		}
		for i, d := range number {
			if d >= 0 {
				number[i] = at[d]
			}
		}
		return number
	}
	sorted := slices.Compact(slices.Sorted(slices.Values(number)))
	below := 0
	if sorted[0] < 0 {
		below = 1
	}
	for i, d := range number {
		if d >= 0 {
			at, _ := slices.BinarySearch(sorted, d)
			number[i] = int64(at - below)
		}
	}
	return number
}

// groupCells makes a domain of the cells with equal numbers, which have no gaps. Numbers below 0 belong to none.
func groupCells(number []int64) []domain {
	count := int64(0)
	for _, d := range number {
		count = max(count, d+1)
	}
	sizes := make([]int32, count)
	all := int32(0)
	for _, d := range number {
		if d >= 0 {
			sizes[d]++
			all++
		}
	}
	list, backing := make([]domain, count), make([]int32, all)
	for d := range list {
		list[d].cells, backing = backing[:0:sizes[d]], backing[sizes[d]:]
		list[d].index = d
	}
	for i, d := range number {
		if d >= 0 {
			list[d].cells = append(list[d].cells, int32(i))
		}
	}
	return list
}

// compare orders domains: the fewest domains of each objective, then the least room that is left, then by name.
func (d *domain) compare(o *domain) int {
	return cmp.Or(slices.Compare(d.spreads, o.spreads), cmp.Compare(d.takes, o.takes), cmp.Compare(d.index, o.index))
}
