package vgpu

import (
	"strings"
	"testing"

	"github.com/tandem-gpu/tandem/test/must"
)

// TestCheckFinds breaks each thing that Check adds up again, and expects it to be found.
func TestCheckFinds(t *testing.T) {
	share := Share{Devices: 1, Slots: 3, Memory: 12 * GiB, ComputeLimit: 300, MemoryLimit: 12 * GiB}
	pod := func(uid UID) Assignment {
		return Assignment{UID: uid, Pod: string(uid), Node: "n1", Containers: []ContainerAssignment{
			{Name: "c0", Devices: []DeviceID{"d0"}, Share: share},
		}}
	}
	tests := []struct {
		name string
		do   func(*Cluster, *Node)
		want string
	}{
		{"nothing", func(*Cluster, *Node) {}, ""},
		{"a sum of slots", func(_ *Cluster, n *Node) { n.used[0].Slots-- }, "ledger adds up to"},
		{"a sum of memory", func(_ *Cluster, n *Node) { n.used[0].Memory++ }, "ledger adds up to"},
		{"the slots of the node", func(_ *Cluster, n *Node) { n.taken++ }, "slots in the ledger"},
		{"the order", func(_ *Cluster, n *Node) { n.pods[0], n.pods[1] = n.pods[1], n.pods[0] }, "out of order"},
		{"what a pod was noted with", func(_ *Cluster, n *Node) { n.pods[0].uses = nil }, "noted"},
		{"what holds keep", func(_ *Cluster, n *Node) { n.heldUses[0] = nil }, "holds keep"},
		{"capacity", func(_ *Cluster, n *Node) { n.devices[0].Slots = 5 }, "it has"},
		{"a lost pod", func(c *Cluster, _ *Node) { delete(c.assigned, "a") }, "not in the index"},
		{"a stale pod", func(c *Cluster, n *Node) { c.held["x"] = n }, "the index has"},
		{"a change left in the journal", func(c *Cluster, n *Node) { c.journal = append(c.journal, change{node: n}) }, "journal"},
	}
	for _, tc := range tests {
		t.Run(tc.name, func(t *testing.T) {
			n, err := NewNode("n1", []Device{{ID: "d0", Slots: 10, Memory: 40 * GiB, Contexts: 48, Healthy: true}})
			must.OK(t, err)
			c, err := NewCluster(n)
			must.OK(t, err)
			for _, err := range []error{c.Add(pod("a")), c.Add(pod("b")), c.Hold(Hold{Assignment: pod("c")})} {
				must.OK(t, err)
			}
			tc.do(c, n)
			err = c.Check()
			if (err == nil) != (tc.want == "") || (err != nil && !strings.Contains(err.Error(), tc.want)) {
				t.Errorf("error %v, want %q", err, tc.want)
			}
		})
	}
}
