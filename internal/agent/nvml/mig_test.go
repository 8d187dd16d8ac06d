package nvml

import (
	"strings"
	"testing"

	"github.com/NVIDIA/go-nvml/pkg/nvml"
	"github.com/NVIDIA/go-nvml/pkg/nvml/mock"
	"github.com/NVIDIA/go-nvml/pkg/nvml/mock/dgxa100"
	"github.com/NVIDIA/go-nvml/pkg/nvml/mock/server"

	"github.com/tandem-gpu/tandem/pkg/vgpu"
	"github.com/tandem-gpu/tandem/test/must"
)

// migDevice is a MIG device of an A100 with 40 GB. Its name is that of the GPU where profile is empty.
func migDevice(uuid, profile string, gi, ci int, memory uint64) *mock.Device {
	name := "NVIDIA A100-SXM4-40GB"
	if profile != "" {
		name += " MIG " + profile
	}
	return &mock.Device{
		GetUUIDFunc:              func() (string, nvml.Return) { return uuid, nvml.SUCCESS },
		GetNameFunc:              func() (string, nvml.Return) { return name, nvml.SUCCESS },
		GetGpuInstanceIdFunc:     func() (int, nvml.Return) { return gi, nvml.SUCCESS },
		GetComputeInstanceIdFunc: func() (int, nvml.Return) { return ci, nvml.SUCCESS },
		GetMemoryInfoFunc:        func() (nvml.Memory, nvml.Return) { return nvml.Memory{Total: memory, Used: 1 << 30}, nvml.SUCCESS },
		GetMemoryInfo_v2Func: func() (nvml.Memory_v2, nvml.Return) {
			return nvml.Memory_v2{Total: memory, Used: 1 << 30}, nvml.SUCCESS
		},
		GetUtilizationRatesFunc: func() (nvml.Utilization, nvml.Return) {
			return nvml.Utilization{}, nvml.ERROR_NOT_SUPPORTED
		},
		GetComputeRunningProcessesFunc: func() ([]nvml.ProcessInfo, nvml.Return) {
			return []nvml.ProcessInfo{{Pid: 7, UsedGpuMemory: 1 << 30}}, nvml.SUCCESS
		},
		GetMPSComputeRunningProcessesFunc: func() ([]nvml.ProcessInfo, nvml.Return) { return nil, nvml.SUCCESS },
	}
}

// splitIn puts a GPU of a mock in MIG mode.
func splitIn(d *server.Device, instances ...*mock.Device) {
	d.MigMode = nvml.DEVICE_MIG_ENABLE
	d.GetMaxMigDeviceCountFunc = func() (int, nvml.Return) { return 7, nvml.SUCCESS }
	d.GetMigDeviceHandleByIndexFunc = func(i int) (nvml.Device, nvml.Return) {
		if i >= len(instances) || instances[i] == nil {
			return nil, nvml.ERROR_NOT_FOUND
		}
		return instances[i], nvml.SUCCESS
	}
}

func TestMIGInstancesAreDevicesAfterTheGPUs(t *testing.T) {
	s := newServer(wiring{lanes: 2, level: nvml.TOPOLOGY_SINGLE})
	// Not in the order of their numbers, with holes, and one that a driver before r470 names.
	two, six := s.Devices[2].(*server.Device), s.Devices[6].(*server.Device)
	splitIn(six, migDevice("MIG-c", "3g.20gb", 1, 0, 20<<30), nil, migDevice("MIG-GPU-6/9/0", "1g.5gb", 9, 0, 5<<30))
	splitIn(two, migDevice("MIG-b", "1g.5gb", 5, 0, 5<<30), nil, migDevice("MIG-a", "2g.10gb", 3, 0, 10<<30))
	list := devices(t, s)
	if len(list) != 6+3 {
		t.Fatalf("%d devices, want the 6 GPUs that are whole and 3 instances", len(list))
	}
	for i, d := range list[:6] {
		if d.Parent != "" || len(d.Links) != 5 {
			t.Errorf("GPU %d: parent %q, %d links, want none and 5", i, d.Parent, len(d.Links))
		}
	}
	for i, want := range []Device{
		{UUID: "MIG-a", Index: 8, Minor: 2, Parent: two.UUID, GI: 3, Profile: "2g.10gb", Memory: 10 << 30},
		{UUID: "MIG-b", Index: 9, Minor: 2, Parent: two.UUID, GI: 5, Profile: "1g.5gb", Memory: 5 << 30},
		{UUID: "MIG-c", Index: 10, Minor: 6, Parent: six.UUID, GI: 1, Profile: "3g.20gb", Memory: 20 << 30},
	} {
		d := list[6+i]
		if d.UUID != want.UUID || d.Index != want.Index || d.Minor != want.Minor || d.Parent != want.Parent || d.GI != want.GI ||
			d.CI != 0 || d.Profile != want.Profile || d.Memory != want.Memory || d.Model != "Mock-NVIDIA-A100-SXM4-40GB-MIG-"+want.Profile ||
			d.Links != nil || !d.Health.OK() || d.Capability != (Capability{8, 0}) || d.PCIBusID == "" || d.NUMANode < 0 {
			t.Errorf("instance %d is %+v, want %+v", i, d, want)
		}
	}
}

