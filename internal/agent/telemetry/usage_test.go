package telemetry

import (
	"math"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"k8s.io/apimachinery/pkg/api/resource"
	"pgregory.net/rapid"

	"github.com/tandem-gpu/tandem/internal/agent/metrics"
	"github.com/tandem-gpu/tandem/internal/agent/nvml"
	"github.com/tandem-gpu/tandem/internal/agent/resident"
	"github.com/tandem-gpu/tandem/pkg/api/v1alpha1"
	"github.com/tandem-gpu/tandem/pkg/vgpu"
)

func limited(limits ...int) []resident.Share {
	list := make([]resident.Share, 0, len(limits))
	for _, l := range limits {
		list = append(list, resident.Share{ComputeLimit: vgpu.MilliGPU(l)})
	}
	return list
}

func TestDivide(t *testing.T) {
	const measured, apportioned = metrics.SourceMeasured, metrics.SourceApportioned
	use := func(memory int64, sm, bandwidth float64, contexts int, source string) metrics.Use {
		return metrics.Use{Memory: memory, Rates: metrics.Rates{SM: sm, MemoryBandwidth: bandwidth}, Contexts: contexts, Source: source}
	}
	server := nvml.Process{PID: 1, Memory: 700, Server: true}
	busy := server
	busy.SM, busy.MemoryBandwidth, busy.Measured = 0.6, 0.3, true
	cases := []struct {
		name      string
		sample    nvml.Sample
		residents []resident.Share
		whose     map[int]int // PID to resident, from 1; 0 is nobody
		want      []metrics.Use
		nobody    [2]int64 // processes and memory
	}{
		{
			name: "the driver tells of each client",
			sample: nvml.Sample{SM: 0.9, Processes: []nvml.Process{
				busy, {PID: 10, Memory: 100, SM: 0.2, MemoryBandwidth: 0.1, Measured: true},
				{PID: 11, Memory: 200, SM: 0.3, MemoryBandwidth: 0.2, Measured: true}, {PID: 12, Memory: 400},
			}},
			residents: limited(300, 300), whose: map[int]int{10: 1, 11: 1, 12: 2},
			want: []metrics.Use{use(300, 0.5, 0.3, 2, measured), use(400, 0, 0, 1, measured)},
		},
		{
			name:      "the driver tells of the server alone: 60 % by limits of 20 % and 40 %",
			sample:    nvml.Sample{SM: 0.9, Processes: []nvml.Process{busy, {PID: 10, Memory: 100}, {PID: 11, Memory: 200}}},
			residents: limited(200, 400), whose: map[int]int{10: 1, 11: 2},
			want: []metrics.Use{use(100, 0.2, 0.1, 1, apportioned), use(200, 0.4, 0.2, 1, apportioned)},
		},
		{
			name:      "two processes share the limit of their container",
			sample:    nvml.Sample{Processes: []nvml.Process{busy, {PID: 10}, {PID: 11}, {PID: 12}}},
			residents: limited(300, 300), whose: map[int]int{10: 1, 11: 1, 12: 2},
			want: []metrics.Use{use(0, 0.3, 0.15, 2, apportioned), use(0, 0.3, 0.15, 1, apportioned)},
		},
		{
			name:      "a process that nobody knows may use the whole device: 60 % by 500 and 1000",
			sample:    nvml.Sample{Processes: []nvml.Process{busy, {PID: 10}, {PID: 99, Memory: 50}}},
			residents: limited(500), whose: map[int]int{10: 1},
			want: []metrics.Use{use(0, 0.2, 0.1, 1, apportioned)}, nobody: [2]int64{1, 50},
		},
		{
			name:      "the driver tells of the device alone",
			sample:    nvml.Sample{SM: 0.8, MemoryBandwidth: 0.4, Processes: []nvml.Process{{PID: 10}}},
			residents: limited(1000, 1000), whose: map[int]int{10: 1},
			want: []metrics.Use{use(0, 0.8, 0.4, 1, apportioned), use(0, 0, 0, 0, measured)},
		},
		{
			name:      "the driver tells of the device and shows a server that it did not measure",
			sample:    nvml.Sample{SM: 0.8, MemoryBandwidth: 0.4, Processes: []nvml.Process{server, {PID: 10}}},
			residents: limited(1000), whose: map[int]int{10: 1},
			want: []metrics.Use{use(0, 0.8, 0.4, 1, apportioned)},
		},
		{
			name:      "an idle device is measured",
			sample:    nvml.Sample{Processes: []nvml.Process{server, {PID: 10, Memory: 7}}},
			residents: limited(1000), whose: map[int]int{10: 1},
			want: []metrics.Use{use(7, 0, 0, 1, measured)},
		},
		{
			name: "samples of many processes add up to one at most",
			sample: nvml.Sample{Processes: []nvml.Process{
				{PID: 10, SM: 0.7, MemoryBandwidth: 0.6, Measured: true}, {PID: 11, SM: 0.7, MemoryBandwidth: 0.6, Measured: true},
			}},
			residents: limited(1000), whose: map[int]int{10: 1, 11: 1},
			want: []metrics.Use{use(0, 1, 1, 2, measured)},
		},
		{
			name:   "programs of the host",
			sample: nvml.Sample{MemoryUsed: 90, Processes: []nvml.Process{{PID: 5, Memory: 40, SM: 0.5, Measured: true}, {PID: 6, Memory: 50}}},
			want:   []metrics.Use{}, nobody: [2]int64{2, 90},
		},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			got, device := divide(c.sample, c.residents, func(pid int) int { return c.whose[pid] - 1 })
			if diff := cmp.Diff(c.want, got, cmpopts.EquateApprox(0, 1e-9)); diff != "" {
				t.Errorf("uses (-want +got):\n%s", diff)
			}
			if have := [2]int64{int64(device.Unattributed), device.UnattributedMemory}; have != c.nobody {
				t.Errorf("nobody's: %v, want %v", have, c.nobody)
			}
		})
	}
}

