package vgpu_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/tandem-gpu/tandem/pkg/vgpu"
)

var (
	a100 = vgpu.Device{ID: "GPU-a100", Model: "A100", Slots: 10, Memory: 40 * vgpu.GiB, Contexts: 48, Healthy: true}
	t4   = vgpu.Device{ID: "GPU-t4", Model: "T4", Slots: 4, Memory: 16 * vgpu.GiB, Contexts: 48, Healthy: true}
	odd  = vgpu.Device{ID: "GPU-odd", Model: "ODD", Slots: 7, Memory: 16 * vgpu.GiB, Healthy: true}
)

func TestContainerRequestOn(t *testing.T) {
	const gi = vgpu.GiB
	tests := []struct {
		name    string
		device  vgpu.Device
		slots   vgpu.Slots
		memory  vgpu.Bytes
		compute vgpu.MilliGPU
		limit   vgpu.Bytes
		want    vgpu.Share
		refused string
	}{
		// 3/10 of 40 GiB = 12 GiB, 30 %.
		{name: "a share in proportion", device: a100, slots: 3, want: vgpu.Share{Devices: 1, Slots: 3, Memory: 12 * gi, ComputeLimit: 300, MemoryLimit: 12 * gi}},
		// 3/7 = 42.86 %, up to 43 %; 16 GiB × 3 / 7 = 51539607552 / 7 = 7362801078.86, down.
		{name: "a share that does not divide evenly", device: odd, slots: 3, want: vgpu.Share{Devices: 1, Slots: 3, Memory: 7362801078, ComputeLimit: 430, MemoryLimit: 7362801078}},
		{name: "all slots of one device", device: a100, slots: 10, want: vgpu.Share{Devices: 1, Slots: 10, Memory: 40 * gi, ComputeLimit: 1000, MemoryLimit: 40 * gi}},
		{name: "two whole devices", device: a100, slots: 20, want: vgpu.Share{Devices: 2, Slots: 10, Memory: 40 * gi, ComputeLimit: 1000, MemoryLimit: 40 * gi}},
		{name: "memory below the proportion", device: a100, slots: 5, memory: gi, want: vgpu.Share{Devices: 1, Slots: 5, Memory: gi, ComputeLimit: 500, MemoryLimit: gi}},
		{name: "memory above the proportion", device: a100, slots: 1, memory: 40 * gi, want: vgpu.Share{Devices: 1, Slots: 1, Memory: 40 * gi, ComputeLimit: 100, MemoryLimit: 40 * gi}},
		// 7 bytes over 3 devices: 2.33 each, up to 3.
		{name: "memory divided over whole devices, rounded up", device: a100, slots: 30, memory: 7, want: vgpu.Share{Devices: 3, Slots: 10, Memory: 3, ComputeLimit: 1000, MemoryLimit: 3}},
		{name: "limits above the request", device: a100, slots: 3, compute: 500, limit: 20 * gi, want: vgpu.Share{Devices: 1, Slots: 3, Memory: 12 * gi, ComputeLimit: 500, MemoryLimit: 20 * gi}},
		{name: "limits equal to the request", device: a100, slots: 3, compute: 300, limit: 12 * gi, want: vgpu.Share{Devices: 1, Slots: 3, Memory: 12 * gi, ComputeLimit: 300, MemoryLimit: 12 * gi}},

		{name: "13 of 10", device: a100, slots: 13, refused: "container main asks for 13 slots, which is neither a part of one device nor whole devices; nearest legal values: 10 and 20"},
		{name: "no slots", device: a100, slots: 0, refused: "container main asks for 0 slots, which is neither a part of one device nor whole devices; nearest legal values: 1"},
		{name: "memory above the device", device: a100, slots: 3, memory: 41 * gi, refused: "container main asks for 41Gi of device memory; it can have at most 40Gi on A100"},
		{name: "memory above two devices", device: a100, slots: 20, memory: 81 * gi, refused: "container main asks for 81Gi of device memory; it can have at most 80Gi on A100"},
		{name: "compute limit below the request", device: a100, slots: 3, compute: 290, refused: "compute limit 29% is below the request of container main; the least legal limit is 30% on A100"},
		{name: "compute limit below the uneven request", device: odd, slots: 3, compute: 420, refused: "compute limit 42% is below the request of container main; the least legal limit is 43% on ODD"},
		{name: "compute limit below whole devices", device: a100, slots: 20, compute: 500, refused: "compute limit 50% is below the request of container main; the least legal limit is 100% on A100"},
		{name: "compute limit above the device", device: a100, slots: 3, compute: 1010, refused: "compute limit 101% is above the device; the most legal limit is 100% on A100"},
		{name: "memory limit below the request", device: a100, slots: 3, limit: 11 * gi, refused: "memory limit 11Gi is below the request of container main; the least legal limit is 12Gi on A100"},
		{name: "memory limit above the device", device: a100, slots: 3, limit: 41 * gi, refused: "memory limit 41Gi is above the device; the most legal limit is 40Gi on A100"},
	}
	for _, tc := range tests {
		t.Run(tc.name, func(t *testing.T) {
			c := vgpu.ContainerRequest{Name: "main", Slots: tc.slots, Memory: tc.memory}
			got, refusal := c.On(&tc.device, tc.compute, tc.limit)
			text := ""
			if refusal != nil {
				text = refusal.String()
			}
			if diff := cmp.Diff(tc.refused, text); diff != "" {
				t.Errorf("refusal (-want +got):\n%s", diff)
			}
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("share (-want +got):\n%s", diff)
			}
			if refusal == nil {
				if err := tc.device.Admits(got); err != nil {
					t.Errorf("the device does not admit its own share: %v", err)
				}
			}
		})
	}
}

