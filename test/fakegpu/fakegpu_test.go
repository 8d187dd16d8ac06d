package fakegpu_test

import (
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"testing"

	"github.com/NVIDIA/go-nvml/pkg/nvml"
	"github.com/google/go-cmp/cmp"

	"github.com/tandem-gpu/tandem/test/fakegpu"
	"github.com/tandem-gpu/tandem/test/must"
)

func TestMain(m *testing.M) { os.Exit(fakegpu.Run(m)) }

// write makes a state file and has the library read it.
func write(t *testing.T, s fakegpu.State) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "state.json")
	must.OK(t, s.Write(path))
	t.Setenv(fakegpu.StateVariable, path)
	return path
}

func node(t *testing.T, profile string, count int) fakegpu.State {
	t.Helper()
	s, err := fakegpu.Node("n1", profile, count)
	must.OK(t, err)
	return s
}

// open initialises the library.
func open(t *testing.T) nvml.Interface {
	t.Helper()
	lib := nvml.New()
	want(t, "Init", lib.Init(), nvml.SUCCESS)
	t.Cleanup(func() { want(t, "Shutdown", lib.Shutdown(), nvml.SUCCESS) })
	return lib
}

func want(t *testing.T, call string, got, want nvml.Return) {
	t.Helper()
	if got != want {
		t.Fatalf("%s: return code %d, want %d", call, got, want)
	}
}

func handle(t *testing.T, lib nvml.Interface, index int) nvml.Device {
	t.Helper()
	h, ret := lib.DeviceGetHandleByIndex(index)
	want(t, "DeviceGetHandleByIndex", ret, nvml.SUCCESS)
	return h
}

// TestLayout reads every structure through the code that is compiled against NVIDIA's header. A field out of place
// would show as a wrong number.
func TestLayout(t *testing.T) {
	s := node(t, "A100", 2)
	d := &s.Devices[1]
	d.UsedMemory, d.GPUUtilization, d.MemoryUtilization, d.UncorrectedECC = 7<<20, 81, 42, 1<<40
	d.Processes = []fakegpu.Process{{PID: 11, Memory: 1 << 33}, {PID: 12, Memory: 3}}
	path := write(t, s)
	lib := open(t)
	h := handle(t, lib, 1)

	memory, ret := h.GetMemoryInfo()
	want(t, "GetMemoryInfo", ret, nvml.SUCCESS)
	held := d.UsedMemory + 1<<33 + 3
	used := d.Reserved + held
	if diff := cmp.Diff(nvml.Memory{Total: d.Memory, Free: d.Memory - used, Used: used}, memory); diff != "" {
		t.Error(diff)
	}
	memory2, ret := h.GetMemoryInfo_v2()
	want(t, "GetMemoryInfo_v2", ret, nvml.SUCCESS)
	if diff := cmp.Diff(nvml.Memory_v2{
		Version: nvml.STRUCT_VERSION(nvml.Memory_v2{}, 2), Total: d.Memory, Reserved: d.Reserved, Free: d.Memory - used, Used: held,
	}, memory2); diff != "" {
		t.Error(diff)
	}
	info, ret := h.GetPciInfo()
	want(t, "GetPciInfo", ret, nvml.SUCCESS)
	if got := text(info.BusId[:]); got != d.PCIBusID || info.Bus != 15 || text(info.BusIdLegacy[:]) != "0000:0F:00.0" {
		t.Errorf("PCI %q, bus %d, legacy %q; want %q, 15, 0000:0F:00.0", got, info.Bus, text(info.BusIdLegacy[:]), d.PCIBusID)
	}
	rates, ret := h.GetUtilizationRates()
	want(t, "GetUtilizationRates", ret, nvml.SUCCESS)
	if diff := cmp.Diff(nvml.Utilization{Gpu: 81, Memory: 42}, rates); diff != "" {
		t.Error(diff)
	}
	ecc, ret := h.GetTotalEccErrors(nvml.MEMORY_ERROR_TYPE_UNCORRECTED, nvml.VOLATILE_ECC)
	want(t, "GetTotalEccErrors", ret, nvml.SUCCESS)
	if ecc != 1<<40 {
		t.Errorf("%d ECC errors, want %d", ecc, 1<<40)
	}
	processes, ret := h.GetComputeRunningProcesses()
	want(t, "GetComputeRunningProcesses", ret, nvml.SUCCESS)
	if diff := cmp.Diff([]nvml.ProcessInfo{
		{Pid: 11, UsedGpuMemory: 1 << 33, GpuInstanceId: none, ComputeInstanceId: none},
		{Pid: 12, UsedGpuMemory: 3, GpuInstanceId: none, ComputeInstanceId: none},
	}, processes); diff != "" {
		t.Error(diff)
	}
	checkEvent(t, lib, h, path)
}

func text(chars []int8) string {
	var b strings.Builder
	for _, c := range chars {
		if c == 0 {
			break
		}
		b.WriteByte(byte(c))
	}
	return b.String()
}

func checkEvent(t *testing.T, lib nvml.Interface, h nvml.Device, path string) {
	t.Helper()
	set, ret := lib.EventSetCreate()
	want(t, "EventSetCreate", ret, nvml.SUCCESS)
	defer func() { want(t, "Free", set.Free(), nvml.SUCCESS) }()
	want(t, "RegisterEvents", h.RegisterEvents(nvml.EventTypeXidCriticalError, set), nvml.SUCCESS)
	must.OK(t, fakegpu.Update(path, func(s *fakegpu.State) {
		// The set waits for device 1 only.
		s.Events = append(s.Events, fakegpu.Event{Device: 0, XID: 31}, fakegpu.Event{Device: 1, XID: 79})
	}))
	event, ret := set.Wait(10_000)
	want(t, "Wait", ret, nvml.SUCCESS)
	if event.EventType != nvml.EventTypeXidCriticalError || event.EventData != 79 || event.GpuInstanceId != 0xFFFFFFFF || event.Device != h {
		t.Errorf("event %+v, want XID 79 on device 1", event)
	}
	_, ret = set.Wait(0)
	want(t, "second Wait", ret, nvml.ERROR_TIMEOUT)
}

