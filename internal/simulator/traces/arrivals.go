package traces

import (
	"cmp"
	"errors"
	"fmt"
	"math/rand"
	"slices"

	"github.com/tandem-gpu/tandem/internal/simulator/csvtable"
	"github.com/tandem-gpu/tandem/pkg/vgpu"
)

// Bounds of inflation.
const (
	// maxInflate bounds how often the jobs fill a cluster.
	maxInflate = 10
	// maxArrivals bounds the order, twenty times what the openb lists give at 1.3.
	maxArrivals = 1 << 18
)

// Arrivals returns the order in which the experiments of FGD (ATC'23, kubernetes-scheduler-simulator) submit the pods
// of an openb list with a seed. It also returns the rank of each of so many nodes, in the order of their names: of
// equally good nodes these experiments take the one with the smallest rank. Both come from one stream of Go's
// math/rand, in this order:
//
//   - one Int is thrown away; the jobs, sorted by name, are shuffled;
//   - if the sum of the requests is less than inflate × capacityMilli, Arrivals appends jobs from the sorted list (Intn).
//     It stops at a job with one GPU whose compute would pass that target; a job of several GPUs may pass it;
//   - if the sum is more, Arrivals takes jobs out of the order (Intn), until it is not;
//   - Perm gives the ranks.
//
// An inflate of 0 leaves the jobs as many as they are. The second and later appearances of a job have the names name#2,
// name#3, … and keep the Origin. Arrivals does not change the jobs themselves.
//
// Errors: no jobs, a name that appears twice or that a repeat would need, and bounds (inflate is finite and at most 10,
// nodes and capacity are positive). Jobs without compute that would have to fill a target, and more than 262,144
// arrivals, are errors too.
func Arrivals(jobs []Job, nodes int, capacityMilli, seed int64, inflate float64) (order []Job, rank []int, err error) {
	switch {
	case len(jobs) == 0:
		return nil, nil, errors.New("order arrivals: no jobs")
	case nodes < 1 || nodes > csvtable.MaxRows:
		return nil, nil, fmt.Errorf("order arrivals: %d nodes, want 1 to %d", nodes, csvtable.MaxRows)
	case capacityMilli < 1 || capacityMilli > MaxSteps:
		return nil, nil, fmt.Errorf("order arrivals: a capacity of %d milli-GPU, want 1 to %d", capacityMilli, int64(MaxSteps))
	case !(inflate >= 0 && inflate <= maxInflate): // also when it is not a number
		return nil, nil, fmt.Errorf("order arrivals: inflate %v, want 0 to %d", inflate, maxInflate)
	}
	sorted := slices.SortedFunc(slices.Values(jobs), func(a, b Job) int { return cmp.Compare(a.Name, b.Name) })
	for i := range sorted {
		if err := sorted[i].check(); err != nil {
			return nil, nil, fmt.Errorf("order arrivals: job %s: %w", sorted[i].Name, err)
		}
		if i > 0 && sorted[i-1].Name == sorted[i].Name {
			return nil, nil, fmt.Errorf("order arrivals: job %s appears twice", sorted[i].Name)
		}
	}
	random := rand.New(rand.NewSource(seed))
	random.Int() // FGD's simulator spends one on a line of its log
	order = slices.Clone(sorted)
	random.Shuffle(len(order), func(i, j int) { order[i], order[j] = order[j], order[i] })
	if inflate > 0 {
		// The target may be no whole number. Sums are far below 2⁵³, so that comparing with it is exact.
		if order, err = fill(order, sorted, inflate*float64(capacityMilli), random); err != nil {
			return nil, nil, fmt.Errorf("order arrivals: %w", err)
		}
	}
	if err := renameRepeats(order, sorted); err != nil {
		return nil, nil, fmt.Errorf("order arrivals: %w", err)
	}
	return order, random.Perm(nodes), nil
}

// fill appends jobs to the order, or takes some out, until their requests reach the target.
func fill(order, sorted []Job, target float64, random *rand.Rand) ([]Job, error) {
	total := vgpu.MilliGPU(0)
	for i := range order {
		total += order[i].Total()
	}
	for float64(total) > target {
		i := random.Intn(len(order))
		total -= order[i].Total()
		order = slices.Delete(order, i, i+1)
	}
	if len(order) < len(sorted) || float64(total) == target {
		return order, nil
	}
	if total == 0 {
		return nil, errors.New("no job asks for GPUs: repeating them cannot inflate the load")
	}
	for len(order) <= maxArrivals {
		j := sorted[random.Intn(len(sorted))]
		if float64(total+j.Compute) > target {
			return order, nil
		}
		total += j.Total()
		order = append(order, j)
	}
	return nil, fmt.Errorf("more than %d arrivals are needed to ask for %.0f milli-GPU", maxArrivals, target)
}

// renameRepeats gives the repeats of a job names of their own.
func renameRepeats(order, sorted []Job) error {
	count := make(map[string]int, len(sorted))
	for i := range sorted {
		count[sorted[i].Name] = 0
	}
	for i := range order {
		name := order[i].Name
		if count[name]++; count[name] == 1 {
			continue
		}
		repeat := fmt.Sprintf("%s#%d", name, count[name])
		if _, taken := count[repeat]; taken {
			return fmt.Errorf("name repeat %d of job %s: there is a job %s", count[name], name, repeat)
		}
		order[i].Name = repeat
	}
	return nil
}
