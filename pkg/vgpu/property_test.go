package vgpu_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/tandem-gpu/tandem/internal/testkit"
	"github.com/tandem-gpu/tandem/pkg/vgpu"
)

// dump writes all that the ledger of a cluster answers.
func dump(c *vgpu.Cluster) string {
	var b strings.Builder
	for _, n := range c.Nodes() {
		taken, of := n.Taken()
		fmt.Fprintf(&b, "%s %d of %d\n%+v\n%+v\n", n.Name(), taken, of, n.Assignments(), n.Holds())
		for i := range n.Devices() {
			fmt.Fprintf(&b, "%v %v %v %v\n", n.Used(i), n.FreeFor(i, &vgpu.Request{}), n.FreeFor(i, &vgpu.Request{Priority: 1, UID: "pod-1"}), n.FreeFor(i, &vgpu.Request{Priority: 2, UID: "pod-2"}))
		}
	}
	return b.String()
}

// twin is the ledger as a list: everything is added up from the start at each question.
type twin struct{ pods, holds []vgpu.Hold }

func (w *twin) list(hold bool) *[]vgpu.Hold {
	if hold {
		return &w.holds
	}
	return &w.pods
}

// has reports whether a pod is in a list, on a node or ("") anywhere.
func has(list []vgpu.Hold, uid vgpu.UID, node string) bool {
	return slices.ContainsFunc(list, func(h vgpu.Hold) bool { return h.UID == uid && (node == "" || h.Node == node) })
}

// peakOf adds a pod up on one device: for each moment, the containers that run then. Moment i is the i-th container's
// turn; the last one is that of the app containers.
func peakOf(a *vgpu.Assignment, d vgpu.DeviceID) (peak vgpu.Use) {
	for moment := range len(a.Containers) + 1 {
		var sum vgpu.Use
		for i, c := range a.Containers {
			runs := moment == len(a.Containers) && c.Kind != vgpu.Init
			switch {
			case moment == len(a.Containers):
			case a.Containers[moment].Kind != vgpu.Init:
			case i == moment || (i < moment && c.Kind == vgpu.Sidecar):
				runs = true
			}
			if !runs || !slices.Contains(c.Devices, d) {
				continue
			}
			sum.Slots, sum.Memory = sum.Slots+c.Share.Slots, sum.Memory+c.Share.Memory
			if len(c.Devices) == 1 {
				sum.Contexts++
			}
		}
		peak = vgpu.Use{
			Slots: max(peak.Slots, sum.Slots), Memory: max(peak.Memory, sum.Memory), Contexts: max(peak.Contexts, sum.Contexts),
		}
	}
	return peak
}

// used adds up a device, with the holds that count for a pod unless it is nil.
func (w *twin) used(d vgpu.DeviceID, node string, r *vgpu.Request) (sum vgpu.Use) {
	add := func(u vgpu.Use) {
		sum = vgpu.Use{Slots: sum.Slots + u.Slots, Memory: sum.Memory + u.Memory, Contexts: sum.Contexts + u.Contexts}
	}
	for i := range w.pods {
		add(peakOf(&w.pods[i].Assignment, d))
	}
	for i := range w.holds {
		h := &w.holds[i]
		if r == nil || h.Priority < r.Priority || h.UID == r.UID || has(w.pods, h.UID, node) {
			continue
		}
		if r.Ends == 0 || r.Ends > h.Until {
			add(peakOf(&h.Assignment, d))
		}
	}
	return sum
}

func within(u vgpu.Use, d *vgpu.Device) bool {
	return u.Slots <= d.Slots && u.Memory <= d.Memory && (d.Contexts == 0 || u.Contexts <= d.Contexts)
}

// accepts says whether the ledger has to take an assignment, or a hold.
func (w *twin) accepts(n *vgpu.Node, h vgpu.Hold, hold bool) bool {
	if has(*w.list(hold), h.UID, "") {
		return false
	}
	for i := range n.Devices() {
		d := &n.Devices()[i]
		alone := peakOf(&h.Assignment, d.ID)
		sum := alone
		if !hold {
			u := w.used(d.ID, n.Name(), nil)
			sum = vgpu.Use{Slots: u.Slots + alone.Slots, Memory: u.Memory + alone.Memory, Contexts: u.Contexts + alone.Contexts}
		}
		if !within(sum, d) {
			return false
		}
	}
	return true
}

