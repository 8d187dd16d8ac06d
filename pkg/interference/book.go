package interference

import (
	"fmt"
	"math"
	"slices"

	"github.com/tandem-gpu/tandem/pkg/vgpu"
)

// Bounds of what a Book keeps of one workload on one GPU model.
const (
	// maxRows is the number of neighbourhoods that are remembered as seen by the workload. More remembers the past for
	// longer and costs 32 bytes each.
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
// expected count less, those of many neighbours outvote a liar, and those of one owner count no more than twice those of
// another.
type Book struct {
	model Model
	max   int
	known map[entryKey]*entry
	// first and last end the chain of entries, the one that was not observed for the longest time first.
	first, last *entry
	// gpus are the GPU models of entries.
	gpus []GPU
	// levels are the mean sensitivities by GPU model.
	levels map[GPU]float64
	// scatters are the variances of what traits leave of pairs, by GPU model, where they were estimated.
	scatters map[GPU]float64
	// votes, rests and ridge are used again.
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

// Owner is the number of whoever runs workloads; 0 is one that nobody knows.
type Owner uint32

// entry is one workload on one GPU model.
type entry struct {
	key     entryKey
	owner   Owner
	open    bool // its speed alone is not known
	profile Profile
	traits  Traits
	prior   *prior // nil where nothing was restored
	rows    []row
	seen    []seen // rows of others that it is a neighbour in, the latest last
	pairs   *Pairs
	// sights are of pairs of which no row tells any more, the oldest first.
	sights []sight
	// erratic is how many times the variance of its rows is what it should be, at least 1.
	erratic float64
	// stood is the workload as a tenant under the cap that was asked for last.
	stood standing
	// before and after are its neighbours in the book's chain.
	before, after *entry
}

// standing is a workload under a cap; the zero value is none.
type standing struct {
	part                      uint16
	sm, bandwidth, cap, brisk float64
}

// under returns the workload as a tenant that may use a part of the SMs, with what load goes by alone.
func (e *entry) under(part uint16) Tenant {
	if e.stood.part != part {
		t := e.profile.On(vgpu.MilliGPU(part))
		e.stood = standing{part, t.SM, t.Bandwidth, t.Cap, t.Brisk}
	}
	s := &e.stood
	return Tenant{SM: s.sm, Bandwidth: s.bandwidth, Cap: s.cap, Brisk: s.brisk, Traits: Traits{Pressure: e.traits.Pressure}}
}

// prior is what is believed of the traits before any row: what was restored.
type prior struct{ sensitivity, pressure, offset belief }

// belief is a mean with its variance.
type belief struct{ mean, variance float64 }

// NewBook returns an empty book that goes by a model and keeps at most so many workloads on GPU models, the latest
// observed. As many as one co-run is about are always kept: MaxBeside + 1. Of a model that learns nothing the traits are
// those of the default one.
func NewBook(m Model, maximum int) *Book {
	if !m.Learns() {
		m = product
	}
	return &Book{model: m, max: max(MaxBeside+1, maximum), known: map[entryKey]*entry{}, levels: map[GPU]float64{}, scatters: map[GPU]float64{}}
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
	e := b.entry(w, gpu)
	e.profile, e.stood = p, standing{}
	return nil
}

// leastDoubt is the part of the doubt about a trait that is left at least after it was restored: what was learned before
// may have changed since. Smaller holds on to what is no longer true, larger learns it again for longer.
const leastDoubt = .04

// Restore notes what was learned of a workload before; observations correct it as far as it was not sure. Traits out of
// range are an error, and nothing is noted.
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

// Restart forgets what a workload reported of itself on a GPU model: the rows that it saw, its sensitivity and its offset.
// What others saw of it stays.
func (b *Book) Restart(w Workload, gpu GPU) {
	e := b.known[entryKey{gpu, w}]
	if e == nil {
		return
	}
	for i := range e.rows {
		b.unsee(e, i)
	}
	e.rows, e.pairs, e.sights, e.open = nil, nil, nil, false
	e.traits = Traits{Pressure: e.traits.Pressure, SurePressure: e.traits.SurePressure}
	if e.prior != nil {
		e.prior.sensitivity, e.prior.offset = belief{b.levels[gpu], e.unsureTrait()}, belief{0, varianceOfOffset}
	}
}

// Rebase corrects the throughput alone that the speeds of a workload under a cap were parts of: the speeds that were
// observed are multiplied by a factor. Factors that are not from a millionth to a million are passed over.
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
	for i := range e.sights {
		if s := &e.sights[i]; s.self == percentOf(r.Cap) {
			s.log += float32(math.Log(factor))
		}
	}
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

// Level returns what is known of all workloads on a GPU model: their mean sensitivity, as a logarithm.
func (b *Book) Level(gpu GPU) float64 { return b.levels[gpu] }

// Traits returns what was learned of a workload on a GPU model. Of one that was never observed there it is what is known
// of all workloads on that model: their mean sensitivity. The offset is 0 where nobody measured the speed alone.
func (b *Book) Traits(w Workload, gpu GPU) Traits {
	t := Traits{Sensitivity: b.levels[gpu]}
	if e := b.known[entryKey{gpu, w}]; e != nil {
		t = e.told(b.levels[gpu])
	}
	t.Level = b.levels[gpu]
	return t
}

func (e *entry) told(level float64) Traits {
	if e.traits.CoRuns == 0 {
		return Traits{Sensitivity: level, Pressure: e.traits.Pressure, SurePressure: e.traits.SurePressure}
	}
	t := e.traits
	if e.open {
		t.Offset, t.SureOffset = 0, 0
	}
	return t
}

// Neighbours returns how many different workloads a workload was observed beside, of those that are still remembered.
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

// Pairs returns what is known of a workload on a GPU model beside single others, nil for nothing.
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

// entry returns the entry of a workload, made where there is none, as the latest. The first goes where there is no room.
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

// drop forgets one entry, what it saw of others, and what others saw of it: without it their rows explain nothing. Rows
// that its seen had no room for are passed over from now on, and go when their workload is settled.
func (b *Book) drop(e *entry) {
	for i := range e.rows {
		b.unsee(e, i)
	}
	for _, s := range slices.Clone(e.seen) {
		if v := b.known[entryKey{e.key.gpu, s.of}]; v != nil {
			b.unsee(v, int(s.row))
			v.rows[s.row] = row{}
		}
	}
	b.unlink(e)
	delete(b.known, e.key)
}
