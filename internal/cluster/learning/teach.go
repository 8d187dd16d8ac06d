package learning

import (
	"math"
	"time"

	"github.com/tandem-gpu/tandem/pkg/interference"
	"github.com/tandem-gpu/tandem/pkg/vgpu"
)

const (
	// idleSM is the utilisation below which a pod is idle: it harms no neighbour, and its reports say nothing. A larger
	// value ignores light pods.
	idleSM = .02
	// fillsCap is the part of its cap that a pod has to use before the cap may hide a larger use. A smaller part
	// guesses more often.
	fillsCap = .9
	// Bounds of speeds beside others that count. Below, the pod does other work; above, it did other work without
	// neighbours.
	slowestSpeed, fastestSpeed = .01, 3.
)

// member is a pod that was at work for an interval, with means over it; NaN for unknown ones.
type member struct {
	workload  *workload
	record    *record
	part      vgpu.MilliGPU
	profile   interference.Profile
	sm, rate  float64
	bandwidth float64 // alone under its cap, as far as known
	measured  bool
	// several says that the pod has other devices too: its rate is not of this one alone.
	several bool
	// promise is the slowdown that the pod tolerates, in thousandths; 0 for any.
	promise int64
}

// teach learns from the window of a device.
func (l *Learner) teach(d *device, now time.Time) {
	members, why := l.membersOf(d, now)
	w := &d.window
	switch {
	case why != "":
		l.counts.drop(why)
	case w.foreign:
		l.counts.drop(dropForeign)
	case len(members) == 1:
		l.alone(&members[0], w.bandwidth.value(w.counted))
	case len(members)-1 > interference.MaxBeside:
		l.counts.drop(dropCrowded)
	case len(members) > 1:
		for i := range members {
			l.beside(members, i)
		}
		l.divide(members, w.bandwidth.value(w.counted))
	}
	for i := range members {
		l.changed(members[i].workload)
	}
}

// membersOf returns the pods that were at work, or why the learner ignores them: one of them is unknown, or is not on
// the node. A node reports only pods that are on it, so that a false agent spoils only what runs there.
func (l *Learner) membersOf(d *device, now time.Time) (members []member, dropped string) {
	for i := range d.tenants {
		if t := &d.tenants[i]; !d.idles(i) {
			switch p := l.pods[t.uid]; {
			case p == nil:
				return nil, dropUnknownPod
			case p.node != d.node:
				return nil, dropOtherNode
			}
		}
	}
	members = make([]member, 0, len(d.tenants))
	for i := range d.tenants {
		if d.idles(i) {
			continue
		}
		t, sm := &d.tenants[i], d.window.sm[i].value(d.window.counted)
		p := l.pods[t.uid]
		part := p.part(d.id)
		if d.soft {
			part = vgpu.WholeGPU
		}
		r := p.workload.on(d.model, l.gpu(d.model))
		if !math.IsNaN(t.memory) {
			r.memory = max(r.memory, vgpu.Bytes(t.memory))
		}
		r.seen, p.workload.seen = now.Unix(), now.Unix()
		m := member{
			workload: p.workload, record: r, part: part, sm: sm, measured: t.measured,
			rate: d.window.rate[i].value(d.window.counted), several: len(p.shares) > 1, promise: p.promise,
		}
		m.profile = p.workload.profileOn(l, r)
		m.bandwidth = m.profile.Under(part).Bandwidth
		members = append(members, m)
	}
	return members, ""
}

// idles reports whether a tenant was idle in the window, by measurement.
func (d *device) idles(tenant int) bool {
	return d.tenants[tenant].measured && d.window.sm[tenant].value(d.window.counted) < idleSM
}

// alone learns from a pod without neighbours.
func (l *Learner) alone(m *member, bandwidth float64) {
	r := m.record
	r.solo++
	l.counts.solo++
	share := float64(m.part) / float64(vgpu.WholeGPU)
	if sm := m.sm; !math.IsNaN(sm) {
		if share < 1 && sm > fillsCap*share {
			// The pod would use more; how much is unknown.
			sm = max(sm, 1)
			if r.sm.known() {
				sm = max(m.sm, r.sm.mean())
			}
		}
		r.sm.add(sm)
	}
	if !math.IsNaN(bandwidth) {
		r.bandwidth.add(min(1, bandwidth/math.Sqrt(m.profile.Class.Speed(m.part))))
	}
	if math.IsNaN(m.rate) || m.several {
		return
	}
	at := r.under(m.part)
	if far, other := r.isOtherUnit(m.rate, at.base); far {
		l.strange(m, other)
		return
	}
	at.alone.add(m.rate)
	alone, sure := l.throughput(m, at)
	l.rebase(m, at, alone, sure)
}

// strange drops a rate that is far from all before, and restarts the workload where it reports in another unit.
func (l *Learner) strange(m *member, other bool) {
	l.counts.drop(dropFar)
	if !other {
		return
	}
	l.counts.restarts++
	m.record.rates, m.record.strange = nil, 0
	l.book.Restart(m.workload.number, m.record.gpu)
	l.dirty[m.workload.number] = true
}

