package interference

import (
	"fmt"
	"math"
	"slices"

	"github.com/tandem-gpu/tandem/pkg/vgpu"
)

// Bounds of what a Book keeps of one workload on one GPU model.
const (
	// maxRows is the number of neighbourhoods that the book keeps as seen by the workload. A larger number keeps older
	// observations, at 32 bytes each.
	maxRows = 16
	// maxSeen is the number of its neighbours' rows that count for its pressure. A larger number costs memory and time.
	maxSeen = 24
	// MaxBeside is the largest number of neighbours of a co-run that teaches. With more neighbours, no estimate
	// separates their pressures.
	MaxBeside = 4
	// maxCount bounds how many observations of one neighbourhood count: beyond it the oldest fade. A larger bound
	// follows changes more slowly.
	maxCount = 16
)

// Book holds the knowledge of workloads on GPU models: profiles, and the results of co-runs. One goroutine may use it.
//
// The book finds the traits that best fit the observed speeds and the prior of all traits (the maximum a posteriori).
// Each observation updates only the workloads that it is about. Observations far from the expected speed count less,
// and many neighbours outvote one that reports falsely. The observations of one owner count no more than twice those of
// another.
type Book struct {
	model Model
	max   int
	known map[entryKey]*entry
	// first and last are the ends of the chain of entries. The entry whose last observation is oldest comes first.
	first, last *entry
	// gpus are the GPU models of entries.
	gpus []GPU
	// levels are the mean sensitivities by GPU model.
	levels map[GPU]float64
	// scatters are the variances of pairs that traits do not explain, by GPU model, where they were estimated.
	scatters map[GPU]float64
	// votes, rests and ridge are buffers for reuse.
	votes []vote
	rests []pair
	ridge ridge
}

type entryKey struct {
	gpu      GPU
	workload Workload
}

// GPU is the number of a GPU model in a Book.
type GPU uint16

// Owner is the number of the owner of workloads; 0 is an unknown owner.
type Owner uint32

// entry is one workload on one GPU model.
type entry struct {
	key     entryKey
	owner   Owner
	open    bool // its speed without neighbours is unknown
	profile Profile
	traits  Traits
	prior   *prior // nil without Restore
	rows    []row
	seen    []seen // rows of others with it as a neighbour, the latest last
	pairs   *Pairs
	// pastPairs are pairs without a row, the oldest first.
	pastPairs []pastPair
	// erratic is the variance of its rows as a multiple of the expected one, at least 1.
	erratic float64
	// capped is the use of the workload under the last cap.
	capped cappedUse
	// before and after are its neighbours in the book's chain.
	before, after *entry
}

// cappedUse is the use of a workload under a cap; the zero value is none.
type cappedUse struct {
	part                      uint16
	sm, bandwidth, cap, brisk float64
}

// underCap returns the workload as a tenant that may use a part of the SMs, with the fields that load needs.
func (e *entry) underCap(part uint16) Tenant {
	if e.capped.part != part {
		t := e.profile.On(vgpu.MilliGPU(part))
		e.capped = cappedUse{part, t.SM, t.Bandwidth, t.Cap, t.Brisk}
	}
	s := &e.capped
	return Tenant{SM: s.sm, Bandwidth: s.bandwidth, Cap: s.cap, Brisk: s.brisk, Traits: Traits{Pressure: e.traits.Pressure}}
}

// prior is the distribution of the traits before any row, as Restore set it.
type prior struct{ sensitivity, pressure, offset belief }

// belief is a mean with its variance.
type belief struct{ mean, variance float64 }

// NewBook returns an empty book for a model. The book keeps at most `maximum` workloads on GPU models, the latest
// observed. The least is the number that one co-run needs: MaxBeside + 1. For a model that learns nothing it uses the
// traits of the default model.
func NewBook(m Model, maximum int) *Book {
	if !m.Learns() {
		m = product
	}
	return &Book{model: m, max: max(MaxBeside+1, maximum), known: map[entryKey]*entry{}, levels: map[GPU]float64{}, scatters: map[GPU]float64{}}
}

