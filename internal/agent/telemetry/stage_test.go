package telemetry

import (
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/tandem-gpu/tandem/internal/agent/allocation"
	"github.com/tandem-gpu/tandem/internal/agent/fixture"
	"github.com/tandem-gpu/tandem/internal/agent/inventory"
	"github.com/tandem-gpu/tandem/internal/agent/metrics"
	"github.com/tandem-gpu/tandem/internal/agent/nvml"
	"github.com/tandem-gpu/tandem/internal/agent/podsource"
	"github.com/tandem-gpu/tandem/internal/agent/reported"
	"github.com/tandem-gpu/tandem/internal/agent/resident"
	"github.com/tandem-gpu/tandem/pkg/vgpu"
	"github.com/tandem-gpu/tandem/test/must"
)

// stage is a meter whose rounds, pods, samples and reports the test chooses.
type stage struct {
	t     *testing.T
	m     *Meter
	inv   *inventory.Inventory
	drv   *sampleDriver
	pods  map[string]*v1.Pod
	known *shownPods
	proc  string
	rates map[types.UID]reported.Rate
	now   time.Time
}

// sampleDriver measures what a test says.
type sampleDriver struct {
	mu      sync.Mutex
	samples map[string]nvml.Sample
}

func (d *sampleDriver) Sample(id string) (nvml.Sample, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if s, ok := d.samples[id]; ok {
		return s, nil
	}
	return nvml.Sample{}, errors.New("not measured here")
}

// measure sets the use of a device.
func (d *sampleDriver) measure(id string, s nvml.Sample) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.samples == nil {
		d.samples = map[string]nvml.Sample{}
	}
	d.samples[id] = s
}

// shownPods are the pods of a node as a test sets them.
type shownPods struct {
	pods map[types.UID]*podsource.Tenant
}

func (s *shownPods) Snapshot() (map[types.UID]*podsource.Tenant, <-chan struct{}, error) {
	return s.pods, nil, nil
}

// tenSlots returns an inventory whose devices have ten slots each.
func tenSlots(gpus ...inventory.GPU) *inventory.Inventory {
	return inventory.New(gpus, func(string) int { return 10 })
}

// parts returns the parts of an agent that a meter needs: empty records, and metrics.
func parts(t *testing.T) (*allocation.Records, *metrics.Agent) {
	t.Helper()
	opened, err := allocation.Open(t.TempDir())
	must.OK(t, err)
	m, err := metrics.NewAgent(prometheus.NewRegistry())
	must.OK(t, err)
	return opened, m
}

func newStage(t *testing.T) *stage {
	t.Helper()
	s := &stage{
		t: t, drv: &sampleDriver{},
		pods: map[string]*v1.Pod{}, rates: map[types.UID]reported.Rate{}, now: time.Unix(1_000_000, 0),
	}
	s.inv = tenSlots(fixture.GPU(fixture.G0, 0, 0))
	s.known = &shownPods{}
	s.proc = t.TempDir()
	opened, m := parts(t)
	s.m = NewMeter(MeterOptions{
		Inventory: s.inv, Driver: s.drv, Records: opened, Metrics: m, Attribution: resident.NewAttribution(s.proc),
		Pods: s.known, Publish: time.Minute,
		Answer: 10 * time.Second, Reports: func(uid types.UID) (reported.Rate, bool) { r, ok := s.rates[uid]; return r, ok },
	})
	return s
}

// enter has a pod hold slots of the device; its process, if it works, is the one with the number of the pod.
func (s *stage) enter(name string, slots int) {
	s.t.Helper()
	s.pods[name] = fixture.Placed(s.t, name, fixture.App(fixture.G0, slots))
	s.tell()
}

func (s *stage) leave(name string) {
	delete(s.pods, name)
	s.tell()
}

func (s *stage) tell() {
	pods := make([]*v1.Pod, 0, len(s.pods))
	for _, p := range s.pods {
		pods = append(pods, p)
	}
	s.known.pods = tenantsOf(pods...)
}

// work is what the process of a pod does.
type work struct {
	pod    string
	sm     float64
	memory int64
	lumped bool
}

// round lets time pass and measures; it reports whether the GPUNode is told.
func (s *stage) round(after time.Duration, works ...work) bool {
	s.t.Helper()
	sample := nvml.Sample{}
	for i, w := range works {
		pid := 100 + i
		fixture.WriteProcess(s.t, s.proc, pid, fmt.Sprint(s.now.UnixNano()), fmt.Sprintf("0::/kubepods/pod%s/%064d\n", s.pods[w.pod].UID, i))
		sample.Processes = append(sample.Processes, nvml.Process{PID: pid, Memory: vgpu.Bytes(w.memory), SM: w.sm, Measured: !w.lumped})
		if w.lumped {
			sample.Processes[i].SM = 0
			sample.SM += w.sm
		}
	}
	s.drv.measure(fixture.G0, sample)
	noted := s.inv.Notes()
	s.now = s.now.Add(after)
	s.m.measure(s.t.Context(), s.now)
	select {
	case <-noted:
		return true
	default:
		return false
	}
}

// report has a pod report a rate of the last while.
func (s *stage) report(pod string, rate float64, about time.Duration) {
	s.rates[types.UID("uid-"+pod)] = reported.Rate{Value: rate, From: s.now.Add(-about), At: s.now}
}

func (s *stage) published() string {
	devices, _ := s.inv.Snapshot()
	words := make([]string, 0, len(devices[0].Tenants))
	for _, t := range devices[0].Tenants {
		word := t.UID
		if t.SMUtilizationPercent != nil {
			word += fmt.Sprintf(" %d%%", *t.SMUtilizationPercent)
		}
		if t.Measured {
			word += " measured"
		}
		if t.MemoryUsed != nil {
			word += " " + t.MemoryUsed.String()
		}
		if t.Rate != nil {
			word += " " + t.Rate.String() + "/s"
		}
		words = append(words, word)
	}
	return strings.Join(words, ", ")
}

func (s *stage) want(what, tenants string) {
	s.t.Helper()
	if got := s.published(); got != tenants {
		s.t.Errorf("%s:\n%s\nwant\n%s", what, got, tenants)
	}
}

// tenantsOf returns what is kept of pods, by UID.
func tenantsOf(pods ...*v1.Pod) map[types.UID]*podsource.Tenant {
	m := map[types.UID]*podsource.Tenant{}
	for _, pod := range pods {
		m[pod.UID] = podsource.NewTenant(pod)
	}
	return m
}
