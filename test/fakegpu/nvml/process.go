package main

/*
#include "abi.h"
*/
import "C"

import (
	"slices"
	"time"
	"unsafe"

	"github.com/tandem-gpu/tandem/test/fakegpu"
)

// process is a process on a GPU or an instance of it.
type process struct {
	pid    int
	memory uint64
	sm, bw int
	gi, ci C.u32
}

// users are the processes of one device: those without MPS, the MPS server, and its clients.
type users struct {
	alone, clients []process
	server         *process
}

// usersOf reads the processes on the GPU or on the instance. A GPU in MIG mode has those of all its instances.
func usersOf(t target) users {
	u := one(t)
	if t.instance == nil && t.device.MIG.Enabled {
		for i := range t.device.MIG.Instances {
			o := one(target{t.state, t.device, &t.device.MIG.Instances[i]})
			u.alone, u.clients = append(u.alone, o.alone...), append(u.clients, o.clients...)
			if o.server != nil {
				u.alone = append(u.alone, *o.server)
			}
		}
	}
	return u
}

func one(t target) (u users) {
	gi, ci := C.u32(notAvailableInstance), C.u32(notAvailableInstance)
	var alone []fakegpu.Process
	if t.instance != nil {
		gi, ci = C.u32(t.instance.GI), C.u32(t.instance.CI)
	} else {
		alone = slices.Clone(t.device.Processes)
	}
	alone = append(alone, fakegpu.Contexts(theDriver.path(), t.uuid())...)
	said := fakegpu.ReadUsage(theDriver.path(), t.uuid())
	speeds := t.state.Interference.Slow(said.Clients, alone, time.Now())
	for i, p := range alone {
		speed := speeds[len(said.Clients)+i]
		u.alone = append(u.alone, process{
			int(p.PID), p.Memory, fakegpu.Slowed(int(p.SM), speed), fakegpu.Slowed(int(p.MemoryBandwidth), speed), gi, ci,
		})
	}
	if said.Server.PID == 0 {
		return u
	}
	u.server = &process{pid: said.Server.PID, gi: gi, ci: ci}
	if len(said.Clients) > 0 {
		u.server.memory = fakegpu.ServerMemory
	}
	for i, c := range said.Clients {
		p := process{c.PID, c.Memory, fakegpu.Slowed(c.SM, speeds[i]), fakegpu.Slowed(c.Bandwidth, speeds[i]), gi, ci}
		u.clients = append(u.clients, p)
		u.server.sm += p.sm
		u.server.bw += p.bw
	}
	return u
}

// compute is NVML's list of compute processes: under MPS it shows the server, with the memory that it has itself and with
// the utilisation of its clients.
func (u users) compute() []process {
	if u.server == nil {
		return u.alone
	}
	return append(slices.Clone(u.alone), *u.server)
}

// mps is NVML's list of MPS clients.
func (u users) mps() []process { return u.clients }

// active are the processes that utilisation samples name: the MPS server for its clients, as seen on an H100 with driver
// 580.159, or the clients themselves.
func (u users) active(clients bool) []process {
	if clients {
		return append(slices.Clone(u.alone), u.clients...)
	}
	return u.compute()
}

// usedBy returns the memory that processes hold.
func usedBy(t target) (used uint64) {
	u := usersOf(t)
	for _, p := range append(u.compute(), u.clients...) {
		used += p.memory
	}
	return used
}

// nvmlSystemGetProcessName knows the MPS servers, which it names as their program is named, and no other process.
//
//export nvmlSystemGetProcessName
func nvmlSystemGetProcessName(pid C.u32, name *C.char, length C.u32) C.int {
	return withState(func(s *fakegpu.State) C.int {
		for i := range s.Devices {
			uuids := []string{s.Devices[i].UUID}
			for _, m := range s.Devices[i].MIG.Instances {
				uuids = append(uuids, m.UUID)
			}
			for _, uuid := range uuids {
				if server := fakegpu.ReadUsage(theDriver.path(), uuid).Server.PID; server != 0 && server == int(pid) {
					return put(name, length, "nvidia-cuda-mps-server")
				}
			}
		}
		return errNotFound
	})
}

// list writes processes in the caller's array. nvml.h: with too little room it returns the necessary number.
func list[T any](device unsafe.Pointer, count *C.u32, out *T, pick func(users) []process, one func(process) T) C.int {
	return withTarget(device, func(t target) C.int {
		if count == nil {
			return errInvalidArgument
		}
		all := pick(usersOf(t))
		room := *count
		*count = C.u32(len(all))
		if int(room) < len(all) {
			return errInsufficientSize
		}
		if len(all) == 0 {
			return success
		}
		if out == nil {
			return errInvalidArgument
		}
		infos := unsafe.Slice(out, len(all))
		for i, p := range all {
			infos[i] = one(p)
		}
		return success
	})
}

