package vgpu_test

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/tandem-gpu/tandem/internal/testkit"
	"github.com/tandem-gpu/tandem/pkg/vgpu"
	"github.com/tandem-gpu/tandem/test/must"
)

// wantError fails unless err has the text, "" for none.
func wantError(t *testing.T, err error, text string) {
	t.Helper()
	switch {
	case err == nil && text != "":
		t.Errorf("no error, want %q", text)
	case err != nil && (text == "" || !strings.Contains(err.Error(), text)):
		t.Errorf("error %q, want %q", err, text)
	}
}

func TestNewNode(t *testing.T) {
	with := func(change func(*vgpu.Device)) []vgpu.Device {
		devices := testkit.A100.Devices("n1", 2)
		change(&devices[1])
		return devices
	}
	tests := []struct {
		name, node string
		devices    []vgpu.Device
		want       string
	}{
		{"sound", "n1", testkit.A100.Devices("n1", 2), ""},
		{"no devices", "n1", nil, ""},
		{"two instances with one index", "n1", with(func(d *vgpu.Device) { d.Index = 0 }), ""},
		{"no name", "", nil, "make node: no name"},
		{"no ID", "n1", with(func(d *vgpu.Device) { d.ID = "" }), "make node n1: device with index 1 has no ID"},
		{"a device twice", "n1", with(func(d *vgpu.Device) { d.ID = "n1/g0" }), "make node n1: device n1/g0 appears twice"},
		{"no slots", "n1", with(func(d *vgpu.Device) { d.Slots = 0 }), "make node n1: device n1/g1 has 0 slots"},
		{"too many slots", "n1", with(func(d *vgpu.Device) { d.Slots = 1<<20 + 1 }), "has 1048577 slots"},
		{"negative memory", "n1", with(func(d *vgpu.Device) { d.Memory = -1 }), "has -1 bytes"},
		{"too much memory", "n1", with(func(d *vgpu.Device) { d.Memory = 1<<50 + 1 }), "bytes"},
		{"negative contexts", "n1", with(func(d *vgpu.Device) { d.Contexts = -1 }), "has -1 contexts"},
	}
	for _, tc := range tests {
		t.Run(tc.name, func(t *testing.T) {
			_, err := vgpu.NewNode(tc.node, tc.devices)
			wantError(t, err, tc.want)
		})
	}
}

// TestNodeOrder: devices are by index, those of one index by ID.
func TestNodeOrder(t *testing.T) {
	devices := testkit.A100.Devices("n1", 3)
	devices[0].Index, devices[2].Index = 1, 1
	n, err := vgpu.NewNode("n1", []vgpu.Device{devices[2], devices[1], devices[0]})
	must.OK(t, err)
	var got []vgpu.DeviceID
	for _, d := range n.Devices() {
		got = append(got, d.ID)
	}
	if diff := cmp.Diff([]vgpu.DeviceID{"n1/g0", "n1/g1", "n1/g2"}, got); diff != "" {
		t.Errorf("devices (-want +got):\n%s", diff)
	}
}

// TestNodeLink: a link that one end names counts for both, and of two the closer one.
func TestNodeLink(t *testing.T) {
	devices := testkit.A100.Devices("n1", 3)
	devices[0].Links = []vgpu.Link{{Peer: "n1/g1", Class: vgpu.LinkNVLink, Lanes: 2}, {Peer: "elsewhere", Class: vgpu.LinkPIX}}
	devices[1].Links = []vgpu.Link{{Peer: "n1/g0", Class: vgpu.LinkNVLink, Lanes: 4}, {Peer: "n1/g1", Class: vgpu.LinkPIX}}
	n, err := vgpu.NewNode("n1", devices)
	must.OK(t, err)
	want := vgpu.Link{Class: vgpu.LinkNVLink, Lanes: 4}
	for _, pair := range [][2]int{{0, 1}, {1, 0}} {
		if diff := cmp.Diff(want, n.Link(pair[0], pair[1])); diff != "" {
			t.Errorf("link %v (-want +got):\n%s", pair, diff)
		}
	}
	for _, pair := range [][2]int{{0, 2}, {2, 1}, {1, 1}} {
		if diff := cmp.Diff(vgpu.Link{}, n.Link(pair[0], pair[1])); diff != "" {
			t.Errorf("link %v (-want +got):\n%s", pair, diff)
		}
	}
}

