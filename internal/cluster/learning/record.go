package learning

import (
	"math"
	"slices"
	"time"

	"github.com/tandem-gpu/tandem/internal/cluster/workloads"
	"github.com/tandem-gpu/tandem/pkg/interference"
	"github.com/tandem-gpu/tandem/pkg/placement"
	"github.com/tandem-gpu/tandem/pkg/vgpu"
)

const (
	// maxValues is how many of the latest values give a rate alone, and maxUses a utilisation. Larger numbers are
	// steadier, smaller ones follow changes sooner.
	maxValues, maxUses = 16, 8
	// fewValues is how many intervals without neighbours give a rate alone. With fewer, one bad interval may decide.
	fewValues = 3
	// maxRates is the number of shares for which a record keeps rates alone. A larger number takes more memory.
	maxRates = 4
	// otherUnit is the factor between two rates from which on the unit must have changed, and unitSure how often in a
	// row that must happen. Smaller numbers restart workloads whose rates vary.
	otherUnit = 20
	unitSure  = 3
	// rebased is the part by which a rate alone has to change before the learner corrects the observations. A smaller
	// part corrects more often.
	rebased = .002
)

// record is what the learner knows of one workload on one GPU model, beside the book.
type record struct {
	model string
	gpu   interference.GPU
	// sm and bandwidth are values without neighbours, for a whole device. beside is the values beside neighbours, which
	// count until then.
	sm, bandwidth, smBeside, bandwidthBeside part
	// memory is the most that it held.
	memory vgpu.Bytes
	solo   int64
	rates  []rate
	// strange counts rates in a row that seem to be in another unit.
	strange int
	seen    int64 // seconds since 1970
}

// rate is what a workload reports under one cap.
type rate struct {
	cap   vgpu.MilliGPU
	alone estimate
	// base is the rate to which the speeds in the book refer.
	base float64
}

// estimate is the mean of the latest values without the extremes. The zero value has none.
type estimate struct {
	values []float32
	next   uint8
}

func (e *estimate) known() bool { return len(e.values) > 0 }

// add adds a value, in place of the oldest where there are enough.
func (e *estimate) add(v float64) {
	if len(e.values) < maxValues {
		e.values = append(e.values, float32(v))
		return
	}
	e.values[e.next] = float32(v)
	e.next = (e.next + 1) % maxValues
}

// mean returns the mean of the values without the lowest and the highest fifth, 0 for none.
func (e *estimate) mean() float64 {
	var sorted [maxValues]float64
	for i, v := range e.values {
		sorted[i] = float64(v)
	}
	return trimmed(sorted[:len(e.values)])
}

// trimmed sorts values and returns their mean without the lowest and the highest fifth: up to a fifth of them may be
// arbitrary. Half as many would admit more outliers, the median would use less of the other values.
func trimmed(values []float64) float64 {
	n := len(values)
	if n == 0 {
		return 0
	}
	slices.Sort(values)
	cut := (n + 2) / 5
	sum := 0.
	for _, v := range values[cut : n-cut] {
		sum += v
	}
	return sum / float64(n-2*cut)
}

// part is an estimate of a part of a device, in a few bytes: half percents are finer than the published values.
type part struct {
	values  [maxUses]uint8
	n, next uint8
}

const halves = 200

func (p *part) known() bool { return p.n > 0 }

func (p *part) add(v float64) {
	p.values[p.next] = uint8(math.Round(min(1, max(0, v)) * halves))
	p.n, p.next = min(maxUses, p.n+1), (p.next+1)%maxUses
}

func (p *part) mean() float64 {
	var sorted [maxUses]float64
	for i, v := range p.values[:p.n] {
		sorted[i] = float64(v) / halves
	}
	return trimmed(sorted[:p.n])
}

// on returns the record of a workload on a GPU model, and makes it where there is none.
func (w *workload) on(model string, gpu interference.GPU) *record {
	i := slices.IndexFunc(w.records, func(r *record) bool { return r.gpu == gpu })
	if i >= 0 {
		return w.records[i]
	}
	r := &record{model: model, gpu: gpu}
	w.records = append(w.records, r)
	return r
}

// restore loads the results of earlier processes, as a number of values: the observed number, but few enough for quick
// corrections.
func (r *record) restore(b *workloads.Learned) {
	const trusted = 4
	sm, bandwidth := &r.sm, &r.bandwidth
	if b.SoloObservations == 0 {
		sm, bandwidth = &r.smBeside, &r.bandwidthBeside
	}
	for range min(trusted, max(1, b.SoloObservations)) {
		if b.Known.SM {
			sm.add(b.SM)
		}
		if b.Known.Bandwidth {
			bandwidth.add(b.Bandwidth)
		}
	}
	if b.Known.Memory {
		r.memory = b.Memory
	}
	if alone := float64(b.SoloRate) / unit; alone > 0 {
		r.rates = []rate{{cap: b.SoloShare, base: alone}}
		for range trusted {
			r.rates[0].alone.add(alone)
		}
	}
	r.solo = b.SoloObservations
	if !b.LastObserved.IsZero() {
		r.seen = b.LastObserved.Unix()
	}
}

