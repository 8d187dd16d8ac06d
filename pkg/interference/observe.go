package interference

import (
	"cmp"
	"fmt"
	"math"
	"slices"

	"github.com/tandem-gpu/tandem/pkg/vgpu"
)

// row is a neighbourhood as one workload saw it; it is empty where count is 0.
type row struct {
	beside [MaxBeside]Workload // ascending, 0 behind the last
	caps   [MaxBeside + 1]uint16
	count  uint16
	log    float32 // mean logarithm of the speed
}

// self is the cap of the workload that saw the row.
func (r *row) self() vgpu.MilliGPU { return vgpu.MilliGPU(r.caps[MaxBeside]) }

// seen points to a row of another workload.
type seen struct {
	of  Workload
	row uint8
}

// Observation is a co-run: the speed of a workload beside others.
type Observation struct {
	GPU GPU
	Of  Runner
	// Owner of the workload. All workloads of one owner together count, about one neighbour, no more than twice those
	// of the median owner. 0 is an unknown owner, without that bound.
	Owner Owner
	// Beside are its neighbours, 1 to MaxBeside.
	Beside []Runner
	// Speed is its throughput beside the neighbours as a part of that without, 0.001 to 10.
	Speed float64
	// Loose says that the throughput without neighbours is unknown. Speed is then a part of some constant, and the book
	// learns the right constant as the Offset.
	Loose bool
}

// Runner is a workload under a cap, thousandths of the SMs: WholeGPU for none.
type Runner struct {
	Workload Workload
	Cap      vgpu.MilliGPU
}

// validate returns an error for an impossible observation.
func (o *Observation) validate() error {
	switch {
	case o.Of.Workload == 0:
		return fmt.Errorf("the workload has no number")
	case len(o.Beside) == 0 || len(o.Beside) > MaxBeside:
		return fmt.Errorf("%d neighbours, legal are 1 to %d", len(o.Beside), MaxBeside)
	case math.IsNaN(o.Speed) || o.Speed < .001 || o.Speed > 10:
		return fmt.Errorf("speed %v, legal is .001 to 10", o.Speed)
	}
	if err := o.Of.validate(); err != nil {
		return err
	}
	for i := range o.Beside {
		if o.Beside[i].Workload == 0 {
			return fmt.Errorf("a neighbour has no number")
		}
		if err := o.Beside[i].validate(); err != nil {
			return err
		}
	}
	return nil
}

func (r *Runner) validate() error {
	if r.Cap < 1 || r.Cap > vgpu.WholeGPU {
		return fmt.Errorf("cap %d of workload %d, legal is 1 to %d", r.Cap, r.Workload, vgpu.WholeGPU)
	}
	return nil
}

// Observe learns from a co-run. An error names the impossible part of it, and the book learns nothing.
func (b *Book) Observe(o Observation) error {
	if err := o.validate(); err != nil {
		return fmt.Errorf("observe co-run of workload %d: %w", o.Of.Workload, err)
	}
	b.note(&o)
	b.settle(o.GPU, o.Of.Workload)
	for _, r := range o.Beside {
		b.settle(o.GPU, r.Workload)
	}
	b.settle(o.GPU, o.Of.Workload)
	b.pair(b.known[entryKey{o.GPU, o.Of.Workload}])
	return nil
}

// farthest bounds how far one observation of a neighbourhood moves its row, as a logarithm: a factor of two. A larger
// bound keeps one absurd value for longer, a smaller one follows true changes more slowly.
const farthest = .7

// note adds the co-run to the row of the same neighbourhood, else to a new row, in place of the one with the fewest
// observations.
func (b *Book) note(o *Observation) {
	for i := range o.Beside {
		b.entry(o.Beside[i].Workload, o.GPU)
	}
	e := b.entry(o.Of.Workload, o.GPU)
	e.open, e.owner = o.Loose, o.Owner
	e.traits.CoRuns++
	next := rowOf(o)
	at := slices.IndexFunc(e.rows, func(r row) bool { return r.count > 0 && r.beside == next.beside && r.caps == next.caps })
	if at >= 0 {
		r := &e.rows[at]
		r.count = min(maxCount, r.count+1)
		r.log += float32(bound(float64(next.log-r.log), farthest)) / float32(r.count)
		return
	}
	if len(e.rows) < maxRows {
		e.rows = append(e.rows, next)
		at = len(e.rows) - 1
	} else {
		at = e.weakest()
		b.keepPastPairs(e, at)
		b.forgetRow(e, at)
		e.rows[at] = next
	}
	for i, w := range next.beside {
		if w != 0 && !slices.Contains(next.beside[:i], w) {
			b.addSeen(b.known[entryKey{o.GPU, w}], seen{o.Of.Workload, uint8(at)})
		}
	}
}

func rowOf(o *Observation) row {
	beside := slices.Clone(o.Beside)
	slices.SortFunc(beside, func(a, b Runner) int {
		return cmp.Or(cmp.Compare(a.Workload, b.Workload), cmp.Compare(a.Cap, b.Cap))
	})
	r := row{log: float32(math.Log(o.Speed)), count: 1}
	r.caps[MaxBeside] = uint16(o.Of.Cap)
	for i, n := range beside {
		r.beside[i], r.caps[i] = n.Workload, uint16(n.Cap)
	}
	return r
}

// weakest returns the row with the fewest observations. Among equal rows it is the one with the most neighbours, since
// it says the least about each, then the first.
func (e *entry) weakest() int {
	at := 0
	for i := range e.rows {
		r, least := &e.rows[i], &e.rows[at]
		if cmp.Or(cmp.Compare(r.count, least.count), cmp.Compare(least.neighbours(), r.neighbours())) < 0 {
			at = i
		}
	}
	return at
}

// addSeen adds to an entry that a row of another has it as a neighbour. A full entry drops the oldest row of the owner
// with the most rows, so that no owner displaces the reports of others.
func (b *Book) addSeen(n *entry, s seen) {
	if len(n.seen) >= maxSeen {
		n.seen = slices.Delete(n.seen, b.oldestOfLargestOwner(n), 1+b.oldestOfLargestOwner(n))
	}
	if len(n.seen) == cap(n.seen) {
		n.seen = append(make([]seen, 0, min(maxSeen, 2*len(n.seen)+2)), n.seen...)
	}
	n.seen = append(n.seen, s)
}

// oldestOfLargestOwner returns the place of the oldest row of the owner with the most rows, of equal owners the one
// that came first.
func (b *Book) oldestOfLargestOwner(n *entry) int {
	at, most := 0, 0
	for i := range n.seen {
		count := 0
		for j := range n.seen {
			if b.ownerOf(n, i) == b.ownerOf(n, j) {
				count++
			}
		}
		if count > most {
			at, most = i, count
		}
	}
	return at
}

func (b *Book) ownerOf(n *entry, i int) Owner {
	if v := b.known[entryKey{n.key.gpu, n.seen[i].of}]; v != nil {
		return v.owner
	}
	return 0
}

// forgetRow removes a row from the seen rows of its neighbours.
func (b *Book) forgetRow(e *entry, at int) {
	for _, w := range e.rows[at].beside {
		if n := b.known[entryKey{e.key.gpu, w}]; n != nil {
			n.seen = slices.DeleteFunc(n.seen, func(s seen) bool { return s == seen{e.key.workload, uint8(at)} })
		}
	}
}