func TestLegalAnywhere(t *testing.T) {
	request := func(containers ...vgpu.ContainerRequest) *vgpu.Request {
		return &vgpu.Request{UID: "u", Pod: "default/p", Containers: containers}
	}
	main := func(slots vgpu.Slots) vgpu.ContainerRequest { return vgpu.ContainerRequest{Name: "main", Slots: slots} }
	tests := []struct {
		name    string
		offers  []vgpu.Offer
		request *vgpu.Request
		want    string
	}{
		{name: "no devices are known", request: request(main(13))},
		{name: "legal on both", offers: []vgpu.Offer{{Device: a100, Most: 8}, {Device: t4, Most: 8}}, request: request(main(3))},
		{name: "legal on one", offers: []vgpu.Offer{{Device: a100, Most: 8}, {Device: t4, Most: 8}}, request: request(main(9))},
		{name: "containers legal on different models", offers: []vgpu.Offer{{Device: a100, Most: 8}, {Device: t4, Most: 8}}, request: request(main(9), vgpu.ContainerRequest{Name: "side", Slots: 12})},
		{
			name: "illegal on both: the nearest values of either", offers: []vgpu.Offer{{Device: a100, Most: 8}, {Device: t4, Most: 8}}, request: request(main(13)),
			want: "container main asks for 13 slots, which is neither a part of one device nor whole devices; nearest legal values: 12 and 16",
		},
		{
			name: "values that no node could hold are not named", offers: []vgpu.Offer{{Device: a100, Most: 2}, {Device: t4, Most: 2}}, request: request(main(13)),
			want: "container main asks for 13 slots, which is neither a part of one device nor whole devices; nearest legal values: 10 and 20",
		},
		{
			name: "unless there is none above", offers: []vgpu.Offer{{Device: a100, Most: 1}}, request: request(main(13)),
			want: "container main asks for 13 slots, which is neither a part of one device nor whole devices; nearest legal values: 10 and 20",
		},
		{
			name: "the second container is illegal", offers: []vgpu.Offer{{Device: a100, Most: 8}}, request: request(main(3), vgpu.ContainerRequest{Name: "side", Slots: 25}),
			want: "container side asks for 25 slots, which is neither a part of one device nor whole devices; nearest legal values: 20 and 30",
		},
		{
			name: "memory above every device: the largest is named", offers: []vgpu.Offer{{Device: t4, Most: 8}, {Device: a100, Most: 8}}, request: request(vgpu.ContainerRequest{Name: "main", Slots: 1, Memory: 64 * vgpu.GiB}),
			want: "container main asks for 64Gi of device memory; it can have at most 40Gi on A100",
		},
	}
	for _, tc := range tests {
		t.Run(tc.name, func(t *testing.T) {
			got := ""
			if refusal := vgpu.LegalAnywhere(tc.offers, tc.request); refusal != nil {
				got = refusal.String()
			}
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("refusal (-want +got):\n%s", diff)
			}
		})
	}
}
