package vgpu_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/tandem-gpu/tandem/internal/testkit"
	"github.com/tandem-gpu/tandem/pkg/vgpu"
)

// TestMapOf: slices lie side by side, assignments before holds, each by UID; the hold of a pod that is there is its
// assignment; init containers lie in the slots of what comes after; a sick device keeps its slices; a hold may reach beyond
// the device.
func TestMapOf(t *testing.T) {
	for _, tc := range []struct{ drawing, want string }{
		{"n1: g0 A100", "n1/g0 "},
		{"n1: g0 A100 [b:2 a:3/8Gi] | g1 A100 sick [c:10]\nn2: g0 T4", "n1/g0 a 0-3 8Gi, b 3-5 8Gi; n1/g1 sick c 0-10 40Gi; n2/g0 "},
		{"n1: g0 A100 [b:2] (c:3@1 a:9@2)", "n1/g0 b 0-2 8Gi, a held 2-11 36Gi, c held 11-14 12Gi"},
		{"n1: g0 A100 [b:2] (b:2@1 c:1@1)", "n1/g0 b 0-2 8Gi, c held 2-3 4Gi"},
		{"n1: g0 A100 [a:8~ a:3 b:2]", "n1/g0 a 0-8 32Gi, b 8-10 8Gi"},
	} {
		c, err := testkit.Parse(tc.drawing)
		if err != nil {
			t.Fatal(err)
		}
		var devices []string
		for _, n := range vgpu.MapOf(c.Nodes()).Nodes {
			for _, d := range n.Devices {
				var slices []string
				for _, s := range d.Slices {
					held := map[bool]string{true: "held "}[s.Held]
					slices = append(slices, fmt.Sprintf("%s %s%d-%d %v", s.Pod, held, s.From, s.To, s.Memory))
				}
				sick := map[bool]string{false: "sick "}[d.Healthy]
				devices = append(devices, fmt.Sprintf("%s %s%s", d.ID, sick, strings.Join(slices, ", ")))
			}
		}
		if diff := cmp.Diff(tc.want, strings.Join(devices, "; ")); diff != "" {
			t.Errorf("map of %q (-want +got):\n%s", tc.drawing, diff)
		}
	}
}