// Len returns the number of workloads on GPU models that the book knows.
func (b *Book) Len() int { return len(b.known) }

// Declare sets the profile of a workload on a GPU model, and keeps its learned traits. The error is that of
// Profile.Validate, or says that the workload has no number.
func (b *Book) Declare(w Workload, gpu GPU, p Profile) error {
	if w == 0 {
		return fmt.Errorf("declare profile: the workload has no number")
	}
	if err := p.Validate(); err != nil {
		return fmt.Errorf("declare profile of workload %d: %w", w, err)
	}
	e := b.entry(w, gpu)
	e.profile, e.capped = p, cappedUse{}
	return nil
}

// leastDoubt is the least part of the doubt about a trait that stays after Restore, since the workload may have
// changed. A smaller part keeps outdated traits for longer, a larger part learns them again for longer.
const leastDoubt = .04

// Restore sets the traits of a workload from an earlier book. Observations correct them in proportion to the remaining
// doubt. Traits out of range are an error, and change nothing.
func (b *Book) Restore(w Workload, gpu GPU, t Traits) error {
	if w == 0 {
		return fmt.Errorf("restore traits: the workload has no number")
	}
	if err := t.validate(); err != nil {
		return fmt.Errorf("restore traits of workload %d: %w", w, err)
	}
	e := b.entry(w, gpu)
	e.traits = t
	left := func(variance, sure float64) float64 { return variance * max(leastDoubt, 1-sure) }
	e.prior = &prior{
		sensitivity: belief{t.Sensitivity, left(e.unsureTrait(), t.SureSensitivity)},
		pressure:    belief{t.Pressure, left(e.unsureTrait(), t.SurePressure)},
		offset:      belief{t.Offset, left(varianceOfOffset, t.SureOffset)},
	}
	return nil
}

// Restart drops the reports of a workload about itself on a GPU model: its rows, its sensitivity and its offset. The
// rows that others saw stay.
func (b *Book) Restart(w Workload, gpu GPU) {
	e := b.known[entryKey{gpu, w}]
	if e == nil {
		return
	}
	for i := range e.rows {
		b.forgetRow(e, i)
	}
	e.rows, e.pairs, e.pastPairs, e.open = nil, nil, nil, false
	e.traits = Traits{Pressure: e.traits.Pressure, SurePressure: e.traits.SurePressure}
	if e.prior != nil {
		e.prior.sensitivity, e.prior.offset = belief{b.levels[gpu], e.unsureTrait()}, belief{0, varianceOfOffset}
	}
}

// Rebase corrects the throughput without neighbours that the speeds of a workload under a cap refer to. The factor
// multiplies the observed speeds. Factors outside a millionth to a million have no effect.
func (b *Book) Rebase(r Runner, gpu GPU, factor float64) {
	e := b.known[entryKey{gpu, r.Workload}]
	if e == nil || !(factor >= 1e-6 && factor <= 1e6) {
		return
	}
	for i := range e.rows {
		if row := &e.rows[i]; row.count > 0 && row.self() == r.Cap {
			row.log += float32(math.Log(factor))
		}
	}
	for i := range e.pastPairs {
		if s := &e.pastPairs[i]; s.self == percentOf(r.Cap) {
			s.log += float32(math.Log(factor))
		}
	}
}

// mostTrait bounds the logarithms of Traits: a factor of 55. A larger bound admits absurd traits.
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

// Profile returns the profile of a workload on a GPU model, that of Unknown where there is none.
func (b *Book) Profile(w Workload, gpu GPU) Profile {
	if e := b.known[entryKey{gpu, w}]; e != nil {
		return e.profile
	}
	return Unknown()
}

