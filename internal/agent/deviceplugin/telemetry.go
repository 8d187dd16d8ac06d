package deviceplugin

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/klog/v2"

	"github.com/tandem-gpu/tandem/internal/agent/nvml"
	"github.com/tandem-gpu/tandem/internal/agent/reported"
	"github.com/tandem-gpu/tandem/internal/metrics"
	"github.com/tandem-gpu/tandem/pkg/vgpu"
)

// meter measures the use of the devices, says which container used what, and has the smoothed use of devices published
// when it has changed. It is the only one that samples the driver: a sample tells what was since the one before.
type meter struct {
	inventory   *inventory
	driver      Driver
	records     *records
	pods        *podWatch
	attribution *attribution
	// reports tells what a pod reports of its rate.
	reports func(types.UID) (reported.Rate, bool)
	metrics *metrics.Agent
	beat    func()
	// every is the time between samples, publish the least time between two publications, and answer what one question
	// to the driver may take.
	every, publish, answer time.Duration

	// What follows is the loop's alone.
	askers    map[string]*asker[sampled]
	published time.Time

	mu    sync.Mutex
	gauge map[string]*gauge
}

// gauge is what is known of the use of one device.
type gauge struct {
	// sample and uses are of the last round; nil where the driver did not tell. failed says that it has been asked.
	sample *metrics.Sample
	uses   map[holder]metrics.Use
	failed bool
	why    string
	// average is nil before the first sample, and after the driver has not told for long; at is when it last told.
	average *smoothed
	at      time.Time
	company company
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

// telemetry returns the loops that measure the use of the devices.
func (a *Agent) telemetry() []func(context.Context) {
	reader := reported.New(reported.Options{
		Interval: a.timing.reports, AnnotationsOnly: a.options.Config.Telemetry.reports() == reportsAnnotations,
		Scraped: a.metrics.RateScraped, Dropped: a.metrics.RateDropped, Dial: a.dial,
	})
	m := &meter{
		inventory: a.inventory, driver: a.options.Driver, records: a.binder.records, pods: a.podWatch,
		attribution: a.attribution, metrics: a.metrics, beat: a.pulse.of("telemetry"), reports: reader.Rate,
		every: a.timing.telemetry, publish: a.timing.announce, answer: a.timing.driver,
		askers: map[string]*asker[sampled]{}, gauge: map[string]*gauge{},
	}
	if err := metrics.RegisterUse(a.registry, m.snapshot); err != nil {
		panic("register metrics of devices: " + err.Error()) // the names are constants
	}
	loops := []func(context.Context){a.podWatch.run, m.run}
	if a.options.Config.Telemetry.reports() != reportsNone {
		r := &reporter{reader: reader, pods: a.podWatch, every: a.timing.reports, beat: a.pulse.of("reports")}
		loops = append(loops, r.run)
	}
	return loops
}

// run measures until ctx ends.
func (m *meter) run(ctx context.Context) {
	tick := time.NewTicker(m.every)
	defer tick.Stop()
	for {
		m.beat()
		m.measure(ctx, time.Now())
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
	}
}

// measure samples all devices, each on its own: one that hangs holds up no other.
func (m *meter) measure(ctx context.Context, now time.Time) {
	devices, _ := m.inventory.snapshot()
	pods, _, _ := m.pods.snapshot()
	present := tenancy{pods: pods, residents: residents(pods, m.records.snapshot().Grants, devices), now: now}
	var asked sync.WaitGroup
	for i := range devices {
		d := &devices[i]
		ask := m.askers[d.ID]
		if ask == nil {
			ask = &asker[sampled]{}
			m.askers[d.ID] = ask
		}
		asked.Go(func() { m.sample(ctx, d, ask, present.on(d)) })
	}
	asked.Wait()
	m.attribution.forget()
	m.forget(devices)
	m.hear()
	m.tell(devices, now)
}

// tenancy is who was there at the time of a round.
type tenancy struct {
	pods      map[types.UID]*tenant
	residents []resident
	now       time.Time
}

// on keeps the residents of a device.
func (t tenancy) on(d *device) tenancy {
	t.residents = slices.DeleteFunc(slices.Clone(t.residents), func(r resident) bool { return r.deviceID != d.ID })
	return t
}

func (m *meter) sample(ctx context.Context, d *device, ask *asker[sampled], there tenancy) {
	answer, ok := ask.ask(ctx, m.answer, func() sampled {
		s, err := m.driver.Sample(d.ID)
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
	g.company.join(there.residents)
	g.company.follow(there.residents, uses, there.now, since)
	g.sample, g.uses, g.at, g.failed, g.why = &sum, map[holder]metrics.Use{}, there.now, false, ""
	for i, u := range uses {
		g.uses[holder{there.residents[i].uid, there.residents[i].name}] = u
	}
}

// resident returns the resident that a process belongs to, -1 for none. Where the pod is known and the container is not
// yet, it is the only one of the pod with a share of the device, if there is one: others do not get at it.
func (m *meter) resident(pid int, there tenancy) int {
	o, ok := m.attribution.owner(pid, there.pods)
	if !ok {
		return -1
	}
	candidate, candidates := -1, 0
	for i := range there.residents {
		r := &there.residents[i]
		if r.uid != o.uid {
			continue
		}
		if r.name == o.container {
			return i
		}
		candidate = i
		candidates++
	}
	if o.container == "" && candidates == 1 {
		return candidate
	}
	return -1
}

// fail notes that the driver did not tell the use of a device, and forgets what it told when that is too old to be
// published.
func (m *meter) fail(ctx context.Context, d *device, err error, there tenancy) {
	m.metrics.SampleFailed(d.ID)
	m.mu.Lock()
	defer m.mu.Unlock()
	g := m.of(d.ID)
	if g.why != err.Error() {
		klog.FromContext(ctx).V(1).Info("Cannot measure the use of a device", "device", d.ID, "index", d.Index, "why", err.Error())
	}
	g.sample, g.uses, g.failed, g.why = nil, nil, true, err.Error()
	g.company.join(there.residents)
	if there.now.Sub(g.at) >= m.publish {
		g.average = nil
		g.company.forget()
	}
}

// hear takes in what the pods report of themselves.
func (m *meter) hear() {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, g := range m.gauge {
		g.company.hear(m.reports)
	}
}

// of returns what is known of a device. The caller holds the lock.
func (m *meter) of(id string) *gauge {
	if m.gauge[id] == nil {
		m.gauge[id] = &gauge{}
	}
	return m.gauge[id]
}

// forget drops devices that are gone for good.
func (m *meter) forget(devices []device) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for id := range m.gauge {
		if find(devices, id) == nil {
			delete(m.gauge, id)
			delete(m.askers, id)
		}
	}
}

// tell has the use of all devices published where that of one has moved far enough, but no more often than allowed.
func (m *meter) tell(devices []device, now time.Time) {
	if !m.published.IsZero() && now.Sub(m.published) < m.publish {
		return
	}
	tales, news := map[string]tale{}, false
	m.mu.Lock()
	for i := range devices {
		d := &devices[i]
		g := m.of(d.ID)
		t := tale{usage: g.average.usage(), tenants: g.company.tenants(d.Parent == "")}
		tales[d.ID] = t
		news = news || isNews(d.Usage, t.usage, d.Memory) || isTenantNews(d.Tenants, t.tenants, d.Memory)
	}
	m.mu.Unlock()
	if news {
		m.published = now
		m.inventory.setUsages(tales)
	}
}

// snapshot is what the metrics tell now. Shares are told from the moment when their pod is known: their use is 0 until
// it is measured.
func (m *meter) snapshot() metrics.Snapshot {
	devices, _ := m.inventory.snapshot()
	pods, _, _ := m.pods.snapshot()
	var s metrics.Snapshot
	m.mu.Lock()
	defer m.mu.Unlock()
	for i := range devices {
		s.Devices = append(s.Devices, m.device(&devices[i]))
	}
	for _, r := range residents(pods, m.records.snapshot().Grants, devices) {
		s.Shares = append(s.Shares, m.share(&r))
		if rate, ok := m.reports(r.uid); ok {
			s.Rates = append(s.Rates, metrics.PodRate{Namespace: r.namespace, Pod: r.pod, Rate: rate.Value})
		}
	}
	return s
}

func (m *meter) device(d *device) metrics.Device {
	out := metrics.Device{
		ID: d.ID, Model: strings.ToValidUTF8(modelName(d.Model), "?"), PCIBusID: d.PCIBusID, Parent: d.Parent,
		Enforcement: string(enforcement(d)), Index: d.Index, Memory: d.Memory, ContextsLimit: d.Contexts,
		Sample: m.of(d.ID).sample,
	}
	if d.Sick != nil {
		out.Sick = d.Sick.Reason
	}
	return out
}

func (m *meter) share(r *resident) metrics.Share {
	s := metrics.Share{
		Namespace: r.namespace, Pod: r.pod, UID: string(r.uid), Container: r.name, Device: r.deviceID,
		Enforcement: string(r.grade), Slots: r.slots,
		ComputeRequest: float64(r.slots) / float64(r.of), ComputeLimit: float64(r.computeLimit) / float64(vgpu.WholeGPU),
		MemoryRequest: r.memoryRequest, MemoryLimit: r.memoryLimit,
	}
	if g := m.of(r.deviceID); !g.failed {
		u := g.uses[holder{r.uid, r.name}]
		s.Use = &u
	}
	return s
}
