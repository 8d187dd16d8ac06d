package shadow

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/tandem-gpu/tandem/pkg/sim"
	"github.com/tandem-gpu/tandem/pkg/vgpu"
)

// Report is both worlds in figures, and what the figures leave out.
type Report struct {
	From time.Time `json:"from"`
	To   time.Time `json:"to"`
	// Periods is how many periods the figures are of, and Dropped how many earlier ones are no longer kept.
	Periods int `json:"periods"`
	Dropped int `json:"periodsDropped"`
	// GPUs of the nodes that are known, now.
	GPUs int `json:"gpus"`
	// Pods and Gangs that came in the time, and Shared, of which Tandem would have placed a share of a GPU.
	Pods   int `json:"pods"`
	Gangs  int `json:"gangs"`
	Shared int `json:"sharedPods"`

	Other  Figures `json:"other"`
	Tandem Figures `json:"tandem"`
	// OnlyOther and OnlyTandem count the pods that one world has started by now and the other one has not.
	OnlyOther  int `json:"startedOnlyByOther"`
	OnlyTandem int `json:"startedOnlyByTandem"`
	// Examples are pods whose starts differ the most, a sentence each.
	Examples []string `json:"examples"`
	// Unknown is what the figures leave out, with the reasons.
	Unknown []Unknown `json:"unknown"`
}

// Figures are those of one world.
type Figures struct {
	Waiting Waits `json:"waiting"`
	// Touched counts the GPUs that had a pod at some time, InUse is how many had one on average.
	Touched int     `json:"gpusTouched"`
	InUse   float64 `json:"gpusInUse"`
	// Allocated is the part of the GPUs that pods had on average, and Fragmented the part that was free and of no use to the usual
	// requests, in percent.
	Allocated  float64 `json:"allocatedPercent"`
	Fragmented float64 `json:"fragmentedPercent"`
	// GangsWhole counts the gangs of which enough members ran at once. PartialGPUSeconds is what gangs held before that, or in vain.
	GangsWhole        int      `json:"gangsWhole"`
	PartialGPUSeconds int64    `json:"partialGangGPUSeconds"`
	Slowdown          Slowdown `json:"slowdown"`
}

// Waits says how long pods waited. A pod that still waits counts with the time so far.
type Waits struct {
	Pods       int   `json:"pods"`
	MeanMillis int64 `json:"meanMillis"`
	P50Millis  int64 `json:"p50Millis"`
	P99Millis  int64 `json:"p99Millis"`
	// Still counts the pods that wait now, those among them that were there before the time of the report.
	Still int `json:"stillWaiting"`
}

// Slowdown is the predicted slowdown of pods by those that share their GPU.
type Slowdown struct {
	// Mean is the mean of the predictions over the time of the pods that have one, at least 1; 0 where none has.
	Mean float64 `json:"mean"`
	// KnownPercent is the part of the pods' time for which there is a prediction.
	KnownPercent float64 `json:"knownPercent"`
	// Why says why the rest is unknown, "" for no rest.
	Why string `json:"why,omitempty"`
}

// Report returns the figures until now. It changes nothing, and gives the same answer for the same facts.
func (l *Log) Report(now time.Time) (*Report, error) {
	if l.began.IsZero() {
		return nil, errors.New("report: no node with known GPUs has been seen yet")
	}
	if now.Before(l.began) {
		return nil, fmt.Errorf("report: %v is before %v, when the present period began", now, l.began)
	}
	p, err := l.play(now)
	if err != nil {
		return nil, fmt.Errorf("report: %w", err)
	}
	all := append(slices.Clone(l.closed), p)
	r := &Report{From: all[0].from, To: now, Periods: len(all), Dropped: l.dropped, GPUs: p.devices, Examples: []string{}}
	for _, each := range all {
		r.Pods, r.Gangs, r.Shared = r.Pods+each.counted, r.Gangs+each.gangs, r.Shared+each.shared
	}
	r.Other = figures(all, func(p *period) *world { return &p.other })
	r.Tandem = figures(all, func(p *period) *world { return &p.tandem })
	l.compare(r, p)
	r.Unknown = unknown(all)
	return r, nil
}

