package learning

import (
	"math"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/types"

	"github.com/tandem-gpu/tandem/pkg/api/v1alpha1"
	"github.com/tandem-gpu/tandem/pkg/vgpu"
)

// place is a device of a node.
type place struct {
	node string
	id   vgpu.DeviceID
}

// device is what a node published of one device.
type device struct {
	node  string
	id    vgpu.DeviceID
	model string
	// memory of the device; soft says that no mechanism enforces caps.
	memory float64
	soft   bool
	// bandwidth is NaN where it is unknown; foreign says that programs outside pods hold memory.
	bandwidth float64
	foreign   bool
	tenants   []tenant
	told      time.Time
	window    window
}

// tenant is a pod at work on a device, with its use; NaN where it is unknown.
type tenant struct {
	uid              types.UID
	sm, memory, rate float64
	measured         bool
}

// window adds up what a node published of one tenant group.
type window struct {
	since, until time.Time
	counted      time.Duration
	bandwidth    mean
	sm, rate     []mean // of the tenants
	foreign      bool
}

// mean is a mean over time.
type mean struct {
	sum float64
	of  time.Duration
}

func (m *mean) add(v float64, d time.Duration) {
	if !math.IsNaN(v) {
		m.sum, m.of = m.sum+v*d.Seconds(), m.of+d
	}
}

// value returns the mean, NaN where it was unknown for more than half of a time.
func (m *mean) value(of time.Duration) float64 {
	if m.of <= 0 || 2*m.of < of {
		return math.NaN()
	}
	return m.sum / m.of.Seconds()
}

// GPUNode reads what a node published.
func (l *Learner) GPUNode(g *v1alpha1.GPUNode) {
	if l.options.Frozen {
		l.noteModels(g)
		return
	}
	ready := meta.FindStatusCondition(g.Status.Conditions, v1alpha1.ConditionReady)
	serves := ready == nil || ready.Status == "True"
	l.mu.Lock()
	defer l.mu.Unlock()
	now := l.options.Clock()
	kept := map[vgpu.DeviceID]bool{}
	for i := range g.Status.Devices {
		d := &g.Status.Devices[i]
		l.gpu(d.Model)
		if !serves || d.Health != v1alpha1.Healthy {
			continue
		}
		kept[vgpu.DeviceID(d.ID)] = true
		l.read(place{g.Name, vgpu.DeviceID(d.ID)}, d, now)
	}
	l.keep(g.Name, kept)
}

// noteModels only records the GPU models.
func (l *Learner) noteModels(g *v1alpha1.GPUNode) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for i := range g.Status.Devices {
		l.gpu(g.Status.Devices[i].Model)
	}
}

// GPUNodeGone handles the deletion of a GPUNode.
func (l *Learner) GPUNodeGone(name string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.keep(name, nil)
}

// keep drops the devices of a node that are not in kept.
func (l *Learner) keep(node string, kept map[vgpu.DeviceID]bool) {
	for at := range l.devices {
		if at.node == node && !kept[at.id] {
			delete(l.devices, at)
		}
	}
}

// read reads what a node published of a device. The previous publication counts until now.
func (l *Learner) read(at place, g *v1alpha1.GPUDevice, now time.Time) {
	d := l.devices[at]
	if d == nil {
		d = &device{node: at.node, id: at.id}
		l.devices[at] = d
	}
	l.advance(d, now)
	before := d.tenants
	d.model, d.told = g.Model, now
	d.memory, d.soft = g.Memory.AsApproximateFloat64(), g.Enforcement == v1alpha1.EnforcementNone
	d.tenants = make([]tenant, 0, len(g.Tenants))
	held := 0.
	for i := range g.Tenants {
		if t, works := l.tenantOf(&g.Tenants[i], d.memory); works {
			d.tenants = append(d.tenants, t)
			held += t.memory
		}
	}
	slices.SortFunc(d.tenants, func(a, b tenant) int { return strings.Compare(string(a.uid), string(b.uid)) })
	d.bandwidth, d.foreign = math.NaN(), false
	if u := g.Usage; u != nil {
		d.bandwidth = l.percent(&u.MemoryBandwidthPercent)
		d.foreign = u.MemoryUsed.AsApproximateFloat64()-held > d.memory/foreignPart
	}
	if !slices.EqualFunc(before, d.tenants, func(a, b tenant) bool { return a.uid == b.uid }) {
		d.begin(now)
	}
}

// foreignPart is the divisor of a device's memory: programs outside pods that hold more than this part count as
// neighbours. The driver and the MPS server themselves hold some hundred MiB. A larger number takes them for neighbours
// on small devices.
const foreignPart = 16

// tenantOf reads a tenant, and reports whether it is at work: it holds memory, or runs kernels.
func (l *Learner) tenantOf(g *v1alpha1.GPUTenant, device float64) (tenant, bool) {
	t := tenant{uid: types.UID(g.UID), sm: l.percent(g.SMUtilizationPercent), memory: math.NaN(), rate: math.NaN(), measured: g.Measured}
	if q := g.MemoryUsed; q != nil {
		if v := q.AsApproximateFloat64(); v >= 0 && v <= device {
			t.memory = v
		} else {
			l.counts.drop(dropAbsurd)
		}
	}
	if q := g.Rate; q != nil {
		switch v := q.AsApproximateFloat64(); {
		case legalRate(v):
			t.rate = v
		case v == 0:
			l.counts.drop(dropZero)
		default:
			l.counts.drop(dropAbsurd)
		}
	}
	return t, !(t.memory == 0) && !(math.IsNaN(t.memory) && t.sm == 0) || t.sm > 0
}

// percent reads a percentage as a part, NaN where it is unknown or illegal.
func (l *Learner) percent(p *int32) float64 {
	switch {
	case p == nil:
		return math.NaN()
	case *p < 0 || *p > 100:
		l.counts.drop(dropAbsurd)
		return math.NaN()
	}
	return float64(*p) / 100
}

// begin starts a window of a new tenant group.
func (d *device) begin(now time.Time) {
	d.window = window{since: now, until: now, sm: make([]mean, len(d.tenants)), rate: make([]mean, len(d.tenants))}
}

// next starts another window of the same tenant group.
func (w *window) next() {
	w.counted, w.bandwidth, w.foreign = 0, mean{}, false
	clear(w.sm)
	clear(w.rate)
}

// advance adds the previous publication up to now, and learns from a full interval.
func (l *Learner) advance(d *device, now time.Time) {
	w := &d.window
	if now.Before(w.until) || now.Before(d.told) {
		// The clock went back: the durations are unknown.
		d.told = now
		d.begin(now)
		return
	}
	from := w.since.Add(l.options.WarmUp)
	if from.Before(w.until) {
		from = w.until
	}
	to := now
	if last := d.told.Add(l.options.Stale); last.Before(to) {
		to = last
	}
	w.until = now
	took := to.Sub(from)
	if took <= 0 || len(d.tenants) == 0 {
		return
	}
	w.counted += took
	w.bandwidth.add(d.bandwidth, took)
	w.foreign = w.foreign || d.foreign
	for i := range d.tenants {
		w.sm[i].add(d.tenants[i].sm, took)
		w.rate[i].add(d.tenants[i].rate, took)
	}
	if w.counted >= l.options.Interval {
		l.teach(d, now)
		w.next()
	}
}
