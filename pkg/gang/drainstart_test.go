package gang_test

import (
	"slices"
	"testing"

	"github.com/tandem-gpu/tandem/internal/testkit"
	"github.com/tandem-gpu/tandem/pkg/gang"
	"github.com/tandem-gpu/tandem/pkg/vgpu"
	"github.com/tandem-gpu/tandem/test/must"
)

// TestDrainCheck: the scheduler keeps room for a gang of two GPUs that waits since second 100 only after the right
// time.
func TestDrainCheck(t *testing.T) {
	const full = "n1: g0 A100 [a:10] | g1 A100 [b:10]"
	tests := []struct {
		name, drawing string
		drains        gang.Drains
		ends, started map[string]int64
		now           int64
		keeps         bool
	}{
		{"never", full, gang.NoDrains, nil, map[string]int64{"a": 110, "b": 110}, 200, false},
		{"no pod is in the way", "n1: g0 A100 | g1 A100", gang.AllDrains, nil, nil, 200, false},
		{"one was there before the gang waited", full, gang.AllDrains, nil, map[string]int64{"a": 101, "b": 99}, 200, false},
		{"one was placed at the same second", full, gang.AllDrains, nil, map[string]int64{"a": 101, "b": 100}, 200, false},
		{"all came since", full, gang.AllDrains, nil, map[string]int64{"a": 101, "b": 150}, 200, true},
		{"one was only just placed, at an unknown time", full, gang.AllDrains, nil, map[string]int64{"a": 101}, 200, true},
		{"one stays for ever", full, gang.AllDrains, map[string]int64{"a": gang.Never}, map[string]int64{"a": 101, "b": 150}, 200, false},
		{"bounded, and no pod declares its end", full, gang.BoundedDrains, nil, map[string]int64{"a": 101, "b": 150}, 9000, false},
		{"bounded, one does not say", full, gang.BoundedDrains, map[string]int64{"a": 9001}, map[string]int64{"a": 101, "b": 150}, 9000, false},
		{"bounded, the last ends too late", full, gang.BoundedDrains, map[string]int64{"a": 501, "b": 601}, nil, 500, false},
		{"bounded, the last ends within a fourth of the wait", full, gang.BoundedDrains, map[string]int64{"a": 501, "b": 600}, nil, 500, true},
		{"bounded, it does not matter who came first", full, gang.BoundedDrains, map[string]int64{"a": 501, "b": 502}, map[string]int64{"a": 1, "b": 2}, 500, true},
		{"bounded, one that does not say is not in the way", full + " | g2 A100 [c:10]", gang.BoundedDrains, map[string]int64{"a": 501, "c": 502}, nil, 500, true},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			c := drawing(t, test.drawing, map[string]string{"n1": "r1"})
			c.Ends = func(_ vgpu.UID, pod string) int64 { return test.ends[pod] }
			g := withoutHostRequests(benchGang(2, 10, []string{"rack"}, nil))
			plan, err := gang.Keep(c, g, gang.Config{}, gang.DrainCheck{
				Drains: test.drains, Since: 100, Now: test.now, Started: func(_ vgpu.UID, pod string) int64 { return test.started[pod] },
			})
			must.OK(t, err)
			if keeps := plan.Places != nil; keeps != test.keeps {
				t.Errorf("Keep keeps room: %v, want %v (%+v)", keeps, test.keeps, plan)
			}
		})
	}
}

// TestStand: Stand names the nodes of kept room that are not free, and those whose hosts have too little.
func TestStand(t *testing.T) {
	c, err := testkit.Parse("n1 cpu=4: g0 A100 | g1 A100 [a:10]\nn2 cpu=1: g0 A100\nn3 cpu=4: g0 A100 | g1 A100 [b:1]\nn4: g0 A100")
	must.OK(t, err)
	at := func(pod, device string) vgpu.Assignment {
		return vgpu.Assignment{UID: vgpu.UID(pod), Pod: pod, Node: device[:2], Containers: []vgpu.ContainerAssignment{{
			Name: "main", Devices: []vgpu.DeviceID{vgpu.DeviceID(device)}, Share: vgpu.Share{Devices: 1, Slots: 10, Memory: 40 * vgpu.GiB, ComputeLimit: vgpu.WholeGPU, MemoryLimit: 40 * vgpu.GiB},
		}}}
	}
	members := make([]gang.Member, 0, 4)
	for _, pod := range []string{"g-0", "g-1", "g-2", "g-3"} {
		members = append(members, gang.Member{Request: vgpu.Request{UID: vgpu.UID(pod), Host: vgpu.Room{MilliCPU: 2000}}})
	}
	tests := []struct {
		name         string
		kept         gang.Kept
		taken, short []string
	}{
		{"a device is taken", gang.Kept{Places: []vgpu.Assignment{at("g-0", "n1/g1")}}, []string{"n1"}, nil},
		{"all is free", gang.Kept{Places: []vgpu.Assignment{at("g-0", "n1/g0")}}, nil, nil},
		{"the host is too small", gang.Kept{Places: []vgpu.Assignment{at("g-0", "n1/g0"), at("g-1", "n2/g0")}}, nil, []string{"n2"}},
		{
			"one is waited for on behalf of the host", gang.Kept{Places: []vgpu.Assignment{at("g-2", "n3/g0")}, Blockers: []gang.Blocker{{UID: "b", Pod: "b"}}},
			[]string{"n3"}, nil,
		},
		{"one that was waited for is gone", gang.Kept{Places: []vgpu.Assignment{at("g-2", "n3/g0")}, Blockers: []gang.Blocker{{UID: "x", Pod: "x"}}}, nil, nil},
		{"a member without devices", gang.Kept{Places: []vgpu.Assignment{{UID: "g-3", Node: "n4"}}}, nil, []string{"n4"}},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			taken, short := test.kept.Stand(&gang.Cluster{Nodes: c.Nodes()}, members)
			if !slices.Equal(taken, test.taken) || !slices.Equal(short, test.short) {
				t.Errorf("taken %v, short %v, want %v and %v", taken, short, test.taken, test.short)
			}
		})
	}
}
