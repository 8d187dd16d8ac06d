package nvml

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/NVIDIA/go-nvml/pkg/nvml"
	"github.com/NVIDIA/go-nvml/pkg/nvml/mock"
	"github.com/NVIDIA/go-nvml/pkg/nvml/mock/dgxa100"
	"github.com/NVIDIA/go-nvml/pkg/nvml/mock/dgxh100"
	"github.com/NVIDIA/go-nvml/pkg/nvml/mock/server"
	"github.com/google/go-cmp/cmp"

	"github.com/tandem-gpu/tandem/pkg/api/v1alpha1"
	"github.com/tandem-gpu/tandem/pkg/vgpu"
	"github.com/tandem-gpu/tandem/test/must"
)

// wiring is what go-nvml's mocks leave open: where the NVLinks of a device end, and the PCIe tree.
type wiring struct {
	// lanes to switches per device.
	lanes int
	p2p   nvml.GpuP2PStatus
	level nvml.GpuTopologyLevel
}

// wire completes a mock of a DGX. Each device gets a bus ID of its own in the form that NVML uses.
func wire(s *server.Server, w wiring) {
	s.SystemGetProcessNameFunc = func(int) (string, nvml.Return) { return "", nvml.ERROR_NOT_FOUND }
	for i, d := range s.Devices {
		m := d.(*server.Device)
		m.GetPciInfoFunc = func() (nvml.PciInfo, nvml.Return) { return pciInfo(i), nvml.SUCCESS }
		m.GetMemoryInfo_v2Func = func() (nvml.Memory_v2, nvml.Return) {
			return nvml.Memory_v2{Total: m.MemoryInfo.Total, Reserved: 620 << 20}, nvml.SUCCESS
		}
		m.GetMemoryAffinityFunc = func(int, nvml.AffinityScope) ([]uint, nvml.Return) {
			return []uint{1 << (i / 4), 0}, nvml.SUCCESS
		}
		m.GetNvLinkStateFunc = func(link int) (nvml.EnableState, nvml.Return) {
			if link >= w.lanes {
				return 0, nvml.ERROR_INVALID_ARGUMENT
			}
			return nvml.FEATURE_ENABLED, nvml.SUCCESS
		}
		m.GetNvLinkRemoteDeviceTypeFunc = func(int) (nvml.IntNvLinkDeviceType, nvml.Return) {
			return nvml.NVLINK_DEVICE_TYPE_SWITCH, nvml.SUCCESS
		}
		m.GetNvLinkRemotePciInfoFunc = func(int) (nvml.PciInfo, nvml.Return) { return pciInfo(200), nvml.SUCCESS }
		m.GetP2PStatusFunc = func(nvml.Device, nvml.GpuP2PCapsIndex) (nvml.GpuP2PStatus, nvml.Return) {
			return w.p2p, nvml.SUCCESS
		}
		m.GetTopologyCommonAncestorFunc = func(nvml.Device) (nvml.GpuTopologyLevel, nvml.Return) {
			return w.level, nvml.SUCCESS
		}
		m.GetTotalEccErrorsFunc = ecc(0)
		m.GetRemappedRowsFunc = func() (int, int, bool, bool, nvml.Return) { return 0, 0, true, false, nvml.SUCCESS }
		m.GetUtilizationRatesFunc = func() (nvml.Utilization, nvml.Return) {
			return nvml.Utilization{Gpu: 80, Memory: 25}, nvml.SUCCESS
		}
		m.GetTemperatureFunc = func(nvml.TemperatureSensors) (uint32, nvml.Return) { return 41, nvml.SUCCESS }
		m.GetPowerUsageFunc = func() (uint32, nvml.Return) { return 97_500, nvml.SUCCESS }
		m.GetCurrentClocksEventReasonsFunc = func() (uint64, nvml.Return) { return 0x1, nvml.SUCCESS }
		m.GetComputeRunningProcessesFunc = func() ([]nvml.ProcessInfo, nvml.Return) { return nil, nvml.SUCCESS }
		m.GetMPSComputeRunningProcessesFunc = m.GetComputeRunningProcessesFunc
	}
}

func pciInfo(i int) nvml.PciInfo {
	var info nvml.PciInfo
	for j, c := range fmt.Sprintf("00000000:%02x:00.0", 0xa0+i%0x40) {
		info.BusId[j] = int8(c)
	}
	return info
}

