package sim_test

import (
	"fmt"
	"testing"

	"github.com/tandem-gpu/tandem/internal/testkit"
	"github.com/tandem-gpu/tandem/pkg/placement"
	"github.com/tandem-gpu/tandem/pkg/sim"
	"github.com/tandem-gpu/tandem/pkg/vgpu"
)

// TestUntouchedDevices: 1,000 pods of 3 slots go to 334 devices of 4,000, three to each, although 4 free slots are of use to
// one more pod and 1 is not.
func TestUntouchedDevices(t *testing.T) {
	var s sim.Setup
	for i := range 500 {
		n := testkit.Node(t, fmt.Sprintf("n%03d", i), testkit.A100, 8)
		n.SetRoom(plenty)
		s.Nodes = append(s.Nodes, n)
	}
	for i := range 1000 {
		s.Jobs = append(s.Jobs, sim.Job{Request: *testkit.Request(fmt.Sprintf("pod-%d", i), 3)})
	}
	var err error
	if s.Policy, err = placement.ByName("tandem"); err != nil {
		t.Fatal(err)
	}
	h, err := sim.Run(s)
	if err != nil {
		t.Fatal(err)
	}
	used := map[vgpu.DeviceID]int{}
	for i := range h.Outcomes {
		used[h.Outcomes[i].Assignment.Containers[0].Devices[0]]++
	}
	if len(used) != 334 {
		t.Errorf("the pods are on %d devices, want 334", len(used))
	}
}