// TestAddMalformed: Add books no malformed assignment.
func TestAddMalformed(t *testing.T) {
	tests := []struct {
		name   string
		change func(*vgpu.Assignment)
		want   string
	}{
		{"sound", func(*vgpu.Assignment) {}, ""},
		{"no UID", func(a *vgpu.Assignment) { a.UID = "" }, "no UID"},
		{"another node", func(a *vgpu.Assignment) { a.Node = "n2" }, `it names node "n2"`},
		{"no containers", func(a *vgpu.Assignment) { a.Containers = nil }, "no containers"},
		{"a container twice", func(a *vgpu.Assignment) { a.Containers = append(a.Containers, a.Containers[0]) }, "container c0: listed twice"},
		{"unknown kind", func(a *vgpu.Assignment) { a.Containers[0].Kind = 7 }, "unknown kind 7"},
		{"unknown device", func(a *vgpu.Assignment) { a.Containers[0].Devices = []vgpu.DeviceID{"x"} }, "unknown device x"},
		{"no device", func(a *vgpu.Assignment) { a.Containers[0].Devices = nil }, "0 devices for a share of 1"},
		{"no slots", func(a *vgpu.Assignment) { a.Containers[0].Share.Slots = 0 }, "0 slots of 10"},
		{"more slots than the device", func(a *vgpu.Assignment) { a.Containers[0].Share.Slots = 11 }, "11 slots of 10"},
		{"negative memory", func(a *vgpu.Assignment) { a.Containers[0].Share.Memory = -1 }, "-1 of 40Gi memory"},
		{"more memory than the device", func(a *vgpu.Assignment) { a.Containers[0].Share.Memory = 41 * vgpu.GiB }, "41Gi of 40Gi memory"},
		{"a share of two devices", func(a *vgpu.Assignment) {
			a.Containers[0].Devices, a.Containers[0].Share.Devices = []vgpu.DeviceID{"n1/g0", "n1/g1"}, 2
		}, "takes 3 of 10 slots, not whole devices"},
		{"compute limit below the request", func(a *vgpu.Assignment) { a.Containers[0].Share.ComputeLimit = 290 }, "ComputeLimitBelowRequest"},
		{"memory limit below the request", func(a *vgpu.Assignment) { a.Containers[0].Share.MemoryLimit = vgpu.GiB }, "MemoryLimitBelowRequest"},
		{"limit above the device", func(a *vgpu.Assignment) { a.Containers[0].Share.ComputeLimit = 1010 }, "LimitAboveDevice"},
	}
	for _, tc := range tests {
		t.Run(tc.name, func(t *testing.T) {
			n := testkit.Node(t, "n1", testkit.A100, 2)
			a := testkit.Assignment(t, n, 0, "a", 3)
			tc.change(&a)
			wantError(t, n.Add(a), tc.want)
			wantError(t, n.Hold(vgpu.Hold{Assignment: a}), tc.want)
			if tc.want != "" && (len(n.Assignments()) != 0 || len(n.Holds()) != 0 || n.Used(0) != vgpu.Use{}) {
				t.Errorf("something is booked: %+v %+v", n.Assignments(), n.Holds())
			}
			if err := n.Check(); err != nil {
				t.Error(err)
			}
		})
	}
}

// TestRoomBeside: of two devices of 10 slots, one of which has 4 taken, 16 are free on the node, less those that are stray.
func TestRoomBeside(t *testing.T) {
	n := testkit.Node(t, "n1", testkit.A100, 2)
	must.OK(t, n.Add(testkit.Assignment(t, n, 0, "ns/p", 4)))
	for _, c := range []struct {
		stray, wants vgpu.Slots
		want         bool
	}{{0, 20, true}, {2, 14, true}, {2, 15, false}, {16, 0, true}, {17, 0, false}} {
		r := &vgpu.Request{Containers: []vgpu.ContainerRequest{{Name: "c", Slots: c.wants}}}
		if got := n.RoomBeside(c.stray, r); got != c.want {
			t.Errorf("%d slots beside %d stray ones: %t", c.wants, c.stray, got)
		}
	}
}

// TestClone: a clone and its origin do not see each other's changes.
func TestClone(t *testing.T) {
	n := testkit.Node(t, "n1", testkit.A100, 2)
	must.OK(t, n.Add(testkit.Assignment(t, n, 0, "a", 3)))
	must.OK(t, n.Hold(vgpu.Hold{Assignment: testkit.Assignment(t, n, 1, "h", 4)}))
	c := n.Clone()
	before := dump(testkit.Cluster(t, c.Clone()))
	n.Remove("a")
	n.Release("h")
	must.OK(t, n.Add(testkit.Assignment(t, n, 1, "b", 10)))
	if diff := cmp.Diff(before, dump(testkit.Cluster(t, c))); diff != "" {
		t.Errorf("the clone changed (-before +after):\n%s", diff)
	}
	for _, each := range []*vgpu.Node{n, c} {
		if err := each.Check(); err != nil {
			t.Error(err)
		}
	}
}

