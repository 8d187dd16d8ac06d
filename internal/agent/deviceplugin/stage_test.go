package deviceplugin

import (
	"fmt"
	"strings"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/tandem-gpu/tandem/internal/agent/nvml"
	"github.com/tandem-gpu/tandem/internal/agent/reported"
	"github.com/tandem-gpu/tandem/pkg/vgpu"
)

// stage is a meter whose rounds, pods, samples and reports the test chooses.
type stage struct {
	t     *testing.T
	m     *meter
	inv   *inventory
	drv   *driver
	pods  map[string]*v1.Pod
	rates map[types.UID]reported.Rate
	now   time.Time
}

func newStage(t *testing.T) *stage {
	t.Helper()
	s := &stage{
		t: t, drv: &driver{sick: map[string]error{}, gpus: []GPU{gpu(g0, 0, 0)}},
		pods: map[string]*v1.Pod{}, rates: map[types.UID]reported.Rate{}, now: time.Unix(1_000_000, 0),
	}
	s.inv = newInventory(s.drv.gpus, Config{})
	b := newBench(t)
	a := b.run() // for its records and metrics
	s.m = &meter{
		inventory: s.inv, driver: s.drv, records: a.binder.records, metrics: a.metrics, attribution: newAttribution(t.TempDir()),
		pods: newPodWatch(nil, func() {}, func() {}), publish: time.Minute, askers: map[string]*asker[sampled]{}, gauge: map[string]*gauge{},
		answer: 10 * time.Second, reports: func(uid types.UID) (reported.Rate, bool) { r, ok := s.rates[uid]; return r, ok },
	}
	return s
}

// enter has a pod hold slots of the device; its process, if it works, is the one with the number of the pod.
func (s *stage) enter(name string, slots int) {
	s.t.Helper()
	s.pods[name] = placed(s.t, name, app(g0, slots))
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
	s.m.pods.replace(tenants(pods...))
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
		writeProcess(s.t, s.m.attribution.proc, pid, fmt.Sprint(s.now.UnixNano()), fmt.Sprintf("0::/kubepods/pod%s/%064d\n", s.pods[w.pod].UID, i))
		sample.Processes = append(sample.Processes, nvml.Process{PID: pid, Memory: vgpu.Bytes(w.memory), SM: w.sm, Measured: !w.lumped})
		if w.lumped {
			sample.Processes[i].SM = 0
			sample.SM += w.sm
		}
	}
	s.drv.measure(g0, sample)
	noted := s.inv.notes()
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
	devices, _ := s.inv.snapshot()
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
