package elastic

import (
	"slices"

	"github.com/tandem-gpu/tandem/pkg/vgpu"
)

// policy is a rule for sizes. The function decide returns the size that each entry of a pool should have, 0 for a job that
// goes on waiting. A size is legal and at most the entry's limit, or it is the size that the job has. All sizes together
// take at most the capacity of the pool, unless the least sizes of the running jobs take more.
type policy struct {
	name   string
	decide func(s *search, p *pool) []int
	// worth reports whether a running job should grow to a rate. A policy with this function weighs rates: it decides
	// again where a job would be slower than expected with the places that it would get.
	worth func(s *search, e *entry, rate float64) bool
	// remaining says that the policy orders jobs by the time that they still take.
	remaining bool
}

// policies in the order in which they are shown.
var policies = []policy{
	{name: "goodput", decide: goodput, worth: (*search).repays},
	{name: "elastic-fifo", decide: elasticFIFO},
	{name: "elastic-srjf", decide: elasticSRJF, remaining: true},
	{name: "ffdl", decide: ffdl, worth: faster},
	{name: "elastic-kubeflow", decide: elasticKubeflow},
	{name: "dragon", decide: dragon},
}

// Policies returns the names of the policies, the default first.
func Policies() []string {
	names := make([]string, 0, len(policies))
	for i := range policies {
		names = append(names, policies[i].name)
	}
	return names
}

func policyOf(name string) (policy, bool) {
	i := slices.Index(Policies(), name)
	if i < 0 {
		return policy{}, false
	}
	return policies[i], true
}

// sizes is a decision in the making: a size for each entry of a pool, and what is left of the capacity.
type sizes struct {
	*pool
	want []int
	left vgpu.MilliGPU
}

// atLeast gives the running jobs their least sizes, and then those that wait, in an order, where they fit. A nil order
// is that of the pool.
func (p *pool) atLeast(order []int) *sizes {
	z := &sizes{pool: p, want: make([]int, len(p.entries)), left: p.capacity}
	for i, e := range p.entries {
		if !e.waits() {
			z.set(i, e.least())
		}
	}
	if order == nil {
		order = p.inOrder()
	}
	for _, i := range order {
		z.start(i)
	}
	return z
}

// asNow gives the running jobs the sizes that they have.
func (p *pool) asNow() *sizes {
	z := &sizes{pool: p, want: make([]int, len(p.entries)), left: p.capacity}
	for i, e := range p.entries {
		if !e.waits() {
			z.set(i, e.size)
		}
	}
	return z
}

func (p *pool) inOrder() []int {
	order := make([]int, len(p.entries))
	for i := range order {
		order[i] = i
	}
	return order
}

// set changes the size of an entry.
func (z *sizes) set(i, size int) {
	z.left -= z.entries[i].takes(size - z.want[i])
	z.want[i] = size
}

// start gives a job that waits its least size if that fits, and reports whether it did.
func (z *sizes) start(i int) bool {
	e := z.entries[i]
	if !e.waits() || z.want[i] > 0 || e.blocked || e.takes(e.least()) > z.left {
		return false
	}
	z.set(i, e.least())
	return true
}

// startLargest starts a job that waits with the largest size that fits, and reports whether it did.
func (z *sizes) startLargest(i int) bool {
	if !z.start(i) {
		return false
	}
	for z.grow(i) {
		continue
	}
	return true
}

// next returns the next larger legal size of an entry within its limit, and false where there is none.
func (z *sizes) next(i int) (size int, legal bool) {
	e := z.entries[i]
	if z.want[i] >= e.most() || e.above(z.want[i]) > e.limit {
		return 0, false
	}
	return e.above(z.want[i]), true
}

// grow gives an entry its next larger size if that fits, and reports whether it did. Jobs that go on waiting do not grow.
func (z *sizes) grow(i int) bool {
	size, legal := z.next(i)
	if !legal || z.want[i] == 0 || z.entries[i].takes(size-z.want[i]) > z.left {
		return false
	}
	z.set(i, size)
	return true
}

// share grows the entries by one size each in turn, in an order, while any fits.
func (z *sizes) share(order []int) {
	for grew := true; grew; {
		grew = false
		for _, i := range order {
			grew = z.grow(i) || grew
		}
	}
}

// shrink gives an entry its next smaller legal size, and reports whether there is one.
func (z *sizes) shrink(i int) bool {
	size, legal := z.entries[i].sizeBelow(z.want[i] - 1)
	if legal {
		z.set(i, size)
	}
	return legal
}
