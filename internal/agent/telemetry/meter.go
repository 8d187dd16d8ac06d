package telemetry

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/klog/v2"

	"github.com/tandem-gpu/tandem/internal/agent/allocation"
	"github.com/tandem-gpu/tandem/internal/agent/config"
	"github.com/tandem-gpu/tandem/internal/agent/inventory"
	"github.com/tandem-gpu/tandem/internal/agent/loop"
	"github.com/tandem-gpu/tandem/internal/agent/metrics"
	"github.com/tandem-gpu/tandem/internal/agent/nvml"
	"github.com/tandem-gpu/tandem/internal/agent/podsource"
	"github.com/tandem-gpu/tandem/internal/agent/reported"
	"github.com/tandem-gpu/tandem/internal/agent/resident"
	"github.com/tandem-gpu/tandem/pkg/vgpu"
)

// Driver measures the use of devices.
type Driver interface {
	// Sample measures the use of a device; that of its processes since the last Sample.
	Sample(id string) (nvml.Sample, error)
}

// Pods knows the pods of the node that request vGPUs.
type Pods interface {
	// Snapshot returns the pods by UID and a channel that is closed at the next change. With an error it returns the
	// last known pods.
	Snapshot() (map[types.UID]*podsource.Tenant, <-chan struct{}, error)
}

// MeterOptions say what a meter measures, and how.
type MeterOptions struct {
	Inventory   *inventory.Inventory
	Driver      Driver
	Records     *allocation.Records
	Pods        Pods
	Attribution *resident.Attribution
	// Reports returns what a pod reports of its rate.
	Reports func(types.UID) (reported.Rate, bool)
	Metrics *metrics.Agent
	Beat    func()
	// Every is the time between samples, Publish the least time between two publications, and Answer what one question
	// to the driver may take.
	Every, Publish, Answer time.Duration
}

// NewMeter returns a meter.
func NewMeter(o MeterOptions) *Meter {
	return &Meter{MeterOptions: o, askers: map[string]*loop.Question[sampled]{}, gauge: map[string]*gauge{}}
}

// Meter measures the use of the devices, says which container used what, and has the smoothed use of devices published
// when it has changed. The agent must have only one: a driver's sample covers the time since the one before.
type Meter struct {
	MeterOptions

	// Only the loop touches what follows.
	askers    map[string]*loop.Question[sampled]
	published time.Time

	mu    sync.Mutex
	gauge map[string]*gauge
}

// gauge is the known use of one device.
type gauge struct {
	// sample and uses are of the last round; nil without an answer of the driver. failed says that the driver has been
	// called.
	sample *metrics.Sample
	uses   map[holder]metrics.Use
	failed bool
	why    string
	// average is nil before the first sample, and after a long time without one; at is the time of the last sample.
	average *smoothed
	at      time.Time
	tenants tenants
}

// holder is a container of a pod.
type holder struct {
	uid  types.UID
	name string
}

type sampled struct {
	nvml.Sample
	err error
}

// Run measures until ctx ends.
func (m *Meter) Run(ctx context.Context) {
	tick := time.NewTicker(m.Every)
	defer tick.Stop()
	for {
		m.Beat()
		m.measure(ctx, time.Now())
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
	}
}

// measure samples all devices, each on its own: one that hangs holds up no other.
func (m *Meter) measure(ctx context.Context, now time.Time) {
	devices, _ := m.Inventory.Snapshot()
	pods, _, _ := m.Pods.Snapshot()
	present := round{pods: pods, residents: resident.List(pods, m.Records.Snapshot().Grants, devices), now: now}
	var asked sync.WaitGroup
	for i := range devices {
		d := &devices[i]
		ask := m.askers[d.ID]
		if ask == nil {
			ask = &loop.Question[sampled]{}
			m.askers[d.ID] = ask
		}
		asked.Go(func() { m.sample(ctx, d, ask, present.on(d)) })
	}
	asked.Wait()
	m.Attribution.Forget()
	m.forget(devices)
	m.takeReports()
	m.tell(devices, now)
}

// round holds who had shares of the devices at the time of one round of samples.
type round struct {
	pods      map[types.UID]*podsource.Tenant
	residents []resident.Share
	now       time.Time
}

// on keeps the residents of a device.
func (t round) on(d *inventory.Device) round {
	t.residents = slices.DeleteFunc(slices.Clone(t.residents), func(r resident.Share) bool { return r.DeviceID != d.ID })
	return t
}

func (m *Meter) sample(ctx context.Context, d *inventory.Device, ask *loop.Question[sampled], there round) {
	answer, ok := ask.Ask(ctx, m.Answer, func() sampled {
		s, err := m.Driver.Sample(d.ID)
		return sampled{s, err}
	})
	if ctx.Err() != nil {
		return
	}
	if !ok {
		answer.err = errors.New("the driver does not answer")
	}
	if answer.err != nil {
		m.fail(ctx, d, answer.err, there)
		return
	}
	uses, sum := divide(answer.Sample, there.residents, func(pid int) int { return m.resident(pid, there) })
	m.mu.Lock()
	defer m.mu.Unlock()
	g := m.of(d.ID)
	since := there.now.Sub(g.at)
	g.average = g.average.follow(&sum, since)
	g.tenants.join(there.residents)
	g.tenants.follow(there.residents, uses, there.now, since)
	g.sample, g.uses, g.at, g.failed, g.why = &sum, map[holder]metrics.Use{}, there.now, false, ""
	for i, u := range uses {
		g.uses[holder{there.residents[i].UID, there.residents[i].Name}] = u
	}
}

