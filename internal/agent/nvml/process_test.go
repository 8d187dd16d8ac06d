package nvml

import (
	"math"
	"slices"
	"testing"
	"time"

	"github.com/NVIDIA/go-nvml/pkg/nvml"
	"github.com/NVIDIA/go-nvml/pkg/nvml/mock/server"
	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"
)

const (
	none32 = math.MaxUint32
	none64 = math.MaxUint64
)

// runs makes a device of a mock list processes; names are what the system tells of them.
func runs(s *server.Server, d *server.Device, compute, clients []nvml.ProcessInfo, names map[int]string) {
	d.GetComputeRunningProcessesFunc = func() ([]nvml.ProcessInfo, nvml.Return) { return compute, nvml.SUCCESS }
	d.GetMPSComputeRunningProcessesFunc = func() ([]nvml.ProcessInfo, nvml.Return) { return clients, nvml.SUCCESS }
	d.GetProcessUtilizationFunc = func(uint64) ([]usage, nvml.Return) { return nil, nvml.ERROR_NOT_FOUND }
	s.SystemGetProcessNameFunc = func(pid int) (string, nvml.Return) {
		if name, ok := names[pid]; ok {
			return name, nvml.SUCCESS
		}
		return "", nvml.ERROR_NOT_FOUND
	}
}

func TestProcesses(t *testing.T) {
	const server1 = "/usr/bin/nvidia-cuda-mps-server -force-tegra"
	for name, test := range map[string]struct {
		compute, clients []nvml.ProcessInfo
		names            map[int]string
		want             []Process
	}{
		"nobody": {want: []Process{}},
		"outside of MPS": {
			compute: []nvml.ProcessInfo{{Pid: 9, UsedGpuMemory: 4}}, names: map[int]string{9: "/usr/bin/python3"},
			want: []Process{{PID: 9, Memory: 4}},
		},
		"server and clients": {
			compute: []nvml.ProcessInfo{{Pid: 5, UsedGpuMemory: 30}},
			clients: []nvml.ProcessInfo{{Pid: 8, UsedGpuMemory: 20}, {Pid: 7, UsedGpuMemory: 10}},
			names:   map[int]string{5: server1},
			want:    []Process{{PID: 5, Memory: 30, Server: true}, {PID: 7, Memory: 10}, {PID: 8, Memory: 20}},
		},
		"clients in both lists": {
			compute: []nvml.ProcessInfo{{Pid: 5, UsedGpuMemory: 30}, {Pid: 7, UsedGpuMemory: 10}},
			clients: []nvml.ProcessInfo{{Pid: 7, UsedGpuMemory: 12}},
			names:   map[int]string{5: server1},
			want:    []Process{{PID: 5, Memory: 30, Server: true}, {PID: 7, Memory: 12}},
		},
		"server without clients": {
			compute: []nvml.ProcessInfo{{Pid: 5, UsedGpuMemory: 30}}, names: map[int]string{5: "nvidia-cuda-mps-server"},
			want: []Process{{PID: 5, Memory: 30, Server: true}},
		},
		"server without a name": {
			compute: []nvml.ProcessInfo{{Pid: 5, UsedGpuMemory: 30}}, clients: []nvml.ProcessInfo{{Pid: 7}},
			want: []Process{{PID: 5, Memory: 30, Server: true}, {PID: 7}},
		},
		"two without a name": {
			compute: []nvml.ProcessInfo{{Pid: 4}, {Pid: 5}}, clients: []nvml.ProcessInfo{{Pid: 7}},
			want: []Process{{PID: 4}, {PID: 5}, {PID: 7}},
		},
		"no clients, no name": {compute: []nvml.ProcessInfo{{Pid: 5}}, want: []Process{{PID: 5}}},
		"beside a server that has one": {
			compute: []nvml.ProcessInfo{{Pid: 4}, {Pid: 5}}, clients: []nvml.ProcessInfo{{Pid: 7}}, names: map[int]string{5: server1},
			want: []Process{{PID: 4}, {PID: 5, Server: true}, {PID: 7}},
		},
		"odd entries": {
			compute: []nvml.ProcessInfo{
				{Pid: 0, UsedGpuMemory: 4}, {Pid: none32}, {Pid: 9, UsedGpuMemory: none64}, {Pid: 9, UsedGpuMemory: 5},
				{Pid: 9, UsedGpuMemory: 3}, {Pid: 10, UsedGpuMemory: none64 - 1},
			},
			names: map[int]string{9: "   ", 10: "a"},
			want:  []Process{{PID: 9, Memory: 5}, {PID: 10}},
		},
	} {
		s := newServer(wiring{})
		d := s.Devices[0].(*server.Device)
		runs(s, d, test.compute, test.clients, test.names)
		if diff := cmp.Diff(test.want, mustSample(t, mustOpen(t, s), d.UUID).Processes); diff != "" {
			t.Errorf("%s: %s", name, diff)
		}
	}
}

