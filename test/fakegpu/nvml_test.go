package fakegpu_test

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/NVIDIA/go-nvlib/pkg/nvlib/device"
	"github.com/NVIDIA/go-nvml/pkg/nvml"
	"github.com/google/go-cmp/cmp"

	"github.com/tandem-gpu/tandem/test/fakegpu"
	"github.com/tandem-gpu/tandem/test/must"
)

const none = 0xFFFFFFFF

func TestNVMLFollowsTheClients(t *testing.T) {
	g := newGPU(t)
	api := open(t)
	h := handle(t, api, 0)
	g.dial(fakegpu.ClientLoad{PID: 70, Memory: 2 << 30, SM: 30, Bandwidth: 20})
	c := g.dial(fakegpu.ClientLoad{PID: 71, Memory: 1 << 30, SM: 25, Bandwidth: 5})
	// A second context of the same process, and a client that does nothing.
	g.dial(fakegpu.ClientLoad{PID: 70, Memory: 1 << 30, SM: 5})
	g.dial(fakegpu.ClientLoad{PID: 72})
	g.order(func(d *fakegpu.Device) { d.Processes = []fakegpu.Process{{PID: 9, Memory: 1 << 30, SM: 10}} })

	compute, ret := h.GetComputeRunningProcesses()
	want(t, "GetComputeRunningProcesses", ret, nvml.SUCCESS)
	process := func(pid int, memory uint64) nvml.ProcessInfo {
		return nvml.ProcessInfo{Pid: uint32(pid), UsedGpuMemory: memory, GpuInstanceId: none, ComputeInstanceId: none}
	}
	if diff := cmp.Diff([]nvml.ProcessInfo{process(9, 1<<30), process(c.Server(), fakegpu.ServerMemory)}, compute); diff != "" {
		t.Error("compute:", diff)
	}
	clients, ret := h.GetMPSComputeRunningProcesses()
	want(t, "GetMPSComputeRunningProcesses", ret, nvml.SUCCESS)
	if diff := cmp.Diff([]nvml.ProcessInfo{process(70, 3<<30), process(71, 1<<30), process(72, 0)}, clients); diff != "" {
		t.Error("MPS:", diff)
	}
	// The server is known by its name, before it has a client too.
	if name, ret := api.SystemGetProcessName(c.Server()); ret != nvml.SUCCESS || name != "nvidia-cuda-mps-server" {
		t.Errorf("name of the server: %q, %v", name, ret)
	}
	if _, ret := api.SystemGetProcessName(70); ret != nvml.ERROR_NOT_FOUND {
		t.Errorf("name of a client: %v", ret)
	}
	memory, ret := h.GetMemoryInfo_v2()
	want(t, "GetMemoryInfo_v2", ret, nvml.SUCCESS)
	const used = 5<<30 + fakegpu.ServerMemory
	if memory.Used != used || memory.Free != memory.Total-memory.Reserved-used {
		t.Errorf("memory %+v, want 5 GiB and the server's used", memory)
	}
	checkUtilization(t, h, 70, 25)
	clientSamples := func(named bool) {
		t.Helper()
		must.OK(t, fakegpu.Update(g.state, func(s *fakegpu.State) { s.ClientSamples = named }))
	}
	server := uint32(c.Server())
	checkSamples(t, h, map[uint32][2]uint32{9: {10, 0}, server: {60, 25}})
	clientSamples(true)
	checkSamples(t, h, map[uint32][2]uint32{9: {10, 0}, 70: {35, 20}, 71: {25, 5}})

	// More than there is: each gets its part. 10 + 35 + 55 = 100 is all, 10 + 35 + 155 = 200 is twice.
	must.OK(t, c.Load(fakegpu.ClientLoad{Memory: 1 << 30, SM: 100}))
	g.dial(fakegpu.ClientLoad{PID: 73, SM: 55})
	checkUtilization(t, h, 100, 20)
	checkSamples(t, h, map[uint32][2]uint32{9: {5, 0}, 70: {17, 20}, 71: {50, 0}, 73: {27, 0}})

	clientSamples(false)
	checkSamples(t, h, map[uint32][2]uint32{9: {5, 0}, server: {95, 20}})
	g.expect("terminate_client "+g.server()+" 70", "", 0)
	checkUtilization(t, h, 100, 0)
}