func devices(t *testing.T, api nvml.Interface) []Device {
	t.Helper()
	l, err := open(api)
	must.OK(t, err)
	list, err := l.Devices()
	must.OK(t, err)
	return list
}

func TestDGXThroughSwitches(t *testing.T) {
	for name, test := range map[string]struct {
		server *server.Server
		lanes  int
		model  string
		cc     Capability
	}{
		"A100": {dgxa100.New(), 12, "Mock-NVIDIA-A100-SXM4-40GB", Capability{8, 0}},
		"H100": {dgxh100.New(), 18, "NVIDIA-H100-80GB-HBM3", Capability{9, 0}},
	} {
		wire(test.server, wiring{lanes: test.lanes, level: nvml.TOPOLOGY_SYSTEM})
		list := devices(t, test.server)
		if len(list) != 8 {
			t.Fatalf("%s: %d devices, want 8", name, len(list))
		}
		d := list[5]
		total := test.server.Devices[5].(*server.Device).MemoryInfo.Total
		if d.Index != 5 || d.Minor != 5 || d.Model != test.model || d.Capability != test.cc || d.NUMANode != 1 ||
			d.PCIBusID != "00000000:A5:00.0" || d.Memory != vgpu.Bytes(total-620<<20) || d.Parent != "" || !d.Health.OK() {
			t.Errorf("%s: %+v", name, d)
		}
		if len(d.Links) != 7 {
			t.Fatalf("%s: %d links, want 7", name, len(d.Links))
		}
		for _, l := range d.Links {
			if l.Type != v1alpha1.LinkNVLink || l.Lanes != test.lanes || l.Peer == d.UUID {
				t.Errorf("%s: link %+v, want NVLink with %d lanes", name, l, test.lanes)
			}
		}
	}
}

// Before the fabric manager runs, the links are up and programs cannot use them.
func TestLinksThatProgramsCannotUse(t *testing.T) {
	s := dgxa100.New()
	wire(s, wiring{lanes: 12, p2p: nvml.P2P_STATUS_NOT_SUPPORTED, level: nvml.TOPOLOGY_NODE})
	for _, l := range devices(t, s)[0].Links {
		if l.Type != v1alpha1.LinkNODE || l.Lanes != 0 {
			t.Errorf("link %+v, want NODE without lanes", l)
		}
	}
}

func TestPCIeLevels(t *testing.T) {
	for level, want := range map[nvml.GpuTopologyLevel]v1alpha1.LinkType{
		nvml.TOPOLOGY_INTERNAL: v1alpha1.LinkPIX, nvml.TOPOLOGY_SINGLE: v1alpha1.LinkPIX,
		nvml.TOPOLOGY_MULTIPLE: v1alpha1.LinkPXB, nvml.TOPOLOGY_HOSTBRIDGE: v1alpha1.LinkPHB,
		nvml.TOPOLOGY_NODE: v1alpha1.LinkNODE, nvml.TOPOLOGY_SYSTEM: v1alpha1.LinkSYS,
	} {
		s := dgxa100.New()
		wire(s, wiring{level: level})
		if got := devices(t, s)[0].Links[0].Type; got != want {
			t.Errorf("level %d is %s, want %s", level, got, want)
		}
	}
}

func TestLanesBetweenTwoDevices(t *testing.T) {
	for name, test := range map[string]struct {
		from, to lanes
		want     int
	}{
		"direct":             {lanes{toDevice: map[string]int{"B": 2, "C": 1}}, lanes{toDevice: map[string]int{"A": 2}}, 2},
		"none":               {lanes{toDevice: map[string]int{"C": 4}}, lanes{}, 0},
		"switch":             {lanes{toSwitch: 12}, lanes{toSwitch: 12}, 12},
		"narrower end":       {lanes{toSwitch: 12}, lanes{toSwitch: 10}, 10},
		"other not on it":    {lanes{toSwitch: 12}, lanes{}, 0},
		"direct wins":        {lanes{toSwitch: 12, toDevice: map[string]int{"B": 4}}, lanes{toSwitch: 12}, 4},
		"direct the one way": {lanes{}, lanes{toDevice: map[string]int{"A": 4}}, 0},
	} {
		if got := between(test.from, test.to, "B"); got != test.want {
			t.Errorf("%s: %d lanes, want %d", name, got, test.want)
		}
	}
}

