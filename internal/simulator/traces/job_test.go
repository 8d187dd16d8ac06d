package traces

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/tandem-gpu/tandem/pkg/vgpu"
	"github.com/tandem-gpu/tandem/test/must"
)

func TestRequest(t *testing.T) {
	room := vgpu.Room{MilliCPU: 6000, Memory: 12 * vgpu.GiB}
	main := func(k vgpu.Slots) []vgpu.ContainerRequest { return []vgpu.ContainerRequest{{Name: "main", Slots: k}} }
	tests := []struct {
		name string
		job  Job
		want vgpu.Request
	}{
		{
			"a share", Job{Name: "p", Workers: 1, Devices: 1, Compute: 460, Host: room},
			vgpu.Request{Pod: "default/p", Containers: main(460), Host: room},
		},
		{
			"whole devices", Job{Name: "p", Tenant: "vc", Priority: 3, Workers: 2, Devices: 4, Compute: 1000},
			vgpu.Request{Pod: "vc/p", Priority: 3, Containers: main(4000)},
		},
		{
			"some models", Job{Name: "p", Workers: 1, Devices: 1, Compute: 1000, Models: []string{"G2", "T4"}},
			vgpu.Request{Pod: "default/p", Containers: main(1000), Variants: []vgpu.Variant{{Model: "G2"}, {Model: "T4"}}},
		},
		{
			"no GPU", Job{Name: "p", Workers: 1, Host: room, Models: []string{"T4"}},
			vgpu.Request{Pod: "default/p", Host: room},
		},
	}
	for _, tc := range tests {
		t.Run(tc.name, func(t *testing.T) {
			tc.want.UID = "u"
			got, err := tc.job.Request("u")
			must.OK(t, err)
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("request (-want +got):\n%s", diff)
			}
		})
	}
}

// TestTotal: two workers of four devices each have the compute of eight, a share has its own, a pod without GPUs none.
func TestTotal(t *testing.T) {
	for want, j := range map[vgpu.MilliGPU]Job{
		8000: {Workers: 2, Devices: 4, Compute: 1000},
		460:  {Workers: 1, Devices: 1, Compute: 460},
		0:    {Workers: 3},
	} {
		if got := j.Total(); got != want {
			t.Errorf("total %d, want %d", got, want)
		}
	}
}

func TestRequestErrors(t *testing.T) {
	many := make([]string, 65)
	tests := []struct {
		spoil func(*Job)
		uid   vgpu.UID
		want  string
	}{
		{func(*Job) {}, "", "make request of job p: no UID"},
		{func(j *Job) { j.Name = "" }, "u", "make request of job : no name"},
		{func(j *Job) { j.Workers = 0 }, "u", "make request of job p: 0 workers, want 1 to 10000"},
		{func(j *Job) { j.Workers = 10_001 }, "u", "make request of job p: 10001 workers, want 1 to 10000"},
		{func(j *Job) { j.Devices = -1 }, "u", "make request of job p: -1 devices, want 0 to 64"},
		{func(j *Job) { j.Devices = 65 }, "u", "make request of job p: 65 devices, want 0 to 64"},
		{func(j *Job) { j.Devices = 0 }, "u", "make request of job p: compute of 460 without devices"},
		{func(j *Job) { j.Compute = 0 }, "u", "make request of job p: compute of 0 on each device, want 1 to 1000"},
		{func(j *Job) { j.Compute = 1001 }, "u", "make request of job p: compute of 1001 on each device, want 1 to 1000"},
		{func(j *Job) { j.Devices = 2 }, "u", "make request of job p: compute of 460 on each of 2 devices, want 1000"},
		{func(j *Job) { j.Host.MilliCPU = -1 }, "u", "make request of job p: a host room of -1m 0, want no negative amount"},
		{func(j *Job) { j.Host.Memory = -1 }, "u", "make request of job p: a host room of 0m -1, want no negative amount"},
		{func(j *Job) { j.Models = many }, "u", "make request of job p: 65 GPU models, want at most 64"},
		{func(j *Job) { j.Models = []string{"T4", "G2"} }, "u", `make request of job p: GPU models ["T4" "G2"], want names in order, each once`},
		{func(j *Job) { j.Models = []string{"T4", "T4"} }, "u", `make request of job p: GPU models ["T4" "T4"], want names in order, each once`},
		{func(j *Job) { j.Models = []string{""} }, "u", `make request of job p: GPU models [""], want names in order, each once`},
	}
	for _, tc := range tests {
		j := Job{Name: "p", Workers: 1, Devices: 1, Compute: 460}
		tc.spoil(&j)
		if _, err := j.Request(tc.uid); err == nil || err.Error() != tc.want {
			t.Errorf("error %v, want %s", err, tc.want)
		}
	}
}

func TestNode(t *testing.T) {
	h := Host{Name: "n1", Room: vgpu.Room{MilliCPU: 64000, Memory: 256 * vgpu.GiB}, Devices: 2, Model: "V100M32"}
	n, err := h.Node(SlotsPerDevice)
	must.OK(t, err)
	want := []vgpu.Device{
		{ID: "n1/g0", Index: 0, Model: "V100M32", Slots: 1000, Memory: 32 * vgpu.GiB, Healthy: true},
		{ID: "n1/g1", Index: 1, Model: "V100M32", Slots: 1000, Memory: 32 * vgpu.GiB, Healthy: true},
	}
	if diff := cmp.Diff(want, n.Devices()); diff != "" {
		t.Errorf("devices (-want +got):\n%s", diff)
	}
	if n.Name() != "n1" || n.Room() != h.Room {
		t.Errorf("node %s with room %v, want n1 with %v", n.Name(), n.Room(), h.Room)
	}
	// 16 GiB for a model that the trace hides.
	if got := DeviceMemory("G2"); got != 16*vgpu.GiB {
		t.Errorf("a G2 has %v, want 16Gi", got)
	}

	none, err := (&Host{Name: "n2"}).Node(SlotsPerDevice)
	if err != nil || len(none.Devices()) != 0 {
		t.Errorf("a node without GPUs: error %v", err)
	}
	for _, h := range []Host{{Name: "n", Devices: -1}, {Name: "n", Devices: 65}, {Devices: 1}} {
		if _, err := h.Node(SlotsPerDevice); err == nil {
			t.Errorf("node of %+v: no error", h)
		}
	}
	if _, err := h.Node(0); err == nil {
		t.Error("node with devices of 0 slots: no error")
	}
}
