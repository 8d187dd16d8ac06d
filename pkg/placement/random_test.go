package placement_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/tandem-gpu/tandem/internal/testkit"
	"github.com/tandem-gpu/tandem/pkg/placement"
	"github.com/tandem-gpu/tandem/pkg/vgpu"
	"github.com/tandem-gpu/tandem/test/must"
)

// TestRandom: over ten nodes of four devices, a thousand pods go to every device about as often, by the same seed to the
// same devices, and by another seed or name to others.
func TestRandom(t *testing.T) {
	var drawing strings.Builder
	for i := range 10 {
		fmt.Fprintf(&drawing, "n%d: g0 A100 | g1 A100 | g2 A100 | g3 A100\n", i)
	}
	c, err := testkit.Parse(drawing.String())
	must.OK(t, err)
	const pods = 1000
	chosen := func(seed int64) []vgpu.DeviceID {
		list := make([]vgpu.DeviceID, 0, pods)
		for i := range pods {
			plan, err := placement.Choose(c, testkit.Request(fmt.Sprint("p", i), 3), placement.Config{Policy: policyBy(t, "random", "", seed)})
			must.OK(t, err)
			list = append(list, plan.Place.Containers[0].Devices[0])
		}
		return list
	}
	first, again, other := chosen(1), chosen(1), chosen(2)
	count, moved := map[vgpu.DeviceID]int{}, 0
	for i := range first {
		count[first[i]]++
		if first[i] != again[i] {
			t.Fatalf("pod %d goes to %s, then by the same seed to %s", i, first[i], again[i])
		}
		if first[i] != other[i] {
			moved++
		}
	}
	// 25 pods per device, give or take five times the square root. By another seed a pod stays once in forty.
	if len(count) != 40 {
		t.Errorf("%d of 40 devices are chosen", len(count))
	}
	for id, n := range count {
		if n > 50 {
			t.Errorf("device %s is chosen %d times of %d", id, n, pods)
		}
	}
	if moved < 900 {
		t.Errorf("another seed moves %d of %d pods", moved, pods)
	}
}

// TestRandomSpreadsOverNodes: also pods without GPUs, which touch no device, and pods of whole devices.
func TestRandomSpreadsOverNodes(t *testing.T) {
	p := policyBy(t, "random", "", 3)
	for _, slots := range [][]vgpu.Slots{nil, {20}, {6, 6}} {
		seen := map[int64]bool{}
		for i := range 100 {
			n := drawn(t, fmt.Sprintf("n%d: g0 A100 | g1 A100", i))
			seen[placement.Score(n, testkit.Request("new", slots...), p)] = true
		}
		if len(seen) < 95 {
			t.Errorf("%v: %d scores on 100 nodes", slots, len(seen))
		}
	}
}