// record is what the driver would know; since notes what it was asked.
type record struct {
	samples []usage
	since   []uint64
	// repeats makes the driver give out again what it gave out before.
	repeats bool
}

func (u *record) attach(d *server.Device) {
	d.GetProcessUtilizationFunc = func(since uint64) ([]usage, nvml.Return) {
		u.since = append(u.since, since)
		var list []usage
		for _, s := range u.samples {
			if s.TimeStamp > since || u.repeats {
				list = append(list, s)
			}
		}
		if len(list) == 0 {
			return nil, nvml.ERROR_NOT_FOUND
		}
		return list, nvml.SUCCESS
	}
}

// twoProcesses is a device with the processes 7 and 8, and what the driver knows of their use.
func twoProcesses(t *testing.T) (sample func() []Process, u *record, now uint64) {
	s := newServer(wiring{})
	d := s.Devices[0].(*server.Device)
	runs(s, d, []nvml.ProcessInfo{{Pid: 7}, {Pid: 8}}, nil, nil)
	u = &record{}
	u.attach(d)
	l := mustOpen(t, s)
	return func() []Process { return mustSample(t, l, d.UUID).Processes }, u, micros(time.Now())
}

func at(pid uint32, stamp uint64, sm, memory uint32) usage {
	return usage{Pid: pid, TimeStamp: stamp, SmUtil: sm, MemUtil: memory}
}

func TestUtilisationSinceTheLastSample(t *testing.T) {
	sample, u, now := twoProcesses(t)
	const second = 1_000_000
	u.samples = []usage{
		at(7, now-100*second, 100, 100),                                                      // long ago
		at(9, now-2*second, 70, 0),                                                           // ended meanwhile
		at(7, now-3*second, 30, 10), at(8, now-3*second, 60, 0), at(7, now-4*second, 50, 20), // not in order
	}
	want := []Process{{PID: 7, SM: 0.4, MemoryBandwidth: 0.15, Measured: true}, {PID: 8, SM: 0.6, Measured: true}}
	if diff := cmp.Diff(want, sample(), approximately()); diff != "" {
		t.Error("first sample:", diff)
	}
	// Nothing new: both were idle.
	if diff := cmp.Diff([]Process{{PID: 7}, {PID: 8}}, sample()); diff != "" {
		t.Error("nothing new:", diff)
	}
	u.samples = append(u.samples, at(8, now-second, 20, 40))
	if diff := cmp.Diff([]Process{{PID: 7}, {PID: 8, SM: 0.2, MemoryBandwidth: 0.4, Measured: true}}, sample()); diff != "" {
		t.Error("one new:", diff)
	}
	sample()
	if diff := cmp.Diff([]uint64{0, now - 2*second, now - 2*second, now - second}, u.since); diff != "" {
		t.Error("asked for samples since:", diff)
	}
}

func approximately() cmp.Option {
	return cmp.Comparer(func(a, b float64) bool { return math.Abs(a-b) < 1e-9 })
}

func TestUtilisationGarbage(t *testing.T) {
	sample, u, now := twoProcesses(t)
	u.samples = []usage{
		at(7, now-10, none32, 5), at(7, now-20, 101, 5), at(7, now-30, 5, none32), // no measurements
		at(7, now-40, 100, 100), at(8, 0, 50, 50), at(0, now-5, 80, 80), // full load; no time; nobody
	}
	want := []Process{{PID: 7, SM: 1, MemoryBandwidth: 1, Measured: true}, {PID: 8}}
	if diff := cmp.Diff(want, sample()); diff != "" {
		t.Error(diff)
	}
	if sample(); u.since[1] != now-40 {
		t.Errorf("asked for samples since %d before now, want 40", now-u.since[1])
	}
}

func TestDriverThatRepeatsItself(t *testing.T) {
	sample, u, now := twoProcesses(t)
	u.samples, u.repeats = []usage{at(7, now-3, 30, 0)}, true
	if got := sample()[0]; got.SM != 0.3 || !got.Measured {
		t.Errorf("first sample: %+v", got)
	}
	for range 3 {
		if got := sample()[0]; got.Measured {
			t.Errorf("the same again: %+v", got)
		}
	}
}

// Only the first sample looks back for a short time: after a long pause everything since the last one counts.
func TestSampleAfterALongPause(t *testing.T) {
	s := newServer(wiring{})
	d := s.Devices[0].(*server.Device)
	runs(s, d, []nvml.ProcessInfo{{Pid: 7}}, nil, nil)
	now := micros(time.Now())
	u := &record{samples: []usage{at(7, now-50_000_000, 20, 0), at(7, now-1, 40, 0)}}
	u.attach(d)
	l := mustOpen(t, s)
	l.sampled[d.UUID] = now - 60_000_000
	want := []Process{{PID: 7, SM: 0.3, Measured: true}}
	if diff := cmp.Diff(want, mustSample(t, l, d.UUID).Processes, approximately()); diff != "" {
		t.Error(diff)
	}
}

