package deviceplugin

import (
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	pluginapi "k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1"
	"pgregory.net/rapid"

	"github.com/tandem-gpu/tandem/internal/agent/allocation"
	"github.com/tandem-gpu/tandem/pkg/vgpu"
)

func ids(device string, slots ...int) []string {
	var list []string
	for _, s := range slots {
		list = append(list, allocation.SlotID(device, s))
	}
	return list
}

func TestPreferred(t *testing.T) {
	share := func(slots int, devices ...vgpu.DeviceID) *vgpu.ContainerAssignment {
		return &vgpu.ContainerAssignment{Devices: devices, Share: vgpu.Share{Devices: len(devices), Slots: vgpu.Slots(slots)}}
	}
	cases := []struct {
		name       string
		free, must []string
		size       int
		want       *vgpu.ContainerAssignment
		get        []string
	}{
		{"of the assigned device", append(ids("a", 0, 1), ids("b", 10, 2, 3)...), nil, 2, share(2, "b"), ids("b", 2, 3)},
		{"not known: the tightest device that fits", append(ids("a", 0, 1, 2), ids("b", 0, 1)...), nil, 2, nil, ids("b", 0, 1)},
		{"not known, none fits: the fullest first", append(ids("a", 0, 1, 2), ids("b", 0, 1)...), nil, 4, nil, append(ids("a", 0, 1, 2), ids("b", 0)...)},
		{"the assigned device is short: the rest from elsewhere", append(ids("a", 0, 1), ids("b", 0)...), nil, 2, share(2, "b"), append(ids("b", 0), ids("a", 0)...)},
		{"includes what must be", append(ids("a", 0, 1), ids("b", 0, 1)...), ids("a", 0), 3, share(3, "b"), append(ids("a", 0), ids("b", 0, 1)...)},
		{"several devices", append(ids("a", 0, 1), ids("b", 0, 1)...), nil, 2, share(1, "a", "b"), append(ids("a", 0), ids("b", 0)...)},
		{"too few are free", ids("a", 0), nil, 3, nil, ids("a", 0)},
	}
	for _, c := range cases {
		got := preferred(&pluginapi.ContainerPreferredAllocationRequest{
			AvailableDeviceIDs: append(slices.Clone(c.free), c.must...), MustIncludeDeviceIDs: c.must, AllocationSize: int32(c.size),
		}, c.want)
		if diff := cmp.Diff(c.get, got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", c.name, diff)
		}
	}
}

// The answer to any request has what must be in it, only free slots beside it, each once, and as many as wanted where
// there are so many.
func TestPreferredIsAlwaysLegal(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		slot := rapid.Custom(func(t *rapid.T) string {
			return allocation.SlotID(rapid.SampledFrom([]string{"a", "b", "c"}).Draw(t, "device"), rapid.IntRange(0, 11).Draw(t, "slot"))
		})
		free := rapid.SliceOfDistinct(slot, rapid.ID[string]).Draw(t, "free")
		must := free[:rapid.IntRange(0, len(free)).Draw(t, "must")]
		size := rapid.IntRange(len(must), 40).Draw(t, "size")
		var want *vgpu.ContainerAssignment
		if rapid.Bool().Draw(t, "known") {
			want = &vgpu.ContainerAssignment{Devices: []vgpu.DeviceID{"b", "c"}, Share: vgpu.Share{Slots: vgpu.Slots(rapid.IntRange(1, 12).Draw(t, "slots"))}}
		}
		got := preferred(&pluginapi.ContainerPreferredAllocationRequest{
			AvailableDeviceIDs: free, MustIncludeDeviceIDs: must, AllocationSize: int32(size),
		}, want)
		if len(got) != min(size, len(free)) || len(allocation.SlotSet(got)) != len(got) {
			t.Fatalf("%d slots of %d free, asked for %d: %v", len(got), len(free), size, got)
		}
		for _, id := range must {
			if !slices.Contains(got, id) {
				t.Fatalf("%s is missing in %v", id, got)
			}
		}
		for _, id := range got {
			if !slices.Contains(free, id) {
				t.Fatalf("%s is not free", id)
			}
		}
	})
}