// compare holds the ledger to its twin, and both to the laws: never over capacity in slots, memory, contexts or compute;
// a share never spans devices.
func (w *twin) compare(t *rapid.T, c *vgpu.Cluster) {
	if err := c.Check(); err != nil {
		t.Fatal(err)
	}
	for _, n := range c.Nodes() {
		for i := range n.Devices() {
			d := &n.Devices()[i]
			u := w.used(d.ID, n.Name(), nil)
			if n.Used(i) != u {
				t.Fatalf("%s is used %v, the twin says %v", d.ID, n.Used(i), u)
			}
			if !within(u, d) || vgpu.WholeGPU*vgpu.MilliGPU(u.Slots)/vgpu.MilliGPU(d.Slots) > vgpu.WholeGPU {
				t.Fatalf("%s is over capacity: %v", d.ID, u)
			}
			w.compareFree(t, n, i)
		}
		for _, a := range n.Assignments() {
			for _, k := range a.Containers {
				if len(k.Devices) > 1 && !k.Share.Whole(n.Devices()[n.Index(k.Devices[0])].Slots) {
					t.Fatalf("the share of pod %s spans devices: %+v", a.Pod, k)
				}
			}
		}
	}
}

func (w *twin) compareFree(t *rapid.T, n *vgpu.Node, i int) {
	ends := int64(rapid.IntRange(0, 3).Draw(t, "ends"))
	d := &n.Devices()[i]
	for priority := range int32(4) {
		for _, self := range []vgpu.UID{"", "pod-1"} {
			r := vgpu.Request{Priority: priority, UID: self, Ends: ends}
			u := w.used(d.ID, n.Name(), &r)
			want := vgpu.Use{Slots: max(0, d.Slots-u.Slots), Memory: max(0, d.Memory-u.Memory), Contexts: max(0, d.Contexts-u.Contexts)}
			if d.Contexts == 0 {
				want.Contexts = vgpu.UnlimitedContexts
			}
			if !d.Healthy {
				want = vgpu.Use{}
			}
			if got := n.FreeFor(i, &r); got != want {
				t.Fatalf("%s has %v free for priority %d and pod %q that ends at %d, the twin says %v", d.ID, got, priority, self, ends, want)
			}
		}
	}
}

// step does one drawn thing to the ledger and its twin. A what-if goes one level deeper, up to three.
func (w *twin) step(t *rapid.T, c *vgpu.Cluster, depth int) {
	uid := vgpu.UID(fmt.Sprintf("pod-%d", rapid.IntRange(0, 5).Draw(t, "pod")))
	hold := rapid.Bool().Draw(t, "hold")
	switch what := rapid.SampledFrom([]int{0, 1, 2, 3, 4, 5, 6, 7}).Draw(t, "what"); {
	case what < 4:
		w.add(t, c, uid, hold)
	case what < 7:
		remove := c.Remove
		if hold {
			remove = c.Release
		}
		if got, want := remove(uid), has(*w.list(hold), uid, ""); got != want {
			t.Fatalf("removed pod %s: %v, the twin says %v", uid, got, want)
		}
		list := w.list(hold)
		*list = slices.DeleteFunc(*list, func(h vgpu.Hold) bool { return h.UID == uid })
	case depth < 3:
		before := dump(c)
		c.WhatIf(func() {
			inner := &twin{slices.Clone(w.pods), slices.Clone(w.holds)}
			for range rapid.IntRange(0, 5).Draw(t, "steps") {
				inner.step(t, c, depth+1)
			}
		})
		if diff := cmp.Diff(before, dump(c)); diff != "" {
			t.Fatalf("a what-if left a trace (-before +after):\n%s", diff)
		}
	}
	w.compare(t, c)
}

func (w *twin) add(t *rapid.T, c *vgpu.Cluster, uid vgpu.UID, hold bool) {
	r := testkit.RandomRequest(t, string(uid), 3)
	n := rapid.SampledFrom(c.Nodes()).Draw(t, "node")
	a, ok := testkit.RandomAssignment(t, n, r)
	if !ok {
		return
	}
	h := vgpu.Hold{Assignment: a, Priority: r.Priority, Until: int64(rapid.IntRange(0, 2).Draw(t, "until"))}
	want := w.accepts(n, h, hold)
	var err error
	if hold {
		err = c.Hold(h)
	} else {
		err = c.Add(a)
	}
	if (err == nil) != want {
		t.Fatalf("add pod %s (hold %v): %v, the twin says %v", uid, hold, err, want)
	}
	if want {
		*w.list(hold) = append(*w.list(hold), h)
	}
}