// figures adds a world of all periods up. Pods wait on in the last one only.
func figures(all []*period, of func(*period) *world) Figures {
	var f Figures
	var waits []time.Duration
	var total sums
	capacity, span, partial := 0.0, 0.0, 0.0
	touched := map[vgpu.DeviceID]bool{}
	for _, p := range all {
		w, lasted := of(p), float64(p.to.Sub(p.from))
		waits, total = append(waits, w.waits...), total.plus(w.sums)
		capacity, span, partial = capacity+float64(p.capacity)*lasted, span+lasted, partial+w.partial
		f.GangsWhole += w.whole
		f.Waiting.Still = w.still
		maps.Copy(touched, w.touched)
	}
	f.Touched = len(touched)
	f.PartialGPUSeconds = int64(partial / float64(vgpu.WholeGPU) / float64(time.Second))
	if capacity > 0 {
		f.InUse, f.Allocated, f.Fragmented = total.devices/span, 100*total.allocated/capacity, 100*total.fragmented/capacity
	}
	f.Waiting.Pods = len(waits)
	f.Waiting.MeanMillis, f.Waiting.P50Millis, f.Waiting.P99Millis = millis(sim.Mean(waits)), millis(sim.Quantile(waits, .5)), millis(sim.Quantile(waits, .99))
	f.Slowdown = slowdownOf(total)
	return f
}

func millis(d time.Duration, some bool) int64 {
	if !some {
		return 0
	}
	return d.Milliseconds()
}

// slowdownOf returns the mean predicted slowdown.
func slowdownOf(s sums) Slowdown {
	var out Slowdown
	if s.known > 0 {
		out.Mean, out.KnownPercent = s.slowed/s.known, 100*s.known/(s.known+s.unknown)
	}
	switch {
	case s.unknown > 0:
		out.Why = "pods share GPUs of which not all have a WorkloadProfile with a measured use"
	case s.known == 0:
		out.Why = "no pod ran"
	}
	return out
}

// compare fills in which pods start in one world only, and the examples.
func (l *Log) compare(r *Report, p *period) {
	until := p.to.Sub(p.from)
	type difference struct {
		member int
		by     time.Duration
	}
	all := make([]difference, 0, len(p.members))
	for i := range p.members {
		m, other, tandem := &p.members[i], p.other.starts[i], p.tandem.starts[i]
		if m.Foreign || other == tandem {
			continue
		}
		switch {
		case other == unset:
			r.OnlyTandem++
		case tandem == unset:
			r.OnlyOther++
		}
		by := min(other, until) - min(tandem, until)
		all = append(all, difference{i, max(by, -by)})
	}
	slices.SortStableFunc(all, func(a, b difference) int { return cmp.Or(-cmp.Compare(a.by, b.by), cmp.Compare(a.member, b.member)) })
	for _, d := range all[:min(len(all), l.cfg.MaxExamples)] {
		m := &p.members[d.member]
		r.Examples = append(r.Examples, fmt.Sprintf("%s: the other scheduler %s; Tandem %s.", m.Request.Pod,
			started(p.other.starts[d.member], m, until, "started it after %v", "has not started it after %v"),
			started(p.tandem.starts[d.member], m, until, "would have started it after %v", "would not have started it after %v")))
	}
}

// started says when a pod started, from its creation.
func started(at time.Duration, m *member, until time.Duration, did, didNot string) string {
	if at == unset {
		return fmt.Sprintf(didNot, (until - m.created).Round(time.Second))
	}
	return fmt.Sprintf(did, max(0, at-m.created).Round(time.Second))
}

// unknown returns what the figures leave out: what is not known of the nodes now, and counts of pods over all periods.
func unknown(all []*period) []Unknown {
	last := all[len(all)-1]
	out := append([]Unknown{}, last.unknown...)
	var cancelled, outside, gangs, late, unbooked, pinnedOut int
	for _, p := range all {
		cancelled, outside = cancelled+p.leftOut.cancelled, outside+p.leftOut.outside
		gangs, late = gangs+p.leftOut.gangs, late+p.leftOut.late
		unbooked, pinnedOut = unbooked+p.other.unbooked, pinnedOut+p.pinnedOut
	}
	running := 0
	for i := range last.members {
		if last.tandem.starts[i] != unset && last.members[i].bound == unset {
			running++
		}
	}
	for _, c := range []struct {
		count     int
		what, why string
	}{
		{cancelled, "cancelled pods", "they were gone before they had a node, so how long they would have run is unknown; they are in neither world"},
		{outside, "pods on other nodes", "they are on nodes whose GPUs are unknown; they are in neither world"},
		{gangs, "gangs", "they never had enough members at once and are gone, or too few members came; they are in neither world"},
		{late, "late members of gangs", "they came long after the first member of their gang; they count as pods by themselves"},
		{unbooked, "pods without GPUs in the ledger", "no free GPUs of their node fit by Tandem's rules, or others have the GPUs of their assignment; they count in the waiting alone"},
		{pinnedOut, "pods that keep their node", "they ran before or are another scheduler's, and the world of Tandem has no room for them there when they come"},
		{running, "pods that Tandem would have started and that wait in reality", "how long they run is unknown; in the world of Tandem they keep their GPUs until it is known"},
	} {
		if c.count > 0 {
			out = append(out, Unknown{What: fmt.Sprintf("%d %s", c.count, c.what), Why: c.why})
		}
	}
	return out
}