// resident returns the resident that a process belongs to, -1 for none. A process may belong to a known pod without a
// known container. It then belongs to the pod's only resident with a share of the device, if there is exactly one.
func (m *Meter) resident(pid int, there round) int {
	o, ok := m.Attribution.Owner(pid, there.pods)
	if !ok {
		return -1
	}
	candidate, candidates := -1, 0
	for i := range there.residents {
		r := &there.residents[i]
		if r.UID != o.UID {
			continue
		}
		if r.Name == o.Container {
			return i
		}
		candidate = i
		candidates++
	}
	if o.Container == "" && candidates == 1 {
		return candidate
	}
	return -1
}

// fail notes that the driver did not report the use of a device, and drops an average that is too old to be published.
func (m *Meter) fail(ctx context.Context, d *inventory.Device, err error, there round) {
	m.Metrics.SampleFailed(d.ID)
	m.mu.Lock()
	defer m.mu.Unlock()
	g := m.of(d.ID)
	if g.why != err.Error() {
		klog.FromContext(ctx).V(1).Info("Cannot measure the use of a device", "device", d.ID, "index", d.Index, "why", err.Error())
	}
	g.sample, g.uses, g.failed, g.why = nil, nil, true, err.Error()
	g.tenants.join(there.residents)
	if there.now.Sub(g.at) >= m.Publish {
		g.average = nil
		g.tenants.forget()
	}
}

// takeReports takes in the pods' reports of themselves.
func (m *Meter) takeReports() {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, g := range m.gauge {
		g.tenants.addRates(m.Reports)
	}
}

// of returns the gauge of a device. The caller holds the lock.
func (m *Meter) of(id string) *gauge {
	if m.gauge[id] == nil {
		m.gauge[id] = &gauge{}
	}
	return m.gauge[id]
}

// forget drops devices that are gone for good.
func (m *Meter) forget(devices []inventory.Device) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for id := range m.gauge {
		if inventory.Find(devices, id) == nil {
			delete(m.gauge, id)
			delete(m.askers, id)
		}
	}
}

// tell publishes the use of all devices where that of one has moved far enough, but no more often than allowed.
func (m *Meter) tell(devices []inventory.Device, now time.Time) {
	if !m.published.IsZero() && now.Sub(m.published) < m.Publish {
		return
	}
	usages, news := map[string]inventory.Usage{}, false
	m.mu.Lock()
	for i := range devices {
		d := &devices[i]
		g := m.of(d.ID)
		t := inventory.Usage{Device: g.average.usage(), Tenants: g.tenants.list(d.Parent == "")}
		usages[d.ID] = t
		news = news || isNews(d.Usage, t.Device, d.Memory) || isTenantNews(d.Tenants, t.Tenants, d.Memory)
	}
	m.mu.Unlock()
	if news {
		m.published = now
		m.Inventory.SetUsages(usages)
	}
}

// Snapshot is the present content of the metrics. Shares appear from the moment when their pod is known: their use is 0
// before the first measurement.
func (m *Meter) Snapshot() metrics.Snapshot {
	devices, _ := m.Inventory.Snapshot()
	pods, _, _ := m.Pods.Snapshot()
	var s metrics.Snapshot
	m.mu.Lock()
	defer m.mu.Unlock()
	for i := range devices {
		s.Devices = append(s.Devices, m.device(&devices[i]))
	}
	for _, r := range resident.List(pods, m.Records.Snapshot().Grants, devices) {
		s.Shares = append(s.Shares, m.share(&r))
		if rate, ok := m.Reports(r.UID); ok {
			s.Rates = append(s.Rates, metrics.PodRate{Namespace: r.Namespace, Pod: r.Pod, Rate: rate.Value})
		}
	}
	return s
}

func (m *Meter) device(d *inventory.Device) metrics.Device {
	out := metrics.Device{
		ID: d.ID, Model: strings.ToValidUTF8(config.ModelName(d.Model), "?"), PCIBusID: d.PCIBusID, Parent: d.Parent,
		Enforcement: string(inventory.Enforcement(d)), Index: d.Index, Memory: d.Memory, ContextsLimit: d.Contexts,
		Sample: m.of(d.ID).sample,
	}
	if d.Sick != nil {
		out.Sick = d.Sick.Reason
	}
	return out
}

func (m *Meter) share(r *resident.Share) metrics.Share {
	s := metrics.Share{
		Namespace: r.Namespace, Pod: r.Pod, UID: string(r.UID), Container: r.Name, Device: r.DeviceID,
		Enforcement: string(r.Grade), Slots: r.Slots,
		ComputeRequest: float64(r.Slots) / float64(r.Of), ComputeLimit: float64(r.ComputeLimit) / float64(vgpu.WholeGPU),
		MemoryRequest: r.MemoryRequest, MemoryLimit: r.MemoryLimit,
	}
	if g := m.of(r.DeviceID); !g.failed {
		u := g.uses[holder{r.UID, r.Name}]
		s.Use = &u
	}
	return s
}