func TestNewCluster(t *testing.T) {
	pod := func(n *vgpu.Node) *vgpu.Node {
		must.OK(t, n.Add(testkit.Assignment(t, n, 0, "a", 3)))
		return n
	}
	node := func(name string) *vgpu.Node { return testkit.Node(t, name, testkit.A100, 1) }
	owned := node("n9")
	testkit.Cluster(t, owned)
	sameDevice, err := vgpu.NewNode("n2", testkit.A100.Devices("n1", 1))
	must.OK(t, err)
	tests := []struct {
		name  string
		nodes []*vgpu.Node
		want  string
	}{
		{"sound", []*vgpu.Node{node("n2"), pod(node("n1"))}, ""},
		{"a node twice", []*vgpu.Node{node("n1"), node("n1")}, "node n1 appears twice"},
		{"a node of another cluster", []*vgpu.Node{owned}, "node n9 belongs to another cluster"},
		{"a device twice", []*vgpu.Node{node("n1"), sameDevice}, "device n1/g0 is on node n1 and on n2"},
		{"a pod twice", []*vgpu.Node{pod(node("n1")), pod(node("n2"))}, "pod a is on node n1 and on n2"},
	}
	for _, tc := range tests {
		t.Run(tc.name, func(t *testing.T) {
			_, err := vgpu.NewCluster(tc.nodes...)
			wantError(t, err, tc.want)
		})
	}
}

// TestWhatIfPanic: a panic inside a what-if leaves no trace either.
func TestWhatIfPanic(t *testing.T) {
	c := testkit.Cluster(t, testkit.Node(t, "n1", testkit.A100, 1))
	before := dump(c)
	func() {
		defer func() {
			if recover() == nil {
				t.Error("the panic is gone")
			}
		}()
		c.WhatIf(func() {
			if err := c.Add(testkit.Assignment(t, c.Node("n1"), 0, "a", 3)); err != nil {
				t.Error(err)
			}
			panic("broken invariant")
		})
	}()
	if diff := cmp.Diff(before, dump(c)); diff != "" {
		t.Errorf("the what-if left a trace (-before +after):\n%s", diff)
	}
	if err := c.Check(); err != nil {
		t.Error(err)
	}
}

// TestClusterUnknown: an unknown node or pod gives an error or false.
func TestClusterUnknown(t *testing.T) {
	c := testkit.Cluster(t, testkit.Node(t, "n1", testkit.A100, 1))
	a := testkit.Assignment(t, c.Node("n1"), 0, "a", 3)
	a.Node = "n7"
	wantError(t, c.Add(a), `add assignment of pod a: unknown node "n7"`)
	wantError(t, c.Hold(vgpu.Hold{Assignment: a}), `hold room for pod a: unknown node "n7"`)
	if c.Node("n7") != nil || c.Remove("a") || c.Release("a") {
		t.Error("something that is not there was found")
	}
}

func TestRequestValidate(t *testing.T) {
	tests := []struct {
		name   string
		change func(*vgpu.Request)
		want   string
	}{
		{"sound", func(*vgpu.Request) {}, ""},
		{"no UID", func(r *vgpu.Request) { r.UID = "" }, "no UID"},
		{"no containers", func(r *vgpu.Request) { r.Containers = nil }, "no container asks for slots"},
		{"a container twice", func(r *vgpu.Request) { r.Containers[1].Name = "c0" }, `container "c0" appears twice`},
		{"an init container after an app", func(r *vgpu.Request) { r.Containers[1].Kind = vgpu.Init }, `container "c1" runs before the app containers`},
		{"an unknown kind", func(r *vgpu.Request) { r.Containers[1].Kind = 7 }, "unknown kind 7"},
		{"no slots", func(r *vgpu.Request) { r.Containers[1].Slots = 0 }, `container "c1" asks for 0 slots`},
		{"negative memory", func(r *vgpu.Request) { r.Containers[1].Memory = -1 }, `container "c1" asks for -1 bytes`},
		{"negative compute limit", func(r *vgpu.Request) { r.ComputeLimit = -1 }, "compute limit -1 is negative"},
		{"negative memory limit", func(r *vgpu.Request) { r.MemoryLimit = -1 }, "memory limit -1 is negative"},
	}
	for _, tc := range tests {
		t.Run(tc.name, func(t *testing.T) {
			r := testkit.Request("p", 3, 2)
			tc.change(r)
			wantError(t, r.Validate(), tc.want)
		})
	}
}

