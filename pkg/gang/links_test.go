package gang_test

import (
	"fmt"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/tandem-gpu/tandem/internal/testkit"
	"github.com/tandem-gpu/tandem/pkg/gang"
	"github.com/tandem-gpu/tandem/pkg/placement"
	"github.com/tandem-gpu/tandem/pkg/vgpu"
	"github.com/tandem-gpu/tandem/test/must"
)

// matrices are the link matrices of nodes of eight devices that vendors sell.
var matrices = map[string]func(a, b int) vgpu.Link{
	// DGX-1 with V100: a hybrid cube mesh. Six NVLinks per device, two to some neighbours; other pairs by PCIe.
	"DGX-1": func(a, b int) vgpu.Link {
		lanes := map[[2]int]int{
			{0, 1}: 1, {0, 2}: 1, {0, 3}: 2, {0, 4}: 2, {1, 2}: 2, {1, 3}: 1, {1, 5}: 2, {2, 3}: 2, {2, 6}: 1, {3, 7}: 1,
			{4, 5}: 1, {4, 6}: 1, {4, 7}: 2, {5, 6}: 2, {5, 7}: 1, {6, 7}: 2,
		}[[2]int{min(a, b), max(a, b)}]
		if lanes > 0 {
			return vgpu.Link{Class: vgpu.LinkNVLink, Lanes: lanes}
		}
		return vgpu.Link{Class: vgpu.LinkSYS}
	},
	// DGX A100: all pairs through NVSwitch.
	"NVSwitch": func(int, int) vgpu.Link { return vgpu.Link{Class: vgpu.LinkNVLink, Lanes: 12} },
	// PCIe only: pairs on one switch, two switches on one socket, two sockets.
	"PCIe": func(a, b int) vgpu.Link {
		switch {
		case a/2 == b/2:
			return vgpu.Link{Class: vgpu.LinkPIX}
		case a/4 == b/4:
			return vgpu.Link{Class: vgpu.LinkNODE}
		}
		return vgpu.Link{Class: vgpu.LinkSYS}
	},
	// Bridges between pairs, NUMA between the halves.
	"bridges": func(a, b int) vgpu.Link {
		switch {
		case a/2 == b/2:
			return vgpu.Link{Class: vgpu.LinkNVLink, Lanes: 4}
		case a/4 == b/4:
			return vgpu.Link{Class: vgpu.LinkPHB}
		}
		return vgpu.Link{Class: vgpu.LinkSYS}
	},
}

// eightDevices returns a node with the links of a matrix, on which pods use the busy devices.
func eightDevices(t rapid.TB, name string, link func(a, b int) vgpu.Link, busy func(i int) bool) *vgpu.Node {
	t.Helper()
	var devices []vgpu.Device
	for i := range 8 {
		d := testkit.A100.Device(name, i)
		for j := range i {
			l := link(i, j)
			l.Peer = testkit.DeviceID(name, j)
			d.Links = append(d.Links, l)
		}
		devices = append(devices, d)
	}
	n, err := vgpu.NewNode(name, devices)
	must.OK(t, err)
	for i := range 8 {
		if !busy(i) {
			continue
		}
		a := vgpu.Assignment{UID: vgpu.UID(fmt.Sprint("old-", i)), Node: name, Containers: []vgpu.ContainerAssignment{{
			Name: "c0", Devices: []vgpu.DeviceID{n.Devices()[i].ID},
			Share: vgpu.Share{Devices: 1, Slots: 1, Memory: vgpu.GiB, MemoryLimit: vgpu.GiB, ComputeLimit: 100},
		}}}
		must.OK(t, n.Add(a))
	}
	return n
}

// subsets calls visit with each set of m of the devices.
func subsets(devices []int, m int, visit func(set []int)) {
	for bits := range 1 << len(devices) {
		var set []int
		for i, d := range devices {
			if bits&(1<<i) != 0 {
				set = append(set, d)
			}
		}
		if len(set) == m {
			visit(set)
		}
	}
}

// within adds up the quality of the links of all pairs.
func within(n *vgpu.Node, set []int) int64 {
	sum := int64(0)
	for a := range set {
		for b := range a {
			sum += placement.Quality(n.Link(set[a], set[b]))
		}
	}
	return sum
}

// splits returns the highest sum of the links inside groups of m over all ways to split a set.
func splits(n *vgpu.Node, set []int, m int) int64 {
	if len(set) == 0 {
		return 0
	}
	best := int64(-1)
	subsets(set, m, func(group []int) {
		rest := slices.DeleteFunc(slices.Clone(set), func(d int) bool { return slices.Contains(group, d) })
		best = max(best, within(n, group)+splits(n, rest, m))
	})
	return best
}