// An old driver lacks calls. Each of them would end the process, as here it ends the test.
func TestCallsThatAnOldDriverLacks(t *testing.T) {
	s := dgxa100.New()
	wire(s, wiring{lanes: 2, level: nvml.TOPOLOGY_SINGLE})
	young := map[string]bool{
		"nvmlDeviceGetMemoryInfo_v2": true, "nvmlDeviceGetMemoryAffinity": true, "nvmlDeviceGetMigMode": true,
		"nvmlDeviceGetNvLinkRemoteDeviceType": true, "nvmlDeviceGetP2PStatus": true,
	}
	s.LookupSymbolFunc = func(name string) error {
		if young[name] {
			return errors.New("undefined symbol")
		}
		return nil
	}
	for _, d := range s.Devices {
		m := d.(*server.Device)
		m.GetMemoryInfo_v2Func, m.GetMemoryAffinityFunc, m.GetMigModeFunc = nil, nil, nil
		m.GetNvLinkRemoteDeviceTypeFunc, m.GetP2PStatusFunc = nil, nil
	}
	d := devices(t, s)[0]
	if d.Memory != 40960<<20 || d.NUMANode != -1 || d.Parent != "" || d.Links[0].Type != v1alpha1.LinkPIX {
		t.Errorf("%+v", d)
	}
}

func TestNUMANodeIsOneOrNone(t *testing.T) {
	for name, test := range map[string]struct {
		words []uint
		ret   nvml.Return
		want  int
	}{
		"first":         {[]uint{1, 0}, nvml.SUCCESS, 0},
		"second word":   {[]uint{0, 1 << 3}, nvml.SUCCESS, 67},
		"two":           {[]uint{3}, nvml.SUCCESS, -1},
		"two, far away": {[]uint{1, 1}, nvml.SUCCESS, -1},
		"none":          {[]uint{0}, nvml.SUCCESS, -1},
		"not told":      {nil, nvml.ERROR_NOT_SUPPORTED, -1},
	} {
		s := dgxa100.New()
		l, err := open(s)
		must.OK(t, err)
		d := &mock.Device{GetMemoryAffinityFunc: func(int, nvml.AffinityScope) ([]uint, nvml.Return) { return test.words, test.ret }}
		if got := l.numa(d); got != test.want {
			t.Errorf("%s: node %d, want %d", name, got, test.want)
		}
	}
}

func TestLostDeviceKeepsItsNameAndHidesNoOther(t *testing.T) {
	s := dgxa100.New()
	wire(s, wiring{lanes: 12})
	l, err := open(s)
	must.OK(t, err)
	before, err := l.Devices()
	must.OK(t, err)
	whole := s.DeviceGetHandleByIndexFunc
	s.DeviceGetHandleByIndexFunc = func(i int) (nvml.Device, nvml.Return) {
		if i == 3 {
			return nil, nvml.ERROR_GPU_IS_LOST
		}
		return whole(i)
	}
	after, err := l.Devices()
	must.OK(t, err)
	want := before[3]
	want.Links = nil
	want.Health = Health{Reason: Lost, Message: "read handle: GPU is lost"}
	if diff := cmp.Diff(want, after[3]); diff != "" {
		t.Error(diff)
	}
	if len(after) != 8 || !after[2].Health.OK() || len(after[2].Links) != 6 {
		t.Errorf("%d devices, device 2: %+v", len(after), after[2])
	}
	s.DeviceGetHandleByIndexFunc = whole
	if again, _ := l.Devices(); cmp.Diff(before, again) != "" {
		t.Error("device 3 came back and the list is not as before:", cmp.Diff(before, again))
	}
}

func TestDeviceThatNeverAnsweredHasNoUUID(t *testing.T) {
	for ret, reason := range map[nvml.Return]Reason{
		nvml.ERROR_GPU_IS_LOST: Lost, nvml.ERROR_RESET_REQUIRED: ResetRequired, nvml.ERROR_UNKNOWN: NotAnswering,
	} {
		s := dgxa100.New()
		wire(s, wiring{})
		s.Devices[1].(*server.Device).GetUUIDFunc = func() (string, nvml.Return) { return "", ret }
		d := devices(t, s)[1]
		if d.UUID != "" || d.Index != 1 || d.Health.Reason != reason || !strings.HasPrefix(d.Health.Message, "read UUID: ") {
			t.Errorf("%+v, want no UUID and %s", d, reason)
		}
	}
}