func version1(p process) C.fake_process_v1 {
	return C.fake_process_v1{pid: C.u32(p.pid), memory: C.u64(p.memory)}
}

func version3(p process) C.fake_process {
	return C.fake_process{pid: C.u32(p.pid), memory: C.u64(p.memory), gpuInstance: p.gi, computeInstance: p.ci}
}

//export nvmlDeviceGetComputeRunningProcesses
func nvmlDeviceGetComputeRunningProcesses(device unsafe.Pointer, count *C.u32, infos *C.fake_process_v1) C.int {
	return list(device, count, infos, users.compute, version1)
}

//export nvmlDeviceGetComputeRunningProcesses_v2
func nvmlDeviceGetComputeRunningProcesses_v2(device unsafe.Pointer, count *C.u32, infos *C.fake_process) C.int {
	return list(device, count, infos, users.compute, version3)
}

//export nvmlDeviceGetComputeRunningProcesses_v3
func nvmlDeviceGetComputeRunningProcesses_v3(device unsafe.Pointer, count *C.u32, infos *C.fake_process) C.int {
	return list(device, count, infos, users.compute, version3)
}

//export nvmlDeviceGetMPSComputeRunningProcesses
func nvmlDeviceGetMPSComputeRunningProcesses(device unsafe.Pointer, count *C.u32, infos *C.fake_process_v1) C.int {
	return list(device, count, infos, users.mps, version1)
}

//export nvmlDeviceGetMPSComputeRunningProcesses_v2
func nvmlDeviceGetMPSComputeRunningProcesses_v2(device unsafe.Pointer, count *C.u32, infos *C.fake_process) C.int {
	return list(device, count, infos, users.mps, version3)
}

//export nvmlDeviceGetMPSComputeRunningProcesses_v3
func nvmlDeviceGetMPSComputeRunningProcesses_v3(device unsafe.Pointer, count *C.u32, infos *C.fake_process) C.int {
	return list(device, count, infos, users.mps, version3)
}

// demand sums what processes want of a device, in percent; it can be above 100.
func demand(all []process) (sm, bw int) {
	for _, p := range all {
		sm += p.sm
		bw += p.bw
	}
	return sm, bw
}

//export nvmlDeviceGetUtilizationRates
func nvmlDeviceGetUtilizationRates(device unsafe.Pointer, rates *C.fake_utilization) C.int {
	return withDevice(device, func(s *fakegpu.State, d *fakegpu.Device) C.int {
		if d.MIG.Enabled {
			return errNotSupported
		}
		sm, bw := demand(usersOf(target{s, d, nil}).compute())
		return set(rates, C.fake_utilization{
			gpu: C.u32(min(100, int(d.GPUUtilization)+sm)), memory: C.u32(min(100, int(d.MemoryUtilization)+bw)),
		})
	})
}

// nvmlDeviceGetProcessUtilization gives one sample, of now, for each process that does something.
//
//export nvmlDeviceGetProcessUtilization
func nvmlDeviceGetProcessUtilization(device unsafe.Pointer, samples *C.fake_sample, count *C.u32, since C.u64) C.int {
	return withDevice(device, func(s *fakegpu.State, d *fakegpu.Device) C.int {
		if count == nil {
			return errInvalidArgument
		}
		if d.MIG.Enabled {
			return errNotSupported
		}
		now := C.u64(time.Now().UnixMicro())
		all := samplesOf(usersOf(target{s, d, nil}).active(s.ClientSamples), now)
		if len(all) == 0 || now <= since {
			return errNotFound
		}
		room := *count
		*count = C.u32(len(all))
		if samples == nil || int(room) < len(all) {
			return errInsufficientSize
		}
		copy(unsafe.Slice(samples, len(all)), all)
		return success
	})
}

// samplesOf leaves out idle processes, and gives each its part of 100 where together they want more.
func samplesOf(all []process, now C.u64) (samples []C.fake_sample) {
	sm, bw := demand(all)
	for _, p := range all {
		if p.sm != 0 || p.bw != 0 {
			samples = append(samples, C.fake_sample{
				pid: C.u32(p.pid), timestamp: now, sm: C.u32(p.sm * 100 / max(100, sm)), memory: C.u32(p.bw * 100 / max(100, bw)),
			})
		}
	}
	return samples
}
