package nvml

import (
	"cmp"
	"math"
	"path"
	"slices"
	"strings"
	"time"

	"github.com/NVIDIA/go-nvml/pkg/nvml"

	"github.com/tandem-gpu/tandem/pkg/vgpu"
)

// Process has a CUDA context on a device: a client of MPS, the MPS server, or a program outside of MPS.
type Process struct {
	// PID in the PID namespace of the driver, which is the host's.
	PID int
	// Memory is the use of the process on the device; that of the MPS server may be the sum of its clients. 0 where the
	// driver reports none.
	Memory vgpu.Bytes
	// SM and MemoryBandwidth are its parts of the device's time since the last Sample: 0 to 1, the mean of the driver's
	// samples of it. A period in which it did nothing has no sample, so a process that works now and then is
	// overestimated by the time between (read, not measured).
	SM, MemoryBandwidth float64
	// Measured says that a new utilisation sample named this PID. Otherwise SM and MemoryBandwidth are 0: the process
	// did nothing, or the driver reports only the MPS server.
	Measured bool
	// Server says that it is the MPS server.
	Server bool
}

// mpsPrefix begins the names of the programs of MPS. The server is the only one that has a context.
const mpsPrefix = "nvidia-cuda-mps-"

// processes joins the list of compute processes and that of the clients of MPS. A process may be in one list twice, or
// in both: its memory is the larger amount, not the sum.
func (l *Library) processes(h nvml.Device) []Process {
	byPID := map[int]*Process{}
	add := func(list []nvml.ProcessInfo) {
		for _, info := range list {
			// 0 stands for processes without a visible PID, for example of another virtual machine.
			if info.Pid == 0 || info.Pid > math.MaxInt32 {
				continue
			}
			p := byPID[int(info.Pid)]
			if p == nil {
				p = &Process{PID: int(info.Pid)}
				byPID[p.PID] = p
			}
			// An unknown amount is the greatest number, which usedOf leaves out.
			p.Memory = max(p.Memory, usedOf(info.UsedGpuMemory, math.MaxInt64))
		}
	}
	compute, clients := l.computeProcesses(h), l.mpsClients(h)
	add(compute)
	add(clients)
	list := make([]Process, 0, len(byPID))
	for _, p := range byPID {
		list = append(list, *p)
	}
	slices.SortFunc(list, func(a, b Process) int { return cmp.Compare(a.PID, b.PID) })
	l.markServer(list, clients)
	return list
}

// markServer finds the MPS server by its name. If no name is readable, the server is the one process that is no client
// while there are clients.
func (l *Library) markServer(list []Process, clients []nvml.ProcessInfo) {
	others := make([]int, 0, 1)
	for i, p := range list {
		if !slices.ContainsFunc(clients, func(c nvml.ProcessInfo) bool { return int(c.Pid) == p.PID }) {
			others = append(others, i)
		}
	}
	unnamed := 0
	for _, i := range others {
		name, ok := l.processName(list[i].PID)
		list[i].Server = ok && strings.HasPrefix(name, mpsPrefix)
		if !ok {
			unnamed++
		}
	}
	if len(others) == 1 && unnamed == 1 && len(clients) > 0 {
		list[others[0]].Server = true
	}
}

// processName returns the file name of the program that a process runs.
func (l *Library) processName(pid int) (string, bool) {
	if !l.has("nvmlSystemGetProcessName") {
		return "", false
	}
	line, ret := l.api.SystemGetProcessName(pid)
	words := strings.Fields(line)
	if ret != nvml.SUCCESS || len(words) == 0 {
		return "", false
	}
	return path.Base(words[0]), true
}

func (l *Library) computeProcesses(h nvml.Device) []nvml.ProcessInfo {
	if !l.hasVersion("nvmlDeviceGetComputeRunningProcesses") {
		return nil
	}
	list, ret := h.GetComputeRunningProcesses()
	if ret != nvml.SUCCESS {
		return nil
	}
	return list
}