// paths returns the highest sum of the links between neighbours over all orders of a set.
func paths(n *vgpu.Node, last int, left []int) int64 {
	if len(left) == 0 {
		return 0
	}
	best := int64(-1)
	for at, d := range left {
		sum := paths(n, d, slices.Delete(slices.Clone(left), at, at+1))
		if last >= 0 {
			sum += placement.Quality(n.Link(last, d))
		}
		best = max(best, sum)
	}
	return best
}

// TestLinksProperty: on a node with any devices free, members of one or several whole devices have together a set of
// which the links add up to the most of all sets, split with the best links inside members, and single devices in the
// order of ranks along the best path.
func TestLinksProperty(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		link := matrices[pick(t, "matrix", "DGX-1", "NVSwitch", "PCIe", "bridges")]
		taken := number(t, "busy devices", 0, 255)
		n := eightDevices(t, "n1", link, func(i int) bool { return taken&(1<<i) != 0 })
		var free []int
		for i := range 8 {
			if taken&(1<<i) == 0 {
				free = append(free, i)
			}
		}
		each := number(t, "devices of a member", 1, 4)
		members := number(t, "members", 1, 8)
		if members*each > len(free) || members*each > 6 && each == 1 {
			return
		}
		plan := mustPlace(t, &gang.Cluster{Nodes: []*vgpu.Node{n}}, withoutHostRequests(benchGang(members, vgpu.Slots(10*each), nil, nil)), gang.Config{})
		if plan.Refused != nil {
			t.Fatal(plan.Refused)
		}
		var all []int
		inside, between, last := int64(0), int64(0), -1
		for i := range plan.Places {
			var own []int
			for _, id := range plan.Places[i].Containers[0].Devices {
				own = append(own, n.Index(id))
			}
			if each == 1 && last >= 0 {
				between += placement.Quality(n.Link(last, own[0]))
			}
			last, inside, all = own[0], inside+within(n, own), append(all, own...)
		}
		best := int64(-1)
		subsets(free, members*each, func(set []int) { best = max(best, within(n, set)) })
		if got := within(n, all); got != best {
			t.Fatalf("devices %v have links of %d, the best set of %v has %d", all, got, free, best)
		}
		if want := splits(n, all, each); inside != want {
			t.Fatalf("members have links of %d inside, the best split of %v has %d: %v", inside, all, want, where(plan.Places))
		}
		if want := paths(n, -1, all); each == 1 && between != want {
			t.Fatalf("neighbours in rank have links of %d, the best order of %v has %d: %v", between, all, want, where(plan.Places))
		}
	})
}

// withoutHostRequests returns the group without what its members ask of their hosts.
func withoutHostRequests(g *gang.Group) *gang.Group {
	for i := range g.Members {
		g.Members[i].Request.Host = vgpu.Room{}
	}
	return g
}

// TestLargeSplit: more devices than are compared in all ways are split greedily, and all members have a place.
func TestLargeSplit(t *testing.T) {
	var devices []vgpu.Device
	for i := range 16 {
		d := testkit.A100.Device("n1", i)
		for j := range i {
			if i%8 == j%8 {
				d.Links = append(d.Links, vgpu.Link{Peer: testkit.DeviceID("n1", j), Class: vgpu.LinkPIX})
			}
		}
		devices = append(devices, d)
	}
	n, err := vgpu.NewNode("n1", devices)
	must.OK(t, err)
	c := &gang.Cluster{Nodes: []*vgpu.Node{n}}
	plan := mustPlace(t, c, withoutHostRequests(benchGang(8, 20, nil, nil)), gang.Config{})
	for i := range plan.Places {
		if d := plan.Places[i].Containers[0].Devices; n.Index(d[0])%8 != n.Index(d[1])%8 {
			t.Errorf("member %d has %v, which no switch joins", i, d)
		}
	}
	plan = mustPlace(t, c, withoutHostRequests(benchGang(1, 160, nil, nil)), gang.Config{})
	if d := plan.Places[0].Containers[0].Devices; !slices.IsSorted(d) || len(d) != 16 {
		t.Errorf("devices %v are not sorted", d)
	}
	plan = mustPlace(t, c, withoutHostRequests(benchGang(16, 10, nil, nil)), gang.Config{})
	for i := 0; i < 16; i += 2 {
		a, b := n.Index(plan.Places[i].Containers[0].Devices[0]), n.Index(plan.Places[i+1].Containers[0].Devices[0])
		if a%8 != b%8 {
			t.Errorf("ranks %d and %d are on g%d and g%d, which no switch joins", i, i+1, a, b)
		}
	}
}
