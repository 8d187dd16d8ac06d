package vgpu_test

import (
	"testing"

	"pgregory.net/rapid"

	"github.com/tandem-gpu/tandem/internal/testkit"
	"github.com/tandem-gpu/tandem/pkg/vgpu"
)

// TestUsesProperty: the uses of the devices by the assignments, one by one, add up to what is used, in the order of UIDs
// and devices; and the free part of a healthy device for a pod is neither used nor kept from it.
func TestUsesProperty(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		c := testkit.RandomCluster(t, 2, 4)
		testkit.Fill(t, c, 8)
		r := testkit.RandomRequest(t, "new", 1)
		for _, n := range c.Nodes() {
			sums := make([]vgpu.Use, len(n.Devices()))
			list := n.Uses(nil)
			for k, u := range list {
				sums[u.Device] = sums[u.Device].Plus(u.Use)
				if k > 0 && (list[k-1].UID > u.UID || list[k-1].UID == u.UID && list[k-1].Device >= u.Device) {
					t.Fatalf("%+v comes after %+v", u, list[k-1])
				}
			}
			for i := range sums {
				if sums[i] != n.Used(i) {
					t.Fatalf("uses of device %d add up to %v, used are %v", i, sums[i], n.Used(i))
				}
				d := &n.Devices()[i]
				free := d.Capacity().Minus(n.Used(i).Plus(n.KeptFrom(i, r)))
				if d.Contexts == 0 {
					free.Contexts = vgpu.UnlimitedContexts
				}
				if got := n.FreeFor(i, r); d.Healthy && got != free {
					t.Fatalf("device %d has %v free, %v neither used nor kept", i, got, free)
				}
			}
		}
	})
}
