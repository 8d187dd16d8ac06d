package interference

import (
	"cmp"
	"fmt"
	"math"
	"slices"

	"github.com/tandem-gpu/tandem/pkg/vgpu"
)

// Bounds of what a Book keeps of one workload on one GPU model.
const (
	// maxRows is the number of neighbourhoods that are remembered as seen by the workload. More remembers the past for
	// longer and costs 48 bytes each.
	maxRows = 16
	// maxSeen is the number of its neighbours' rows that speak of its pressure.
	maxSeen = 24
	// MaxBeside is the number of neighbours of a co-run that teaches. With more, nobody can tell whose pressure it was.
	MaxBeside = 4
	// maxCount bounds how many observations of one neighbourhood count: beyond it the oldest fade.
	maxCount = 16
)

// Book is what is known of workloads on GPU models: profiles, and what was learned from co-runs. It is for one goroutine.
//
// It learns by finding the traits that make the observed speeds and the doubt about all traits smallest together (the
// maximum a posteriori), a few workloads at a time: those that an observation is about. Observations far from what is
// expected count less, and those of many neighbours outvote a liar.
type Book struct {
	model Model
	max   int
	step  int64
	known map[entryKey]*entry
	// levels are the mean sensitivities by GPU model.
	levels map[GPU]float64
}

type entryKey struct {
	gpu      GPU
	workload Workload
}

// GPU is the number of a GPU model in a Book.
type GPU uint16

// entry is one workload on one GPU model.
type entry struct {
	profile Profile
	traits  Traits
	rows    []row
	seen    []seen // rows of others that it is a neighbour in, the latest last
	touched int64  // the step of the last observation or declaration
	open    bool   // its speed alone is not known
}

// row is a neighbourhood as one workload saw it.
type row struct {
	beside [MaxBeside]Workload // ascending, 0 behind the last
	caps   [MaxBeside + 1]float32
	log    float32 // mean logarithm of the speed
	count  float32
}

// seen points to a row of another workload.
type seen struct {
	of  Workload
	row uint8
}

// NewBook returns an empty book that goes by a model and keeps at most max workloads on GPU models, the latest observed.
// max is at least 1.
func NewBook(m Model, maximum int) *Book {
	return &Book{model: m, max: max(1, maximum), known: map[entryKey]*entry{}, levels: map[GPU]float64{}}
}

// Len returns the number of workloads on GPU models that the book knows.
func (b *Book) Len() int { return len(b.known) }

// Declare notes the profile of a workload on a GPU model; what was learned of it stays. The error is Profile.Validate's,
// or says that the workload has no number.
func (b *Book) Declare(w Workload, gpu GPU, p Profile) error {
	if w == 0 {
		return fmt.Errorf("declare profile: the workload has no number")
	}
	if err := p.Validate(); err != nil {
		return fmt.Errorf("declare profile of workload %d: %w", w, err)
	}
	b.entry(w, gpu).profile = p
	return nil
}

// Restore notes what was learned of a workload before. Traits out of range are an error, and nothing is noted.
func (b *Book) Restore(w Workload, gpu GPU, t Traits) error {
	if err := t.validate(); err != nil {
		return fmt.Errorf("restore traits of workload %d: %w", w, err)
	}
	b.entry(w, gpu).traits = t
	return nil
}

// mostTrait bounds the logarithms of Traits: a factor of 55.
const mostTrait = 4.

func (t *Traits) validate() error {
	for _, v := range []struct {
		name    string
		v, from float64
		to      float64
	}{
		{"Sensitivity", t.Sensitivity, -mostTrait, mostTrait}, {"Pressure", t.Pressure, -mostTrait, mostTrait},
		{"Offset", t.Offset, -mostTrait, mostTrait}, {"SureSensitivity", t.SureSensitivity, 0, 1},
		{"SurePressure", t.SurePressure, 0, 1}, {"SureOffset", t.SureOffset, 0, 1},
	} {
		if math.IsNaN(v.v) || v.v < v.from || v.v > v.to {
			return fmt.Errorf("%s is %v, legal is %v to %v", v.name, v.v, v.from, v.to)
		}
	}
	if t.CoRuns < 0 {
		return fmt.Errorf("CoRuns is %d, legal is 0 or more", t.CoRuns)
	}
	return nil
}

// Profile returns the profile of a workload on a GPU model: Unknown's where there is none.
func (b *Book) Profile(w Workload, gpu GPU) Profile {
	if e := b.known[entryKey{gpu, w}]; e != nil {
		return e.profile
	}
	return Unknown()
}

// Traits returns what was learned of a workload on a GPU model. Of one that was never observed there it is what is known
// of all workloads on that model: their mean sensitivity.
func (b *Book) Traits(w Workload, gpu GPU) Traits {
	t := Traits{Sensitivity: b.levels[gpu]}
	if e := b.known[entryKey{gpu, w}]; e != nil && e.traits.CoRuns > 0 {
		t = e.traits
	} else if e != nil {
		t.Pressure, t.SurePressure = e.traits.Pressure, e.traits.SurePressure
	}
	t.Level = b.levels[gpu]
	return t
}

// Tenant returns a workload as a tenant that may use a part of the SMs.
func (b *Book) Tenant(w Workload, gpu GPU, part vgpu.MilliGPU) Tenant {
	p := b.Profile(w, gpu)
	t := p.On(part)
	t.Workload, t.Traits = w, b.Traits(w, gpu)
	return t
}

// Forget drops a workload from all GPU models.
func (b *Book) Forget(w Workload) {
	for key := range b.known {
		if key.workload == w {
			b.drop(key)
		}
	}
}