// TestLedgerProperty: any sequence of add, hold, remove, release and what-if keeps the ledger within the capacity of the
// devices and equal to a twin that adds everything up from the start; a what-if leaves no trace, also nested.
func TestLedgerProperty(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		c := testkit.RandomCluster(t, 2, 3)
		w := &twin{}
		for range rapid.IntRange(1, 12).Draw(t, "steps") {
			w.step(t, c, 0)
		}
	})
}

// TestLegalProperty: a legal share lies within its device, has the slots asked for, and its limits not below its request;
// the values that a refusal names are legal, and none between them is.
func TestLegalProperty(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		d := vgpu.Device{
			ID: "d", Model: "M", Healthy: true,
			Slots: vgpu.Slots(rapid.IntRange(1, 40).Draw(t, "N")), Memory: vgpu.Bytes(rapid.IntRange(0, 1000).Draw(t, "memory")),
		}
		c := vgpu.ContainerRequest{
			Name: "main", Slots: vgpu.Slots(rapid.IntRange(1, 130).Draw(t, "k")),
			Memory: vgpu.Bytes(rapid.IntRange(0, 1200).Draw(t, "asked memory")),
		}
		s, refusal := c.On(&d, 0, 0)
		if refusal != nil {
			refusedRightly(t, &d, &c, refusal)
			return
		}
		if err := d.Admits(s); err != nil {
			t.Fatalf("share %+v: %v", s, err)
		}
		if vgpu.Slots(s.Devices)*s.Slots != c.Slots || vgpu.Bytes(s.Devices)*s.Memory < c.Memory {
			t.Fatalf("share %+v is not what %+v asks for", s, c)
		}
		if c.Memory > 0 && vgpu.Bytes(s.Devices)*(s.Memory-1) >= c.Memory {
			t.Fatalf("share %+v has more memory than %+v asks for", s, c)
		}
		if c.Memory == 0 && (s.Memory*vgpu.Bytes(d.Slots) > d.Memory*vgpu.Bytes(s.Slots) || (s.Memory+1)*vgpu.Bytes(d.Slots) <= d.Memory*vgpu.Bytes(s.Slots)) {
			t.Fatalf("share %+v has no memory in proportion of %+v", s, d)
		}
	})
}

func refusedRightly(t *rapid.T, d *vgpu.Device, c *vgpu.ContainerRequest, refusal *vgpu.Refusal) {
	legal := func(k vgpu.Slots) bool {
		_, ok := (&vgpu.ContainerRequest{Slots: k}).ShareOn(d, 0, 0)
		return ok
	}
	switch refusal.Reason {
	case vgpu.IllegalSlots:
		low, high := refusal.Legal[0], refusal.Legal[1]
		if low >= c.Slots || high <= c.Slots {
			t.Fatalf("%d slots of %d: %v do not lie around", c.Slots, d.Slots, refusal.Legal)
		}
		for k := low; k <= high; k++ {
			if legal(k) != (k == low || k == high) {
				t.Fatalf("%d slots of %d: %v are not the nearest legal values: %d", c.Slots, d.Slots, refusal.Legal, k)
			}
		}
	case vgpu.MemoryAboveDevice:
		if devices := max(1, c.Slots/d.Slots); c.Memory <= d.Memory*vgpu.Bytes(devices) {
			t.Fatalf("%v on %d devices of %v is legal", c.Memory, devices, d.Memory)
		}
	default:
		t.Fatalf("unexpected reason %s", refusal.Reason)
	}
}

// TestShuffleProperty: the order in which devices, nodes and pods arrive does not matter.
func TestShuffleProperty(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		c := testkit.RandomCluster(t, 3, 3)
		testkit.Fill(t, c, 6)
		if diff := cmp.Diff(dump(c), dump(testkit.Shuffled(t, c))); diff != "" {
			t.Fatalf("shuffling changed the ledger (-before +after):\n%s", diff)
		}
	})
}