// The clock is set back by an hour: samples of before are from the future, and later samples are older than the newest
// that was seen.
func TestClockSetBack(t *testing.T) {
	s := newServer(wiring{})
	d := s.Devices[0].(*server.Device)
	runs(s, d, []nvml.ProcessInfo{{Pid: 7}}, nil, nil)
	u := &record{}
	u.attach(d)
	l := mustOpen(t, s)
	now := micros(time.Now())
	future := now + 3600*1_000_000
	l.sampled[d.UUID] = future
	u.samples = []usage{at(7, future-10, 90, 0), at(7, future+10, 90, 0), at(7, now-50, 30, 0)}
	if diff := cmp.Diff([]Process{{PID: 7, SM: 0.3, Measured: true}}, mustSample(t, l, d.UUID).Processes); diff != "" {
		t.Error(diff)
	}
	u.samples = append(u.samples, at(7, now-20, 50, 0))
	if diff := cmp.Diff([]Process{{PID: 7, SM: 0.5, Measured: true}}, mustSample(t, l, d.UUID).Processes); diff != "" {
		t.Error("the sample after that:", diff)
	}
}

// The number of samples grows between go-nvml's two calls, and it cuts its buffer behind its end.
func TestSamplesThatGrow(t *testing.T) {
	s := newServer(wiring{})
	d := s.Devices[0].(*server.Device)
	runs(s, d, []nvml.ProcessInfo{{Pid: 7}}, nil, nil)
	d.GetProcessUtilizationFunc = func(uint64) ([]usage, nvml.Return) {
		n := 5
		return make([]usage, 2)[:n], nvml.ERROR_INSUFFICIENT_SIZE
	}
	if diff := cmp.Diff([]Process{{PID: 7}}, mustSample(t, mustOpen(t, s), d.UUID).Processes); diff != "" {
		t.Error(diff)
	}
}

// For any answer of the driver, the list names processes once and in order, and their parts are parts.
func TestProcessesOfAnyAnswer(t *testing.T) {
	s := newServer(wiring{})
	d := s.Devices[0].(*server.Device)
	l := mustOpen(t, s)
	now := micros(time.Now())
	pid := rapid.SampledFrom([]uint32{0, 1, 2, 3, math.MaxInt32, math.MaxInt32 + 1, none32})
	memory := rapid.SampledFrom([]uint64{0, 1, 1 << 40, math.MaxInt64, none64 - 1, none64})
	percent := rapid.SampledFrom([]uint32{0, 1, 50, 100, 101, none32})
	stamp := rapid.SampledFrom([]uint64{0, 1, now - 20_000_000, now - 1, now, now + 1<<40, none64})
	infos := rapid.SliceOfN(rapid.Custom(func(t *rapid.T) nvml.ProcessInfo {
		return nvml.ProcessInfo{Pid: pid.Draw(t, "pid"), UsedGpuMemory: memory.Draw(t, "memory")}
	}), 0, 6)
	samples := rapid.SliceOfN(rapid.Custom(func(t *rapid.T) usage {
		return at(pid.Draw(t, "pid"), stamp.Draw(t, "time"), percent.Draw(t, "sm"), percent.Draw(t, "memory"))
	}), 0, 8)
	rapid.Check(t, func(rt *rapid.T) {
		runs(s, d, infos.Draw(rt, "compute"), infos.Draw(rt, "clients"), nil)
		list := samples.Draw(rt, "samples")
		ret := rapid.SampledFrom([]nvml.Return{nvml.SUCCESS, nvml.ERROR_NOT_FOUND, nvml.ERROR_INSUFFICIENT_SIZE}).Draw(rt, "ret")
		d.GetProcessUtilizationFunc = func(uint64) ([]usage, nvml.Return) { return list, ret }
		got, err := l.Sample(d.UUID)
		if err != nil {
			rt.Fatal(err)
		}
		if !slices.IsSortedFunc(got.Processes, func(a, b Process) int { return a.PID - b.PID }) {
			rt.Fatalf("not in order: %+v", got.Processes)
		}
		for i, p := range got.Processes {
			if p.PID <= 0 || p.PID > math.MaxInt32 || i > 0 && p.PID == got.Processes[i-1].PID {
				rt.Fatalf("PID of %+v", p)
			}
			if p.Memory < 0 || p.SM < 0 || p.SM > 1 || p.MemoryBandwidth < 0 || p.MemoryBandwidth > 1 || !p.Measured && p.SM != 0 {
				rt.Fatalf("%+v", p)
			}
		}
		if l.sampled[d.UUID] > micros(time.Now().Add(clockSlack)) {
			rt.Fatalf("the last sample is in the future: %d", l.sampled[d.UUID])
		}
	})
}
