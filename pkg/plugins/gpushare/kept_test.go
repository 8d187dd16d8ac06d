package gpushare

import (
	"testing"

	"github.com/tandem-gpu/tandem/pkg/vgpu"
	"github.com/tandem-gpu/tandem/test/must"
)

// shareOf returns so many tenths of device g0 of node n1 for a pod.
func shareOf(uid vgpu.UID, slots vgpu.Slots) vgpu.Assignment {
	share := vgpu.Share{
		Devices: 1, Slots: slots, Memory: vgpu.Bytes(slots), ComputeLimit: vgpu.MilliGPU(slots) * 100, MemoryLimit: vgpu.Bytes(slots),
	}
	return vgpu.Assignment{UID: uid, Pod: "default/" + string(uid), Node: "n1", Containers: []vgpu.ContainerAssignment{{
		Name: "main", Devices: []vgpu.DeviceID{"g0"}, Share: share,
	}}}
}

// A pod has the room that is held for it once that is free, whatever is held for others of its priority or a lower one: they need
// other room, although the pods that leave it are still there.
func TestKeptFree(t *testing.T) {
	type hold struct {
		uid      vgpu.UID
		slots    vgpu.Slots
		priority int32
	}
	tests := []struct {
		name  string
		there vgpu.Slots
		holds []hold
		want  bool
	}{
		{name: "nothing is held", want: false},
		{name: "it is free", there: 5, holds: []hold{{"self", 5, 10}}, want: true},
		{name: "another pod is there", there: 6, holds: []hold{{"self", 5, 10}}, want: false},
		{name: "for another only", holds: []hold{{"other", 5, 10}}, want: false},
		{name: "for another of a lower priority as well", there: 5, holds: []hold{{"self", 5, 10}, {"other", 5, 9}}, want: true},
		{name: "for another of its priority as well", there: 5, holds: []hold{{"self", 5, 10}, {"other", 5, 10}}, want: true},
		{name: "for another of a higher priority as well", there: 5, holds: []hold{{"self", 5, 10}, {"other", 1, 11}}, want: false},
		{name: "beside one of a higher priority", there: 4, holds: []hold{{"self", 5, 10}, {"other", 1, 11}}, want: true},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			n, err := vgpu.NewNode("n1", []vgpu.Device{{ID: "g0", Model: "A100", Slots: 10, Memory: 10, Healthy: true}})
			must.OK(t, err)
			if test.there > 0 {
				must.OK(t, n.Add(shareOf("there", test.there)))
			}
			for _, h := range test.holds {
				must.OK(t, n.Hold(vgpu.Hold{Assignment: shareOf(h.uid, h.slots), Priority: h.priority}))
			}
			if got := keptFree(n, "self"); got != test.want {
				t.Errorf("kept and free: %v", got)
			}
		})
	}
}