// The work of the server is divided without remainder, whoever the clients are, and no one gets less for a larger
// limit.
func TestDivisionLosesNothingProperty(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		total := rapid.Float64Range(0.01, 1).Draw(t, "total")
		limits := rapid.SliceOfN(rapid.IntRange(1, 1000), 1, 6).Draw(t, "limits")
		holders := rapid.SliceOfN(rapid.IntRange(-1, len(limits)-1), 1, 12).Draw(t, "holders")
		s := nvml.Sample{SM: 0.5, Processes: []nvml.Process{{PID: 1, Server: true, Measured: true, SM: total, MemoryBandwidth: total / 2}}}
		for i := range holders {
			s.Processes = append(s.Processes, nvml.Process{PID: 10 + i, Memory: vgpu.Bytes(i)})
		}
		clients, server := clientsOf(s, func(pid int) int { return holders[pid-10] })
		lumped, ok := lump(s, clients, server)
		if !ok {
			t.Fatal("nothing to divide")
		}
		apportion(clients, limited(limits...), lumped)
		sum, by := metrics.Rates{}, map[int]float64{}
		for _, c := range clients {
			sum.SM += c.SM
			sum.MemoryBandwidth += c.MemoryBandwidth
			by[c.resident] += c.SM
		}
		if math.Abs(sum.SM-total) > 1e-9 || math.Abs(sum.MemoryBandwidth-total/2) > 1e-9 {
			t.Fatalf("%v of %v was divided", sum, total)
		}
		for i, a := range by {
			for j, b := range by {
				if i >= 0 && j >= 0 && limits[i] < limits[j] && a > b+1e-9 {
					t.Fatalf("limit %d got %v, limit %d got %v", limits[i], a, limits[j], b)
				}
			}
		}
	})
}

func TestAverageFollows(t *testing.T) {
	at := func(sm float64, memory int64) *metrics.Sample {
		return &metrics.Sample{Rates: metrics.Rates{SM: sm, MemoryBandwidth: sm / 2}, MemoryUsed: memory}
	}
	var s *smoothed
	if s.usage() != nil {
		t.Error("a use before the first sample")
	}
	s = s.follow(at(0.2, 100), time.Hour)
	want := func(what string, sm, bandwidth int32, memory int64) {
		t.Helper()
		u := s.usage()
		if u.SMUtilizationPercent != sm || u.MemoryBandwidthPercent != bandwidth || u.MemoryUsed.Value() != memory {
			t.Errorf("%s: %+v, want %d %%, %d %%, %d bytes", what, u, sm, bandwidth, memory)
		}
	}
	want("the first sample counts in full", 20, 10, 100)
	s = s.follow(at(1, 200), smoothing)
	want("after the time of smoothing 63 % of the step are done", 71, 35, 163) // 0.2 + 0.8 × 0.632
	s = s.follow(at(1, 200), 0)
	want("no time, no step", 71, 35, 163)
	for range 6 {
		s = s.follow(at(1, 200), 10*time.Second)
	}
	want("the steps do not depend on the interval", 89, 45, 186) // 1 - 0.8 × 0.368²
}

func TestNewsIsWhatMovedFar(t *testing.T) {
	use := func(sm, bandwidth int32, memory int64) *v1alpha1.GPUUsage {
		return &v1alpha1.GPUUsage{SMUtilizationPercent: sm, MemoryBandwidthPercent: bandwidth, MemoryUsed: *resource.NewQuantity(memory, resource.BinarySI)}
	}
	for _, c := range []struct {
		name      string
		have, now *v1alpha1.GPUUsage
		want      bool
	}{
		{"nothing known", nil, nil, false},
		{"the first", nil, use(0, 0, 0), true},
		{"no more told", use(0, 0, 0), nil, true},
		{"4 points", use(50, 50, 100), use(54, 46, 100), false},
		{"5 points up", use(50, 50, 100), use(55, 50, 100), true},
		{"5 points down", use(50, 50, 100), use(45, 50, 100), true},
		{"5 points of bandwidth", use(50, 50, 100), use(50, 45, 100), true},
		{"less than 5 % of the memory", use(50, 50, 100), use(50, 50, 149), false},
		{"5 % of the memory", use(50, 50, 100), use(50, 50, 150), true},
		{"5 % of the memory less", use(50, 50, 100), use(50, 50, 50), true},
	} {
		if got := isNews(c.have, c.now, 1000); got != c.want {
			t.Errorf("%s: %v, want %v", c.name, got, c.want)
		}
	}
}
