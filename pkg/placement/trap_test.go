package placement_test

import (
	"fmt"
	"testing"

	"github.com/tandem-gpu/tandem/pkg/placement"
	"github.com/tandem-gpu/tandem/pkg/vgpu"
	"github.com/tandem-gpu/tandem/test/must"
)

// twoDevices is the cluster of the extended-resource trap: 2 devices of 10 slots.
func twoDevices(t *testing.T) *vgpu.Cluster {
	t.Helper()
	n, err := vgpu.NewNode("n1", []vgpu.Device{
		{ID: "GPU-0", Index: 0, Model: "A100", Slots: 10, Memory: 40 * vgpu.GiB, Contexts: 48, Healthy: true},
		{ID: "GPU-1", Index: 1, Model: "A100", Slots: 10, Memory: 40 * vgpu.GiB, Contexts: 48, Healthy: true},
	})
	must.OK(t, err)
	c, err := vgpu.NewCluster(n)
	must.OK(t, err)
	return c
}

func TestTrap(t *testing.T) {
	tests := []struct {
		slots   []vgpu.Slots
		refused string // of the last one, "" for none
	}{
		{slots: []vgpu.Slots{5, 6, 5, 4}},
		{slots: []vgpu.Slots{6, 6, 8}, refused: "largest free share is 4 of 10 slots on n1/g0; container main asks for 8"},
	}
	for _, tc := range tests {
		t.Run(fmt.Sprint(tc.slots), func(t *testing.T) {
			c := twoDevices(t)
			got := ""
			for i, k := range tc.slots {
				r := vgpu.Request{UID: vgpu.UID(fmt.Sprint("pod-", i)), Containers: []vgpu.ContainerRequest{{Name: "main", Slots: k}}}
				plan, err := placement.Choose(c, &r, placement.Config{})
				must.OK(t, err)
				if plan.Place == nil {
					nearest, _ := placement.Nearest(plan.Refused)
					got += nearest.String()
					continue
				}
				must.OK(t, c.Add(*plan.Place))
				must.OK(t, c.Check())
			}
			if got != tc.refused {
				t.Errorf("refused %q, want %q", got, tc.refused)
			}
		})
	}
}