// throughput returns the rate alone under the member's cap, and whether it comes from a measurement or a declaration; 0
// for an unknown rate.
func (l *Learner) throughput(m *member, at *rate) (alone float64, sure bool) {
	if len(at.alone.values) >= fewValues {
		return at.alone.mean(), true
	}
	if w := m.workload.profile; w != nil {
		if declared, ok := w.Rate(m.record.model, m.part); ok {
			// A declaration in another unit than the reports says nothing.
			if v := float64(declared) / unit; m.rate > v*slowestSpeed && m.rate < v*fastestSpeed {
				return v, true
			}
		}
	}
	if at.alone.known() {
		return at.alone.mean(), false
	}
	return m.record.elsewhere(m.part, m.profile.Class), false
}

// rebase corrects the observations to the present rate alone. The result says whether that rate is a guess.
func (l *Learner) rebase(m *member, at *rate, alone float64, sure bool) (loose bool) {
	if alone == 0 {
		return true
	}
	if at.base == 0 {
		at.base = alone
	}
	if factor := at.base / alone; math.Abs(factor-1) > rebased {
		l.book.Rebase(interference.Runner{Workload: m.workload.number, Cap: m.part}, m.record.gpu, factor)
		at.base = alone
	}
	return !sure
}

// beside learns from the speed of one of the members beside the others.
func (l *Learner) beside(members []member, of int) {
	m := &members[of]
	switch {
	case math.IsNaN(m.rate):
		l.counts.drop(dropNoRate)
		return
	case m.several:
		l.counts.drop(dropSeveral)
		return
	}
	l.declare(members)
	at := m.record.under(m.part)
	if far, other := m.record.isOtherUnit(m.rate, at.base); far {
		l.strange(m, other)
		return
	}
	alone, sure := l.throughput(m, at)
	loose := l.rebase(m, at, alone, sure)
	if at.base == 0 {
		at.base = m.rate / l.expected(members, of)
	}
	speed := m.rate / at.base
	if speed < slowestSpeed || speed > fastestSpeed {
		l.counts.drop(dropFar)
		return
	}
	if !loose {
		l.counts.measure(max(1, 1/speed), m.promise)
	}
	l.observe(members, of, interference.Observation{Speed: speed, Loose: loose})
}

// observe adds a co-run with a given speed to the book.
func (l *Learner) observe(members []member, of int, o interference.Observation) {
	for i := range members {
		r := interference.Runner{Workload: members[i].workload.number, Cap: members[i].part}
		if i == of {
			o.GPU, o.Of, o.Owner = members[i].record.gpu, r, members[i].workload.owner
		} else {
			o.Beside = append(o.Beside, r)
		}
	}
	if err := l.book.Observe(o); err != nil {
		l.counts.drop(dropRefused)
		return
	}
	l.counts.coRuns++
	l.observed = true
	for i := range members {
		l.dirty[members[i].workload.number] = true
	}
}

// expected returns the speed that the model predicts for a member, so that a guessed rate alone is a likely one.
func (l *Learner) expected(members []member, of int) float64 {
	on := make([]interference.Tenant, 0, len(members))
	for i := range members {
		on = append(on, l.book.Tenant(members[i].workload.number, members[i].record.gpu, members[i].part))
	}
	return l.options.Model.Predict(on, nil)[of].Speed
}

// declare adds the profiles of members to the book.
func (l *Learner) declare(members []member) {
	for i := range members {
		m := &members[i]
		if err := l.book.Declare(m.workload.number, m.record.gpu, m.profile); err != nil {
			l.counts.drop(dropRefused)
		}
	}
}

// divide estimates the use of pods that always had neighbours. It takes the SM utilisation that the driver reports of
// the pod, and the rest of the bandwidth where that of all neighbours is known. It scales each to the speed of the pod
// alone.
func (l *Learner) divide(members []member, device float64) {
	unknown, left := -1, device
	for i := range members {
		m := &members[i]
		speed := m.speed()
		if !m.record.sm.known() && m.measured && !math.IsNaN(m.sm) {
			m.record.smBeside.add(min(1, m.sm/speed))
		}
		switch {
		case m.record.bandwidth.known():
			left -= m.bandwidth * speed
		case unknown >= 0:
			left = math.NaN()
		default:
			unknown = i
		}
	}
	if unknown < 0 || math.IsNaN(left) {
		return
	}
	m := &members[unknown]
	alone := max(0, left) / m.speed() / math.Sqrt(m.profile.Class.Speed(m.part))
	m.record.bandwidthBeside.add(min(1, alone))
}

// speed returns the speed of the member, 1 where its rate alone is unknown.
func (m *member) speed() float64 {
	for i := range m.record.rates {
		at := &m.record.rates[i]
		if at.cap == m.part && len(at.alone.values) >= fewValues && !math.IsNaN(m.rate) {
			return min(1, max(.1, m.rate/at.base))
		}
	}
	return 1
}

// profileOn returns the knowledge of a workload on a GPU model.
func (w *workload) profileOn(l *Learner, r *record) interference.Profile {
	return w.knows(l).On(r.model).Profile
}