func (l *Library) mpsClients(h nvml.Device) []nvml.ProcessInfo {
	if !l.hasVersion("nvmlDeviceGetMPSComputeRunningProcesses") {
		return nil
	}
	list, ret := h.GetMPSComputeRunningProcesses()
	if ret != nvml.SUCCESS {
		return nil
	}
	return list
}

// hasVersion looks for the forms of a call of which go-nvml takes the newest that is there.
func (l *Library) hasVersion(symbol string) bool {
	return l.has(symbol+"_v3") || l.has(symbol+"_v2") || l.has(symbol)
}

const (
	// firstWindow is how far back the first Sample of a device looks: the driver keeps samples of minutes.
	firstWindow = 10 * time.Second
	// clockSlack is how far a sample may be ahead of this process's clock. A sample that is further ahead comes from
	// before a step back of the clock.
	clockSlack = time.Second
)

// usage is one utilisation sample of one process.
type usage = nvml.ProcessUtilizationSample

// measure adds the utilisation since the last call for the same device. MIG instances have none (nvml.h).
func (l *Library) measure(t target, list []Process) {
	if t.device != t.gpu || len(list) == 0 || !l.has("nvmlDeviceGetProcessUtilization") {
		return
	}
	// Time stamps are microseconds of the wall clock, in the driver too (seen in go-nvml #51 and nvtop #110).
	now := time.Now()
	l.mu.Lock()
	since := l.sampled[t.parent]
	l.mu.Unlock()
	if since > micros(now.Add(clockSlack)) {
		// The clock went back. No sample would be newer than the last one until the clock has caught up.
		since = 0
	}
	all, ret := utilisation(t.gpu, since)
	if ret != nvml.SUCCESS {
		return
	}
	samples, newest := recent(all, since, now)
	if newest > 0 {
		l.mu.Lock()
		l.sampled[t.parent] = newest
		l.mu.Unlock()
	}
	for i := range list {
		list[i].SM, list[i].MemoryBandwidth, list[i].Measured = mean(samples, list[i].PID)
	}
}

func micros(t time.Time) uint64 { return uint64(max(t.UnixMicro(), 0)) }

// recent returns the samples that are new and make sense, and the time of the newest, 0 if there is none.
func recent(all []usage, since uint64, now time.Time) (list []usage, newest uint64) {
	ahead := micros(now.Add(clockSlack))
	for _, s := range all {
		// Drivers fill up their answer with empty entries, and with old ones.
		if s.Pid == 0 || s.TimeStamp <= since || s.TimeStamp > ahead {
			continue
		}
		if s.SmUtil > maxPercent || s.MemUtil > maxPercent {
			continue
		}
		list = append(list, s)
		newest = max(newest, s.TimeStamp)
	}
	if window := uint64(firstWindow.Microseconds()); since == 0 && newest > window {
		list = slices.DeleteFunc(list, func(s usage) bool { return s.TimeStamp < newest-window })
	}
	return list, newest
}

// mean returns the average over the samples of one process. Example: 30 % and 50 % make 0.4.
func mean(samples []usage, pid int) (sm, memory float64, found bool) {
	n := 0
	for _, s := range samples {
		if int(s.Pid) == pid {
			n++
			sm += ratio(s.SmUtil)
			memory += ratio(s.MemUtil)
		}
	}
	if n == 0 {
		return 0, 0, false
	}
	return sm / float64(n), memory / float64(n), true
}

// utilisation reads the samples since a time. go-nvml first reads the number and then that many samples; with more by
// then it cuts its buffer behind its end (v0.13.4, GetProcessUtilization). The next call reads them.
func utilisation(h nvml.Device, since uint64) (list []usage, ret nvml.Return) {
	defer func() {
		if recover() != nil {
			list, ret = nil, nvml.ERROR_INSUFFICIENT_SIZE
		}
	}()
	return h.GetProcessUtilization(since)
}