func TestComputeModeIsSeenByEveryProcess(t *testing.T) {
	s := node(t, "T4", 1)
	path := write(t, s)
	h := handle(t, open(t), 0)
	want(t, "SetComputeMode", h.SetComputeMode(nvml.COMPUTEMODE_EXCLUSIVE_PROCESS), nvml.SUCCESS)
	mode, ret := h.GetComputeMode()
	want(t, "GetComputeMode", ret, nvml.SUCCESS)
	if mode != nvml.COMPUTEMODE_EXCLUSIVE_PROCESS {
		t.Errorf("mode %d", mode)
	}
	// It outlives the process because it stands beside the state file.
	if raw, err := os.ReadFile(path + "." + s.Devices[0].UUID + ".compute-mode"); err != nil || string(raw) != "3" {
		t.Errorf("%q, %v", raw, err)
	}
	want(t, "bad mode", h.SetComputeMode(9), nvml.ERROR_INVALID_ARGUMENT)
}

func TestBadStateIsAnErrorCode(t *testing.T) {
	path := write(t, node(t, "T4", 1))
	lib := open(t)
	h := handle(t, lib, 0)
	for name, raw := range map[string]string{
		"no JSON":         "{",
		"unknown field":   `{"devices": [{"lsot": true}]}`,
		"link to nowhere": `{"devices": [{"nvlinks": [{"peer": 3}]}]}`,
		"strange event":   `{"events": [{"device": 0}]}`,
	} {
		must.OK(t, os.WriteFile(path, []byte(raw), 0o644))
		_, ret := h.GetUUID()
		want(t, name, ret, nvml.ERROR_UNKNOWN)
	}
	must.OK(t, os.Remove(path))
	_, ret := lib.DeviceGetCount()
	want(t, "no file", ret, nvml.ERROR_UNKNOWN)
	must.OK(t, (fakegpu.State{}).Write(path))
	_, ret = h.GetUUID()
	want(t, "device is gone", ret, nvml.ERROR_GPU_IS_LOST)
}

func TestWithoutStateThereIsNoDriver(t *testing.T) {
	t.Setenv(fakegpu.StateVariable, filepath.Join(t.TempDir(), "absent.json"))
	lib := nvml.New()
	want(t, "Init", lib.Init(), nvml.ERROR_DRIVER_NOT_LOADED)
	if got := nvml.ErrorString(nvml.ERROR_DRIVER_NOT_LOADED); got != "Driver Not Loaded" {
		t.Errorf("ErrorString gives %q", got)
	}
	_, ret := lib.DeviceGetCount()
	want(t, "DeviceGetCount", ret, nvml.ERROR_UNINITIALIZED)
}

func TestManyCallersAtOnce(t *testing.T) {
	s := node(t, "A100", 8)
	path := write(t, s)
	lib := open(t)
	var wg sync.WaitGroup
	for g := range 200 {
		wg.Go(func() {
			for i := range 20 {
				h, ret := lib.DeviceGetHandleByIndex((g + i) % 8)
				if ret != nvml.SUCCESS {
					t.Errorf("handle: %d", ret)
					return
				}
				if uuid, ret := h.GetUUID(); ret != nvml.SUCCESS || uuid != s.Devices[(g+i)%8].UUID {
					t.Errorf("UUID %q, %d", uuid, ret)
					return
				}
			}
		})
	}
	for range 20 {
		runtime.GC()
		must.OK(t, s.Write(path))
	}
	wg.Wait()
}

func TestUUIDsDependOnNodeAndIndexOnly(t *testing.T) {
	a, b := node(t, "A100", 2), node(t, "T4", 2)
	if a.Devices[0].UUID != b.Devices[0].UUID || a.Devices[0].UUID == a.Devices[1].UUID || a.Devices[0].UUID == fakegpu.UUID("n2", 0) {
		t.Errorf("UUIDs %s %s %s", a.Devices[0].UUID, b.Devices[0].UUID, a.Devices[1].UUID)
	}
	ids := map[string]bool{}
	for _, d := range node(t, "T4", fakegpu.MaxDevices).Devices {
		ids[d.UUID], ids[d.PCIBusID] = true, true
	}
	if len(ids) != 2*fakegpu.MaxDevices {
		t.Errorf("%d different UUIDs and bus IDs, want %d", len(ids), 2*fakegpu.MaxDevices)
	}
}

func TestUnknownProfileIsNamed(t *testing.T) {
	if _, err := fakegpu.Node("n1", "A1000", 1); err == nil || !strings.Contains(err.Error(), "A100, H100, T4, V100") {
		t.Errorf("%v, want an error with the profiles", err)
	}
}

func TestStateSurvivesItsFile(t *testing.T) {
	s := node(t, "V100", 8)
	s.Devices[3].MIG = fakegpu.MIG{Enabled: true, Instances: []fakegpu.MIGInstance{{UUID: "MIG-1", Profile: "1g.5gb", Memory: 5 << 30, GI: 7}}}
	s.Devices[3].MPS = fakegpu.MPS{Hang: true, NoStart: true}
	got, err := fakegpu.Load(write(t, s))
	must.OK(t, err)
	if diff := cmp.Diff(s, got); diff != "" {
		t.Error(diff)
	}
}