func TestProfileWithoutAName(t *testing.T) {
	l, err := open(dgxa100.New())
	must.OK(t, err)
	for name, test := range map[string]struct {
		gi, ci uint32
		ret    nvml.Return
		memory vgpu.Bytes
		want   string
	}{
		"whole instance":   {1, 1, nvml.SUCCESS, 4864 << 20, "1g.5gb"},
		"part of one":      {3, 1, nvml.SUCCESS, 19968 << 20, "1c.3g.20gb"},
		"all of it":        {7, 7, nvml.SUCCESS, 40192 << 20, "7g.40gb"},
		"slices not told":  {0, 0, nvml.ERROR_NOT_SUPPORTED, 9984 << 20, "10gb"},
		"slices are zeros": {0, 0, nvml.SUCCESS, 9984 << 20, "10gb"},
		"no memory at all": {1, 1, nvml.SUCCESS, 0, "1g.0gb"},
	} {
		d := migDevice("MIG-a", "", 0, 0, 0)
		d.GetAttributesFunc = func() (nvml.DeviceAttributes, nvml.Return) {
			return nvml.DeviceAttributes{GpuInstanceSliceCount: test.gi, ComputeInstanceSliceCount: test.ci}, test.ret
		}
		// Programs see 40340 of the A100's 40960 MiB.
		if got := l.profile(40340<<20, test.memory, d); got != test.want {
			t.Errorf("%s: %q, want %q", name, got, test.want)
		}
	}
}

func TestInstanceModelFitsALabel(t *testing.T) {
	long := strings.Repeat("x", maxModel)
	for _, test := range []struct{ gpu, profile, want string }{
		{"NVIDIA-A100-SXM4-40GB", "1g.5gb", "NVIDIA-A100-SXM4-40GB-MIG-1g.5gb"},
		{"H100", "1g.10gb+me", "H100-MIG-1g.10gb.me"},
		{long, "1c.3g.20gb", long[:maxModel-15] + "-MIG-1c.3g.20gb"},
		{"A", long, ("-MIG-" + long)[:maxModel]},
	} {
		if got := instanceModel(test.gpu, test.profile); got != test.want || len(got) > maxModel {
			t.Errorf("%q, want %q", got, test.want)
		}
	}
}

func TestMIGInstanceIsAsUnhealthyAsItsGPU(t *testing.T) {
	s := newServer(wiring{})
	gpu := s.Devices[2].(*server.Device)
	instances := []*mock.Device{migDevice("MIG-a", "3g.20gb", 1, 0, 20<<30), migDevice("MIG-b", "3g.20gb", 2, 0, 20<<30)}
	splitIn(gpu, instances...)
	l, err := open(s)
	must.OK(t, err)
	if h := l.Health("MIG-a"); h.Reason != Lost {
		t.Errorf("an instance that was never listed: %+v", h)
	}
	if _, err := l.Devices(); err != nil {
		t.Fatal(err)
	}
	if h := l.Health("MIG-a"); !h.OK() {
		t.Errorf("healthy instance: %+v", h)
	}
	gpu.GetTotalEccErrorsFunc = ecc(1)
	for _, uuid := range []string{"MIG-a", "MIG-b"} {
		if h := l.Health(uuid); h.Reason != ECCUncorrected {
			t.Errorf("%s of a GPU with a memory error: %+v", uuid, h)
		}
	}
	gpu.GetTotalEccErrorsFunc = ecc(0)
	instances[1] = nil
	if h := l.Health("MIG-b"); h.Reason != Lost {
		t.Errorf("instance that was destroyed: %+v", h)
	}
	if h := l.Health("MIG-a"); !h.OK() {
		t.Errorf("the instance that is left: %+v", h)
	}
}

func TestLostGPUKeepsItsInstances(t *testing.T) {
	s := newServer(wiring{})
	splitIn(s.Devices[2].(*server.Device), migDevice("MIG-a", "3g.20gb", 1, 0, 20<<30))
	l, err := open(s)
	must.OK(t, err)
	if _, err := l.Devices(); err != nil {
		t.Fatal(err)
	}
	lose(s, 2)
	list, err := l.Devices()
	must.OK(t, err)
	if d := list[len(list)-1]; len(list) != 8 || d.UUID != "MIG-a" || d.Health.Reason != Lost || d.Index != 8 {
		t.Errorf("%d devices, the last %+v", len(list), d)
	}
	if h := l.Health("MIG-a"); h.Reason != Lost {
		t.Errorf("instance of a lost GPU: %+v", h)
	}
}

func TestSampleOfAnInstance(t *testing.T) {
	s := newServer(wiring{})
	gpu := s.Devices[2].(*server.Device)
	splitIn(gpu, migDevice("MIG-a", "3g.20gb", 1, 0, 20<<30))
	l, err := open(s)
	must.OK(t, err)
	if _, err := l.Devices(); err != nil {
		t.Fatal(err)
	}
	gpu.GetProcessUtilizationFunc = func(uint64) ([]usage, nvml.Return) {
		t.Error("asked a GPU in MIG mode for the utilisation of its processes")
		return nil, nvml.ERROR_NOT_SUPPORTED
	}
	got, err := l.Sample("MIG-a")
	must.OK(t, err)
	if got.MemoryUsed != 1<<30 || got.Temperature != 41 || got.Power != 97.5 || got.SM != 0 ||
		len(got.Processes) != 1 || got.Processes[0].PID != 7 {
		t.Errorf("%+v, want memory and processes of the instance, temperature and power of the GPU", got)
	}
}