// Level returns the mean sensitivity of all workloads on a GPU model, as a logarithm.
func (b *Book) Level(gpu GPU) float64 { return b.levels[gpu] }

// Traits returns the learned traits of a workload on a GPU model. For a workload without observations there, the
// sensitivity is the mean of all workloads on that model. The offset is 0 where the speed without neighbours is
// unknown.
func (b *Book) Traits(w Workload, gpu GPU) Traits {
	t := Traits{Sensitivity: b.levels[gpu]}
	if e := b.known[entryKey{gpu, w}]; e != nil {
		t = e.learned(b.levels[gpu])
	}
	t.Level = b.levels[gpu]
	return t
}

func (e *entry) learned(level float64) Traits {
	if e.traits.CoRuns == 0 {
		return Traits{Sensitivity: level, Pressure: e.traits.Pressure, SurePressure: e.traits.SurePressure}
	}
	t := e.traits
	if e.open {
		t.Offset, t.SureOffset = 0, 0
	}
	return t
}

// Neighbours returns how many different workloads the book keeps as observed neighbours of a workload.
func (b *Book) Neighbours(w Workload, gpu GPU) int {
	e := b.known[entryKey{gpu, w}]
	if e == nil {
		return 0
	}
	var all []Workload
	for i := range e.rows {
		for _, n := range e.rows[i].beside {
			if n != 0 {
				all = append(all, n)
			}
		}
	}
	slices.Sort(all)
	return len(slices.Compact(all))
}

// Tenant returns a workload as a tenant that may use a part of the SMs.
func (b *Book) Tenant(w Workload, gpu GPU, part vgpu.MilliGPU) Tenant {
	p := b.Profile(w, gpu)
	t := p.On(part)
	t.Workload, t.Traits, t.Pairs = w, b.Traits(w, gpu), b.Pairs(w, gpu)
	return t
}

// Pairs returns the knowledge of a workload on a GPU model beside single others, nil for none.
func (b *Book) Pairs(w Workload, gpu GPU) *Pairs {
	if e := b.known[entryKey{gpu, w}]; e != nil {
		return e.pairs
	}
	return nil
}

// Forget drops a workload from all GPU models.
func (b *Book) Forget(w Workload) {
	for _, gpu := range b.gpus {
		if e := b.known[entryKey{gpu, w}]; e != nil {
			b.drop(e)
		}
	}
}

// entry returns the entry of a workload as the latest, and makes it where there is none. A full book drops its first
// entry.
func (b *Book) entry(w Workload, gpu GPU) *entry {
	key := entryKey{gpu, w}
	e := b.known[key]
	if e == nil {
		if len(b.known) >= b.max {
			b.drop(b.first)
		}
		e = &entry{key: key, profile: Unknown(), erratic: 1}
		b.known[key] = e
		if !slices.Contains(b.gpus, gpu) {
			b.gpus = append(b.gpus, gpu)
		}
	} else {
		b.unlink(e)
	}
	e.before, e.after = b.last, nil
	if b.last != nil {
		b.last.after = e
	} else {
		b.first = e
	}
	b.last = e
	return e
}

func (b *Book) unlink(e *entry) {
	if e.before != nil {
		e.before.after = e.after
	} else {
		b.first = e.after
	}
	if e.after != nil {
		e.after.before = e.before
	} else {
		b.last = e.before
	}
}

// drop removes one entry, its rows, and the rows of others with it: without it these rows explain nothing. Its seen may
// lack some of those rows. The book ignores them from now on, and settle removes them.
func (b *Book) drop(e *entry) {
	for i := range e.rows {
		b.forgetRow(e, i)
	}
	for _, s := range slices.Clone(e.seen) {
		if v := b.known[entryKey{e.key.gpu, s.of}]; v != nil {
			b.forgetRow(v, int(s.row))
			v.rows[s.row] = row{}
		}
	}
	b.unlink(e)
	delete(b.known, e.key)
}