// The library still has the handle of a device that was lost a moment ago.
func TestHealthQueriesTheDeviceItself(t *testing.T) {
	s := newServer(wiring{})
	l, err := open(s)
	must.OK(t, err)
	d := s.Devices[2].(*server.Device)
	d.GetMemoryInfoFunc = func() (nvml.Memory, nvml.Return) { return nvml.Memory{}, nvml.ERROR_GPU_IS_LOST }
	if diff := cmp.Diff(Health{Reason: Lost, Message: "read memory: GPU is lost"}, l.Health(d.UUID)); diff != "" {
		t.Error(diff)
	}
}

func TestAfterAFailedInitNothingIsCalled(t *testing.T) {
	for name, test := range map[string]struct {
		ret  nvml.Return
		is   error
		says string
	}{
		"library": {nvml.ERROR_LIBRARY_NOT_FOUND, ErrNoLibrary, "LD_LIBRARY_PATH"},
		"driver":  {nvml.ERROR_DRIVER_NOT_LOADED, ErrNoDriver, "nvidia-smi"},
		"other":   {nvml.ERROR_LIB_RM_VERSION_MISMATCH, nil, "different versions"},
	} {
		// Every other call of this mock panics.
		_, err := open(&mock.Interface{InitFunc: func() nvml.Return { return test.ret }})
		if err == nil || test.is != nil && !errors.Is(err, test.is) || !strings.Contains(err.Error(), test.says) {
			t.Errorf("%s: %v, want %v that says %q", name, err, test.is, test.says)
		}
	}
}

func TestVersionsAreNeeded(t *testing.T) {
	closed := 0
	_, err := open(&mock.Interface{
		InitFunc:                   func() nvml.Return { return nvml.SUCCESS },
		SystemGetDriverVersionFunc: func() (string, nvml.Return) { return "", nvml.ERROR_UNKNOWN },
		ShutdownFunc:               func() nvml.Return { closed++; return nvml.SUCCESS },
	})
	if err == nil || closed != 1 {
		t.Errorf("error %v, closed %d times, want an error and once", err, closed)
	}
}

func TestWatchFailsWhenTheDriverDoes(t *testing.T) {
	set := &mock.EventSet{
		WaitFunc: func(uint32) (nvml.EventData, nvml.Return) { return nvml.EventData{}, nvml.ERROR_GPU_IS_LOST },
		FreeFunc: func() nvml.Return { return nvml.SUCCESS },
	}
	s := dgxa100.New()
	s.EventSetCreateFunc = func() (nvml.EventSet, nvml.Return) { return set, nvml.SUCCESS }
	for _, d := range s.Devices {
		// Very old devices cannot tell their errors.
		d.(*server.Device).RegisterEventsFunc = func(uint64, nvml.EventSet) nvml.Return { return nvml.ERROR_NOT_SUPPORTED }
	}
	l, err := open(s)
	must.OK(t, err)
	if err := l.Watch(t.Context(), func(Event) { t.Error("an event") }); err == nil || !strings.Contains(err.Error(), "GPU is lost") {
		t.Errorf("Watch: %v", err)
	}
	if n := len(set.FreeCalls()); n != 1 {
		t.Errorf("the event set was freed %d times", n)
	}
}

func TestMaxMPSContexts(t *testing.T) {
	for _, test := range []struct {
		cc   Capability
		cuda int
		want int
	}{
		{Capability{6, 1}, 13010, 16},
		{Capability{7, 0}, 12080, 48}, // V100
		{Capability{7, 5}, 13000, 48},
		{Capability{7, 5}, 13010, 60},
		{Capability{9, 0}, 13020, 60},
	} {
		if got := MaxMPSContexts(test.cc, test.cuda); got != test.want {
			t.Errorf("%s under CUDA %d: %d contexts, want %d", test.cc, test.cuda, got, test.want)
		}
	}
	if (Capability{6, 1}).SupportsMPS() || !(Capability{7, 0}).SupportsMPS() || !(Capability{10, 0}).SupportsMPS() {
		t.Error("MPS starts at 7.0")
	}
}