func checkUtilization(t *testing.T, h nvml.Device, sm, bw uint32) {
	t.Helper()
	rates, ret := h.GetUtilizationRates()
	want(t, "GetUtilizationRates", ret, nvml.SUCCESS)
	if diff := cmp.Diff(nvml.Utilization{Gpu: sm, Memory: bw}, rates); diff != "" {
		t.Error(diff)
	}
}

func checkSamples(t *testing.T, h nvml.Device, want map[uint32][2]uint32) {
	t.Helper()
	samples, ret := h.GetProcessUtilization(0)
	if ret != nvml.SUCCESS {
		t.Fatalf("GetProcessUtilization: %d", ret)
	}
	got := map[uint32][2]uint32{}
	var last uint64
	for _, s := range samples {
		got[s.Pid], last = [2]uint32{s.SmUtil, s.MemUtil}, s.TimeStamp
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
	if _, ret := h.GetProcessUtilization(last + 1e9); ret != nvml.ERROR_NOT_FOUND {
		t.Errorf("samples of the future: %d, want %d", ret, nvml.ERROR_NOT_FOUND)
	}
}

func TestSensors(t *testing.T) {
	s := node(t, "A100", 1)
	d := &s.Devices[0]
	d.Temperature, d.PowerMilliwatts, d.ThrottleReasons = 83, 401_250, 0x48
	d.CorrectedECC, d.UncorrectedECC, d.RowRemapFailure, d.RecoveryAction = 5, 1<<33, true, 4
	path := write(t, s)
	h := handle(t, open(t), 0)
	if got, ret := h.GetTemperature(nvml.TEMPERATURE_GPU); got != 83 || ret != nvml.SUCCESS {
		t.Errorf("temperature %d, %d", got, ret)
	}
	if got, ret := h.GetPowerUsage(); got != 401_250 || ret != nvml.SUCCESS {
		t.Errorf("power %d, %d", got, ret)
	}
	if got, ret := h.GetCurrentClocksEventReasons(); got != 0x48 || ret != nvml.SUCCESS {
		t.Errorf("clock reasons %x, %d", got, ret)
	}
	if got, ret := h.GetTotalEccErrors(nvml.MEMORY_ERROR_TYPE_CORRECTED, nvml.VOLATILE_ECC); got != 5 || ret != nvml.SUCCESS {
		t.Errorf("corrected errors %d, %d", got, ret)
	}
	if _, _, pending, failure, ret := h.GetRemappedRows(); pending || !failure || ret != nvml.SUCCESS {
		t.Errorf("remapped rows pending %t, failure %t, %d", pending, failure, ret)
	}
	fields := []nvml.FieldValue{
		{FieldId: nvml.FI_DEV_GET_GPU_RECOVERY_ACTION}, {FieldId: nvml.FI_DEV_ECC_DBE_VOL_TOTAL},
		{FieldId: nvml.FI_DEV_REMAPPED_FAILURE}, {FieldId: nvml.FI_DEV_REMAPPED_PENDING}, {FieldId: nvml.FI_DEV_RETIRED_DBE},
	}
	want(t, "GetFieldValues", h.GetFieldValues(fields), nvml.SUCCESS)
	notSupported := uint32(nvml.ERROR_NOT_SUPPORTED)
	for i, want := range []struct {
		code, kind uint32
		low, high  byte
	}{
		{0, uint32(nvml.VALUE_TYPE_UNSIGNED_INT), 4, 0}, {0, uint32(nvml.VALUE_TYPE_UNSIGNED_LONG_LONG), 0, 2},
		{0, uint32(nvml.VALUE_TYPE_UNSIGNED_INT), 1, 0}, {0, uint32(nvml.VALUE_TYPE_UNSIGNED_INT), 0, 0}, {notSupported, 0, 0, 0},
	} {
		f := fields[i]
		if f.NvmlReturn != want.code || f.ValueType != want.kind || f.Value[0] != want.low || f.Value[4] != want.high {
			t.Errorf("field %d: %+v, want %+v", f.FieldId, f, want)
		}
	}
	must.OK(t, fakegpu.Update(path, func(s *fakegpu.State) { s.Devices[0].NoRecoveryAction = true }))
	want(t, "GetFieldValues", h.GetFieldValues(fields[:1]), nvml.SUCCESS)
	if fields[0].NvmlReturn != notSupported {
		t.Errorf("a driver without recovery actions says %+v", fields[0])
	}
}

// A handle stays with its device, and so do the errors that a process waits for.
func TestDeviceThatMovesKeepsItsHandle(t *testing.T) {
	s := node(t, "A100", 3)
	first := s.Devices[0].UUID
	path := write(t, s)
	lib := open(t)
	h := handle(t, lib, 0)
	set, ret := lib.EventSetCreate()
	want(t, "EventSetCreate", ret, nvml.SUCCESS)
	t.Cleanup(func() { want(t, "Free", set.Free(), nvml.SUCCESS) })
	want(t, "RegisterEvents", h.RegisterEvents(nvml.EventTypeXidCriticalError, set), nvml.SUCCESS)
	change := func(change func(*fakegpu.State)) {
		t.Helper()
		must.OK(t, fakegpu.Update(path, change))
	}
	change(func(s *fakegpu.State) { s.Devices = s.Devices[1:] })
	_, ret = h.GetUUID()
	want(t, "GetUUID of a device that is gone", ret, nvml.ERROR_GPU_IS_LOST)
	change(func(now *fakegpu.State) {
		back := s.Devices[0]
		back.MinorNumber = 7
		now.Devices = append(now.Devices, back)
		now.Events = append(now.Events, fakegpu.Event{Device: 0, XID: 31}, fakegpu.Event{UUID: first, XID: 48})
	})
	if uuid, ret := h.GetUUID(); uuid != first || ret != nvml.SUCCESS {
		t.Errorf("UUID %s, %d, want %s", uuid, ret, first)
	}
	if index, ret := h.GetIndex(); index != 2 || ret != nvml.SUCCESS {
		t.Errorf("index %d, %d, want 2", index, ret)
	}
	if minor, ret := h.GetMinorNumber(); minor != 7 || ret != nvml.SUCCESS {
		t.Errorf("minor %d, %d, want 7", minor, ret)
	}
	event, ret := set.Wait(10_000)
	want(t, "Wait", ret, nvml.SUCCESS)
	if event.EventData != 48 || event.Device != h {
		t.Errorf("event %+v, want XID 48 on the device that moved", event)
	}
}

func migNode(t *testing.T) (fakegpu.State, string) {
	t.Helper()
	s := node(t, "A100", 1)
	s.Devices[0].MIG = fakegpu.MIG{Enabled: true, Instances: []fakegpu.MIGInstance{
		{UUID: "MIG-a", Profile: "3g.20gb", Memory: 19968 << 20, GI: 1},
		{UUID: "MIG-b", Profile: "1g.5gb", Memory: 4864 << 20, GI: 9, CI: 0},
		{UUID: "MIG-c", Profile: "1g.10gb", Memory: 9856 << 20, GI: 5, CI: 0},
	}}
	return s, write(t, s)
}

// NVIDIA's own library lists the instances, with their profiles, as it does for CDI specs.
func TestMIGInstancesAreListedByNVIDIAsLibrary(t *testing.T) {
	s, _ := migNode(t)
	lib := open(t)
	var got []string
	err := device.New(lib).VisitMigDevices(func(i int, d device.Device, j int, m device.MigDevice) error {
		uuid, ret := m.GetUUID()
		want(t, "GetUUID", ret, nvml.SUCCESS)
		gi, ret := m.GetGpuInstanceId()
		want(t, "GetGpuInstanceId", ret, nvml.SUCCESS)
		ci, ret := m.GetComputeInstanceId()
		want(t, "GetComputeInstanceId", ret, nvml.SUCCESS)
		memory, ret := m.GetMemoryInfo()
		want(t, "GetMemoryInfo", ret, nvml.SUCCESS)
		name, ret := m.GetName()
		want(t, "GetName", ret, nvml.SUCCESS)
		profile, err := m.GetProfile()
		if err != nil {
			return err
		}
		got = append(got, fmt.Sprintln(i, j, uuid, gi, ci, memory.Total>>20, name, profile))
		return nil
	})
	must.OK(t, err)
	name := s.Devices[0].Name
	if diff := cmp.Diff([]string{
		fmt.Sprintln(0, 0, "MIG-a", 1, 0, 19968, name+" MIG 3g.20gb", "3g.20gb"),
		fmt.Sprintln(0, 1, "MIG-b", 9, 0, 4864, name+" MIG 1g.5gb", "1g.5gb"),
		fmt.Sprintln(0, 2, "MIG-c", 5, 0, 9856, name+" MIG 1g.10gb", "1g.10gb"),
	}, got); diff != "" {
		t.Error(diff)
	}
}

func TestMIGHandles(t *testing.T) {
	s, path := migNode(t)
	lib := open(t)
	m, ret := lib.DeviceGetHandleByUUID("MIG-b")
	want(t, "DeviceGetHandleByUUID", ret, nvml.SUCCESS)
	if is, ret := m.IsMigDeviceHandle(); !is || ret != nvml.SUCCESS {
		t.Errorf("IsMigDeviceHandle: %t, %d", is, ret)
	}
	parent, ret := m.GetDeviceHandleFromMigDeviceHandle()
	want(t, "GetDeviceHandleFromMigDeviceHandle", ret, nvml.SUCCESS)
	if uuid, ret := parent.GetUUID(); uuid != s.Devices[0].UUID || ret != nvml.SUCCESS {
		t.Errorf("parent %s, %d", uuid, ret)
	}
	_, ret = parent.GetUtilizationRates()
	want(t, "GetUtilizationRates in MIG mode", ret, nvml.ERROR_NOT_SUPPORTED)
	_, ret = m.GetTemperature(nvml.TEMPERATURE_GPU)
	want(t, "GetTemperature of an instance", ret, nvml.ERROR_NOT_SUPPORTED)

	// A daemon of the instance: its clients are on the instance, and on the parent with the instance's IDs.
	g := &gpu{controller: newController(t, "MIG-b"), uuid: "MIG-b", state: path}
	g.expect("", "", 0, "-d")
	g.dial(fakegpu.ClientLoad{PID: 70, Memory: 1 << 30})
	g.refused(fakegpu.ClientLoad{Memory: 4 << 30}, fakegpu.ErrOutOfMemory)
	for name, h := range map[string]nvml.Device{"instance": m, "parent": parent} {
		clients, ret := h.GetMPSComputeRunningProcesses()
		want(t, name, ret, nvml.SUCCESS)
		if diff := cmp.Diff([]nvml.ProcessInfo{{Pid: 70, UsedGpuMemory: 1 << 30, GpuInstanceId: 9}}, clients); diff != "" {
			t.Error(name, diff)
		}
	}
	memory, ret := m.GetMemoryInfo()
	want(t, "GetMemoryInfo", ret, nvml.SUCCESS)
	if memory.Used != 1<<30+fakegpu.ServerMemory || memory.Total != 4864<<20 {
		t.Errorf("memory %+v, want 1 GiB and the server's of 4864 MiB used", memory)
	}
	g.order(func(d *fakegpu.Device) { d.MIG.Instances[1].MPS.Fault = true })
	if got := g.status(); got != "FAULT" {
		t.Errorf("status %s, want FAULT", got)
	}
	g.order(func(d *fakegpu.Device) { d.Lost = true })
	_, ret = m.GetUUID()
	want(t, "instance of a lost device", ret, nvml.ERROR_GPU_IS_LOST)
}

// The loader ends a process that calls a symbol which is not there.
func TestEveryCallOfGoNVMLIsThere(t *testing.T) {
	dir, err := exec.Command("go", "list", "-m", "-f", "{{.Dir}}", "github.com/NVIDIA/go-nvml").Output()
	must.OK(t, err)
	files, err := filepath.Glob(filepath.Join(strings.TrimSpace(string(dir)), "pkg", "nvml", "*.go"))
	if err != nil || len(files) == 0 {
		t.Fatalf("no sources of go-nvml in %s, %v", dir, err)
	}
	write(t, node(t, "T4", 1))
	lib := open(t)
	calls := map[string]bool{}
	pattern := regexp.MustCompile(`(?:C\.|Lookup\(")(nvml[A-Za-z0-9_]+)["(]`)
	for _, file := range files {
		raw, err := os.ReadFile(file)
		must.OK(t, err)
		for _, match := range pattern.FindAllStringSubmatch(string(raw), -1) {
			calls[match[1]] = true
		}
	}
	if len(calls) < 300 {
		t.Errorf("only %d calls found", len(calls))
	}
	for call := range calls {
		if err := lib.Extensions().LookupSymbol(call); err != nil {
			t.Errorf("%s: %v", call, err)
		}
	}
}