// entry returns the entry of a workload, made where there is none. The least recently touched goes where there is no room.
func (b *Book) entry(w Workload, gpu GPU) *entry {
	key := entryKey{gpu, w}
	e := b.known[key]
	if e == nil {
		if len(b.known) >= b.max {
			b.drop(b.oldest())
		}
		e = &entry{profile: Unknown()}
		b.known[key] = e
	}
	b.step++
	e.touched = b.step
	return e
}

func (b *Book) oldest() entryKey {
	var oldest entryKey
	first := true
	for key, e := range b.known {
		if first || e.touched < b.known[oldest].touched {
			oldest, first = key, false
		}
	}
	return oldest
}

// drop forgets one entry, and what others saw of it.
func (b *Book) drop(key entryKey) {
	for other, e := range b.known {
		if other.gpu == key.gpu {
			e.seen = slices.DeleteFunc(e.seen, func(s seen) bool { return s.of == key.workload })
			e.disown(key.workload)
		}
	}
	delete(b.known, key)
}

// disown empties the rows that a workload was a neighbour in: without it they explain nothing.
func (e *entry) disown(w Workload) {
	for i := range e.rows {
		if slices.Contains(e.rows[i].beside[:], w) {
			e.rows[i] = row{}
		}
	}
}

// Observation is a co-run: how fast a workload was beside others.
type Observation struct {
	GPU GPU
	Of  Runner
	// Beside are its neighbours, 1 to MaxBeside.
	Beside []Runner
	// Speed is its throughput together as a part of that alone, .001 to 10.
	Speed float64
	// Loose says that nobody measured the throughput alone: Speed is a part of some constant, and what the constant
	// should be is learned as the Offset.
	Loose bool
}

// Runner is a workload under a cap, thousandths of the SMs: WholeGPU for none.
type Runner struct {
	Workload Workload
	Cap      vgpu.MilliGPU
}

// validate returns an error for an observation that cannot be.
func (o *Observation) validate() error {
	switch {
	case o.Of.Workload == 0:
		return fmt.Errorf("the workload has no number")
	case len(o.Beside) == 0 || len(o.Beside) > MaxBeside:
		return fmt.Errorf("%d neighbours, legal are 1 to %d", len(o.Beside), MaxBeside)
	case math.IsNaN(o.Speed) || o.Speed < .001 || o.Speed > 10:
		return fmt.Errorf("speed %v, legal is .001 to 10", o.Speed)
	}
	for _, r := range append([]Runner{o.Of}, o.Beside...) {
		if r.Workload == 0 {
			return fmt.Errorf("a neighbour has no number")
		}
		if r.Cap < 1 || r.Cap > vgpu.WholeGPU {
			return fmt.Errorf("cap %d of workload %d, legal is 1 to %d", r.Cap, r.Workload, vgpu.WholeGPU)
		}
	}
	return nil
}

// Observe learns from a co-run. The error says what of it cannot be, and nothing is learned then.
func (b *Book) Observe(o Observation) error {
	if err := o.validate(); err != nil {
		return fmt.Errorf("observe co-run of workload %d: %w", o.Of.Workload, err)
	}
	b.note(o)
	b.settle(o.GPU, o.Of.Workload)
	for _, r := range o.Beside {
		b.settle(o.GPU, r.Workload)
	}
	b.settle(o.GPU, o.Of.Workload)
	return nil
}

// note remembers the co-run: in the row of the same neighbourhood, else in a new one, in place of the least counted.
func (b *Book) note(o Observation) {
	e := b.entry(o.Of.Workload, o.GPU)
	e.open = o.Loose
	e.traits.CoRuns++
	next := rowOf(o)
	at := slices.IndexFunc(e.rows, func(r row) bool { return r.beside == next.beside && r.caps == next.caps })
	if at >= 0 {
		r := &e.rows[at]
		r.count = min(maxCount, r.count+1)
		r.log += (next.log - r.log) / r.count
		return
	}
	if len(e.rows) < maxRows {
		e.rows = append(e.rows, next)
		at = len(e.rows) - 1
	} else {
		at = e.weakest()
		b.unsee(o.GPU, o.Of.Workload, at)
		e.rows[at] = next
	}
	for _, w := range next.beside {
		if w != 0 {
			n := b.entry(w, o.GPU)
			if len(n.seen) >= maxSeen {
				n.seen = slices.Delete(n.seen, 0, 1)
			}
			n.seen = append(n.seen, seen{o.Of.Workload, uint8(at)})
		}
	}
	e.touched = b.step
}

func rowOf(o Observation) row {
	beside := slices.Clone(o.Beside)
	slices.SortFunc(beside, func(a, b Runner) int {
		return cmp.Or(cmp.Compare(a.Workload, b.Workload), cmp.Compare(a.Cap, b.Cap))
	})
	r := row{log: float32(math.Log(o.Speed)), count: 1}
	r.caps[MaxBeside] = float32(o.Of.Cap) / float32(vgpu.WholeGPU)
	for i, n := range beside {
		r.beside[i], r.caps[i] = n.Workload, float32(n.Cap)/float32(vgpu.WholeGPU)
	}
	return r
}

// weakest returns the row that was observed the fewest times, the first of equals.
func (e *entry) weakest() int {
	at := 0
	for i := range e.rows {
		if e.rows[i].count < e.rows[at].count {
			at = i
		}
	}
	return at
}

// unsee takes back what the neighbours of a row know of it.
func (b *Book) unsee(gpu GPU, of Workload, at int) {
	for _, w := range b.known[entryKey{gpu, of}].rows[at].beside {
		if n := b.known[entryKey{gpu, w}]; n != nil {
			n.seen = slices.DeleteFunc(n.seen, func(s seen) bool { return s == seen{of, uint8(at)} })
		}
	}
}