func TestAmounts(t *testing.T) {
	for want, amount := range map[string]vgpu.Bytes{
		"0": 0, "7": 7, "1Mi": vgpu.MiB, "1.50Mi": vgpu.MiB * 3 / 2, "1536Mi": vgpu.GiB * 3 / 2, "16Gi": 16 * vgpu.GiB, "6.86Gi": 7362801078,
	} {
		if got := amount.String(); got != want {
			t.Errorf("%d bytes are %q, want %q", int64(amount), got, want)
		}
	}
	for want, amount := range map[string]vgpu.MilliGPU{"0%": 0, "30%": 300, "42.5%": 425, "100%": 1000} {
		if got := amount.String(); got != want {
			t.Errorf("%d milli-GPU are %q, want %q", int64(amount), got, want)
		}
	}
}

// TestOnly: the excluded devices take no new share and keep what they have; the node itself does not change.
func TestOnly(t *testing.T) {
	n := testkit.Node(t, "n1", testkit.A100, 3)
	must.OK(t, n.Add(testkit.Assignment(t, n, 0, "a", 4)))
	if sick := n.Only(func(i int) bool { return i > 0 }).Only(func(i int) bool { return i < 2 }); sick.FreeFor(0, &vgpu.Request{}).Slots != 0 {
		t.Error("a sick device takes something")
	}
	only := n.Only(func(i int) bool { return i == 1 })
	for i, want := range []vgpu.Slots{0, 10, 0} {
		if got := only.FreeFor(i, &vgpu.Request{}).Slots; got != want {
			t.Errorf("device %d has %d slots free, want %d", i, got, want)
		}
	}
	if got := only.Used(0).Slots; got != 4 {
		t.Errorf("device 0 has %d slots used, want 4", got)
	}
	must.OK(t, only.Add(testkit.Assignment(t, only, 1, "b", 10)))
	for i, want := range []vgpu.Slots{6, 10, 10} {
		if got := n.FreeFor(i, &vgpu.Request{}).Slots; got != want {
			t.Errorf("device %d of the node has %d slots free, want %d", i, got, want)
		}
	}
}

// TestWithout: the pods and holds for which leaves is true are missing in the clone, whose ledger adds up; the node
// does not change.
func TestWithout(t *testing.T) {
	n := testkit.Node(t, "n1", testkit.A100, 2)
	for i, pod := range []string{"a", "b"} {
		must.OK(t, n.Add(testkit.Assignment(t, n, i, pod, 4)))
	}
	for i, pod := range []string{"c", "d"} {
		must.OK(t, n.Hold(vgpu.Hold{Assignment: testkit.Assignment(t, n, i, pod, 3)}))
	}
	left := n.Without(func(h *vgpu.Hold, held bool) bool { return h.UID == "a" && !held || h.UID == "d" && held })
	for _, ledger := range []*vgpu.Node{left, n} {
		if err := ledger.Check(); err != nil {
			t.Error(err)
		}
	}
	free := func(n *vgpu.Node) []vgpu.Slots {
		return []vgpu.Slots{n.FreeFor(0, &vgpu.Request{}).Slots, n.FreeFor(1, &vgpu.Request{}).Slots}
	}
	if diff := cmp.Diff([]vgpu.Slots{7, 6}, free(left)); diff != "" {
		t.Errorf("free once they have left (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff([]vgpu.Slots{3, 3}, free(n)); diff != "" {
		t.Errorf("free of the node (-want +got):\n%s", diff)
	}
	if left.Remove("b"); len(n.Assignments()) != 2 {
		t.Errorf("the node has %v", n.Assignments())
	}
}

// TestHealed: all devices of the clone take shares; a node with healthy devices only is returned itself.
func TestHealed(t *testing.T) {
	devices := testkit.A100.Devices("n1", 2)
	devices[1].Healthy = false
	n, err := vgpu.NewNode("n1", devices)
	must.OK(t, err)
	if free := n.Healed().FreeFor(1, &vgpu.Request{}).Slots; free != 10 {
		t.Errorf("the healed device has %d slots free", free)
	}
	if free := n.FreeFor(1, &vgpu.Request{}).Slots; free != 0 {
		t.Errorf("the sick device has %d slots free", free)
	}
	if healed := n.Healed(); healed.Healed() != healed {
		t.Error("a healthy node is copied")
	}
}