// unit is one of a rate in placement.Rate.
const unit = 1e6

// learned returns the record for the status.
func (l *Learner) learned(w *workload, r *record) workloads.Learned {
	out := workloads.Learned{
		Model: r.model, Memory: r.memory, SoloObservations: r.solo,
		Known:  workloads.Known{SM: r.sm.known() || r.smBeside.known(), Bandwidth: r.bandwidth.known() || r.bandwidthBeside.known(), Memory: r.memory > 0},
		Traits: l.book.Traits(w.number, r.gpu), Neighbours: int32(l.book.Neighbours(w.number, r.gpu)),
	}
	if r.seen > 0 {
		out.LastObserved = time.Unix(r.seen, 0).UTC()
	}
	out.SM, out.Bandwidth = or(&r.sm, &r.smBeside), or(&r.bandwidth, &r.bandwidthBeside)
	most := 0
	for i := range r.rates {
		if a := &r.rates[i]; len(a.alone.values) >= fewValues && len(a.alone.values) > most {
			most = len(a.alone.values)
			out.SoloRate = placement.Rate(min(a.alone.mean()*unit, float64(placement.MaxRate)))
			out.SoloShare = a.cap
		}
	}
	return out
}

func or(a, b *part) float64 {
	if a.known() {
		return a.mean()
	}
	return b.mean()
}

// brief is a summary of a status, to detect changes since.
type brief struct {
	gpu                                         interference.GPU
	sm, bandwidth, memory, rate                 float32
	sensitivity, pressure, offset, sure, coRuns float32
	seen                                        int64
}

func briefly(gpu interference.GPU, k *workloads.Learned) brief {
	t := &k.Traits
	return brief{
		gpu: gpu, sm: float32(k.SM), bandwidth: float32(k.Bandwidth), memory: float32(k.Memory), rate: float32(k.SoloRate),
		sensitivity: float32(t.Sensitivity), pressure: float32(t.Pressure), offset: float32(t.Offset),
		sure: float32(t.SureSensitivity + t.SurePressure), coRuns: float32(t.CoRuns), seen: k.LastObserved.Unix(),
	}
}

// Least changes that are worth a write.
const (
	newsOfUse    = .03 // of a device
	newsOfRate   = .05 // of itself, as memory
	newsOfTrait  = .05 // of a logarithm
	newsOfSure   = .1
	newsOfCoRuns = .5 // of themselves
	newsOfTime   = 6 * 60 * 60
)

// isNews reports whether a status that says b is out of date.
func (b *brief) isNews(now *brief) bool {
	far := func(a, b, by float32) bool { return a-b > by || b-a > by }
	return far(b.sm, now.sm, newsOfUse) || far(b.bandwidth, now.bandwidth, newsOfUse) ||
		far(b.memory, now.memory, newsOfRate*now.memory) || far(b.rate, now.rate, newsOfRate*now.rate) ||
		far(b.sensitivity, now.sensitivity, newsOfTrait) || far(b.pressure, now.pressure, newsOfTrait) ||
		far(b.offset, now.offset, newsOfTrait) || far(b.sure, now.sure, newsOfSure) ||
		far(b.coRuns, now.coRuns, newsOfCoRuns*now.coRuns) || now.seen-b.seen > newsOfTime
}

// allLearned returns all records of a workload for the status.
func (l *Learner) allLearned(w *workload) []workloads.Learned {
	all := make([]workloads.Learned, 0, len(w.records))
	for _, r := range w.records {
		all = append(all, l.learned(w, r))
	}
	return all
}

// under returns the rate under a cap. A new rate takes the place of the one with the fewest values alone.
func (r *record) under(share vgpu.MilliGPU) *rate {
	at := 0
	for i := range r.rates {
		if r.rates[i].cap == share {
			return &r.rates[i]
		}
		if len(r.rates[i].alone.values) < len(r.rates[at].alone.values) {
			at = i
		}
	}
	if len(r.rates) < maxRates {
		r.rates = append(r.rates, rate{})
		at = len(r.rates) - 1
	}
	r.rates[at] = rate{cap: share}
	return &r.rates[at]
}

// elsewhere returns the rate alone under another cap, scaled to this one by the curve of the class of work; 0 for none.
func (r *record) elsewhere(share vgpu.MilliGPU, class interference.Class) float64 {
	most, out := 0, 0.
	for i := range r.rates {
		o := &r.rates[i]
		if n := len(o.alone.values); o.cap != share && n >= fewValues && n > most {
			most, out = n, o.alone.mean()*class.Speed(share)/class.Speed(o.cap)
		}
	}
	return out
}

// isOtherUnit counts how often in a row a rate was far from its reference. The result says whether the workload now
// reports in another unit. A rate that is far off teaches nothing.
func (r *record) isOtherUnit(reported, base float64) (far, other bool) {
	if base == 0 || reported < base*otherUnit && reported > base/otherUnit {
		r.strange = 0
		return false, false
	}
	r.strange++
	return true, r.strange >= unitSure
}

// legalRate reports whether a value can be a rate.
func legalRate(v float64) bool { return !math.IsNaN(v) && v > 0 && v <= 1e12 }
