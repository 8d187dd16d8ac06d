package snapshot_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/tandem-gpu/tandem/internal/cluster/snapshotjson"
	"github.com/tandem-gpu/tandem/internal/testkit"
	"github.com/tandem-gpu/tandem/pkg/placement"
	"github.com/tandem-gpu/tandem/pkg/snapshot"
	"github.com/tandem-gpu/tandem/pkg/vgpu"
	"github.com/tandem-gpu/tandem/test/must"
)

// drawCluster draws a cluster whose pods have namespaces, as in a real one.
func drawCluster(t *rapid.T) *vgpu.Cluster {
	c := testkit.RandomCluster(t, 3, 4)
	testkit.Furnish(t, c)
	for i := range rapid.IntRange(0, 8).Draw(t, "pods") {
		r := testkit.RandomRequest(t, fmt.Sprintf("%s/pod-%d", drawNamespace(t), i), 2)
		r.UID = vgpu.UID(fmt.Sprintf("uid-%d", i))
		r.Workload = 0
		n := rapid.SampledFrom(c.Nodes()).Draw(t, "node")
		a, ok := testkit.RandomAssignment(t, n, r)
		if ok {
			a.Containers[0].Asked = vgpu.Slots(rapid.IntRange(0, 1).Draw(t, "asked"))
		}
		switch {
		case !ok:
		case rapid.Bool().Draw(t, "hold"):
			_ = c.Hold(vgpu.Hold{Assignment: a, Priority: r.Priority, Until: rapid.SampledFrom([]int64{0, 1e9}).Draw(t, "until")}) // too large ones stay out
		default:
			_ = c.Add(a)
		}
	}
	return c
}

// drawNamespace draws a namespace: hidden ones have a mark in every name in them.
func drawNamespace(t *rapid.T) string {
	return rapid.SampledFrom([]string{"seen-a", "seen-b", "zqx-a", "zqx-b"}).Draw(t, "namespace")
}

func visible(namespace string) bool { return strings.HasPrefix(namespace, "seen-") }

// drawSnapshot draws a snapshot with everything that a scheduler writes. All names in a hidden namespace have the mark.
func drawSnapshot(t *rapid.T) (*snapshot.Snapshot, *vgpu.Cluster) {
	c := drawCluster(t)
	s := &snapshot.Snapshot{Source: snapshot.FromScheduler, At: time.Unix(1e9, 0).UTC(), PendingLeftOut: 3}
	mark := func(namespace, name string) string {
		if visible(namespace) {
			return name
		}
		return "zqx-" + name
	}
	gangs := 0
	gangOf := func(namespace string) *snapshot.GangName {
		if rapid.Bool().Draw(t, "alone") {
			return nil
		}
		gangs++
		return &snapshot.GangName{Source: "label", Namespace: namespace, Name: mark(namespace, fmt.Sprintf("gang-%d", gangs))}
	}
	furnish := func(p *snapshot.Pod) {
		p.Gang, p.Workload, p.Name.Name = gangOf(p.Namespace), mark(p.Namespace, "profile"), mark(p.Namespace, p.Name.Name)
		p.Owners = []string{"Job/" + mark(p.Namespace, "owner")}
		for k := range p.Containers {
			p.Containers[k].Name = mark(p.Namespace, p.Containers[k].Name)
		}
	}
	for _, n := range c.Nodes() {
		node := snapshot.NodeOf(n)
		for i := range node.Pods {
			furnish(&node.Pods[i])
		}
		for i := range node.Holds {
			furnish(&node.Holds[i].Pod)
		}
		if len(node.Devices) > 0 {
			in := drawNamespace(t)
			node.Devices[0].Note = "zqx-note"
			node.Overbooked = []snapshot.Overbooked{{
				Name: snapshot.Name{Namespace: in, Name: mark(in, "o"), UID: vgpu.UID("o-" + n.Name())}, Devices: []vgpu.DeviceID{node.Devices[0].ID}, Slots: 1,
			}}
		}
		s.Nodes = append(s.Nodes, node)
	}
	for i := range rapid.IntRange(0, 4).Draw(t, "others") {
		in, beside := drawNamespace(t), drawNamespace(t)
		pod := snapshot.Name{Namespace: in, Name: mark(in, "p"), UID: vgpu.UID(fmt.Sprintf("w-%d", i))}
		other := snapshot.Name{Namespace: beside, Name: mark(beside, "v"), UID: vgpu.UID(fmt.Sprintf("v-%d", i))}
		gang := snapshot.GangName{Namespace: in, Name: mark(in, fmt.Sprintf("g-%d", i))}
		s.Gangs = append(s.Gangs, snapshot.Gang{
			GangName: gang, Message: mark(beside, "why"), Places: []snapshot.Place{{Name: pod, Node: "n0"}},
			RequiredTopology: []string{mark(in, "rack")}, PreferredTopology: []string{mark(in, "zone")},
		})
		s.Preemptions = append(s.Preemptions,
			snapshot.Preemption{Pod: &pod, Phase: "Leaving", Victims: []snapshot.Place{{Name: other, Node: "n0"}}},
			snapshot.Preemption{Gang: &gang, Phase: "Leaving", Victims: []snapshot.Place{{Name: other, Node: "n0"}}})
		s.ElasticTargets = append(s.ElasticTargets, snapshot.ElasticTarget{GangName: gang})
		s.InferenceFleets = append(s.InferenceFleets, snapshot.InferenceFleet{
			Namespace: in, Name: mark(in, fmt.Sprintf("f-%d", i)), Variants: []snapshot.Variant{{Name: mark(in, "v")}},
		})
		refusal := vgpu.Refusal{
			Reason: vgpu.PromiseBroken, Helps: vgpu.EvictionHelps, Container: mark(in, "c0"), Promised: other.Path(), Beside: []string{other.Path(), "zqx-gone/p"},
		}
		request := &vgpu.Request{Containers: []vgpu.ContainerRequest{{Name: mark(in, "c0"), Slots: 1}}}
		s.Pending = append(s.Pending, snapshot.Pending{
			Name: pod, Gang: &gang, Workload: mark(in, "profile"), Gates: []string{mark(in, "gate")}, Owners: []string{"Job/" + mark(in, "owner")}, Request: snapshot.RequestOf(request, 0),
			Refused: &snapshot.Refused{Message: mark(beside, "why"), Illegal: mark(beside, "illegal"), Nearest: snapshot.RefusalOf(&refusal)},
		})
	}
	s.Sort()
	return s, c
}

func write(t must.T, s *snapshot.Snapshot) string {
	raw, err := snapshotjson.Write(s)
	must.OK(t, err)
	return string(raw)
}

// A cluster comes back from the JSON of its snapshot as it was: each pod and hold with its shares, links, rooms, and what fits.
func TestClusterComesBack(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		before := drawCluster(t)
		s := &snapshot.Snapshot{Source: snapshot.FromSimulator}
		for _, n := range before.Nodes() {
			s.Nodes = append(s.Nodes, snapshot.NodeOf(n))
		}
		raw := write(t, s)
		read, err := snapshotjson.Read([]byte(raw))
		if err != nil {
			t.Fatalf("%v\n%s", err, raw)
		}
		if again := write(t, read); again != raw {
			t.Fatalf("other bytes after reading (-first +second):\n%s", cmp.Diff(raw, again))
		}
		after, err := read.Cluster()
		must.OK(t, err)
		must.OK(t, after.Check())
		for i, n := range before.Nodes() {
			m := after.Nodes()[i]
			if diff := cmp.Diff(n.Assignments(), m.Assignments()) + cmp.Diff(n.Holds(), m.Holds()); diff != "" {
				t.Fatalf("node %s (-before +after):\n%s", n.Name(), diff)
			}
			if n.Room() != m.Room() {
				t.Fatalf("node %s has the room %v, had %v", n.Name(), m.Room(), n.Room())
			}
			for k := range n.Devices() {
				for l := range n.Devices() {
					if n.Link(k, l) != m.Link(k, l) {
						t.Fatalf("link %d-%d of node %s is %v, was %v", k, l, n.Name(), m.Link(k, l), n.Link(k, l))
					}
				}
			}
		}
		comparePlacements(t, before, after)
	})
}

// comparePlacements compares what fits on two clusters, and where.
func comparePlacements(t *rapid.T, before, after *vgpu.Cluster) {
	r := testkit.RandomRequest(t, "seen-a/new", 2)
	r.Workload = 0
	policy, err := placement.ByName(rapid.SampledFrom([]string{"packed", "bestfit", "spread"}).Draw(t, "policy"))
	must.OK(t, err)
	for i, n := range before.Nodes() {
		m := after.Nodes()[i]
		if diff := cmp.Diff(placement.Fit(n, r), placement.Fit(m, r)); diff != "" {
			t.Fatalf("fit on node %s (-before +after):\n%s", n.Name(), diff)
		}
		want, refused := placement.Assign(n, r, policy)
		got, refusedAfter := placement.Assign(m, r, policy)
		if diff := cmp.Diff(want, got) + cmp.Diff(refused, refusedAfter); diff != "" {
			t.Fatalf("place on node %s (-before +after):\n%s", n.Name(), diff)
		}
	}
}

// A reader who may not see a namespace finds no name of it anywhere; all amounts and all visible names stay.
func TestRedactedNamesAreNowhere(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s, c := drawSnapshot(t)
		before := write(t, s)
		r := s.Redact(visible)
		raw := write(t, r)
		if strings.Contains(raw, "zqx") {
			t.Fatalf("a hidden name in:\n%s", raw)
		}
		if write(t, s) != before {
			t.Fatal("Redact changed the snapshot that others read")
		}
		if _, err := snapshotjson.Read([]byte(raw)); err != nil {
			t.Fatalf("%v\n%s", err, raw)
		}
		after, err := r.Cluster()
		must.OK(t, err)
		for i, n := range c.Nodes() {
			for k := range n.Devices() {
				if m := after.Nodes()[i]; n.Used(k) != m.Used(k) {
					t.Fatalf("%v used of device %d of node %s, was %v", m.Used(k), k, n.Name(), n.Used(k))
				}
			}
			for k := range s.Nodes[i].Pods {
				p := &s.Nodes[i].Pods[k]
				if visible(p.Namespace) != containsPod(r.Nodes[i].Pods, p) {
					t.Fatalf("pod %s of node %s: visible %v", p.Path(), n.Name(), visible(p.Namespace))
				}
			}
		}
		for name, lists := range map[string][2]int{
			"gangs": {len(s.Gangs), len(r.Gangs)}, "preemptions": {len(s.Preemptions), len(r.Preemptions)},
			"pending": {len(s.Pending), len(r.Pending)}, "targets": {len(s.ElasticTargets), len(r.ElasticTargets)},
			"fleets": {len(s.InferenceFleets), len(r.InferenceFleets)},
		} {
			if lists[0] != lists[1] {
				t.Fatalf("%d %s, were %d", lists[1], name, lists[0])
			}
		}
	})
}

// containsPod reports whether a list has a pod with all that is in it.
func containsPod(list []snapshot.Pod, p *snapshot.Pod) bool {
	for i := range list {
		if cmp.Equal(&list[i], p) {
			return true
		}
	}
	return false
}

// Namespaces has those of every name in the snapshot, so that a reader is asked about each.
func TestNamespaces(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s, _ := drawSnapshot(t)
		asked := map[string]bool{}
		for _, namespace := range s.Namespaces() {
			asked[namespace] = true
		}
		s.Redact(func(namespace string) bool {
			if !asked[namespace] {
				t.Fatalf("Redact asks about %q, Namespaces has %v", namespace, s.Namespaces())
			}
			return true
		})
	})
}

// Room that is held for one pod on two nodes is kept on both.
func TestTwoHoldsOfOnePod(t *testing.T) {
	node := func(name string) snapshot.Node {
		id := vgpu.DeviceID("GPU-" + name)
		return snapshot.Node{
			Name: name, Devices: []snapshot.Device{{ID: id, Model: "T4", Slots: 10, MemoryBytes: 1000, Healthy: true}},
			Holds: []snapshot.Hold{{Pod: snapshot.Pod{Name: snapshot.NameOf("a/p", "u"), Containers: []snapshot.Container{{
				Name: "main", Kind: "app", Devices: []vgpu.DeviceID{id}, Slots: 7, MemoryBytes: 700, ComputeLimit: 700, MemoryLimitBytes: 700,
			}}}}},
		}
	}
	s := &snapshot.Snapshot{Source: snapshot.FromScheduler, Nodes: []snapshot.Node{node("n1"), node("n2")}}
	must.OK(t, s.Check())
	c, err := s.Cluster()
	must.OK(t, err)
	other := &vgpu.Request{UID: "v", Containers: []vgpu.ContainerRequest{{Name: "main", Slots: 4}}}
	for _, n := range c.Nodes() {
		if free := n.FreeFor(0, other).Slots; free != 3 {
			t.Errorf("%d slots are free for others on node %s, want 3", free, n.Name())
		}
	}
}

// The pods that wait can be tried on the cluster: their requests come back.
func TestRequestComesBack(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		want := testkit.RandomRequest(t, "seen-a/p", 3)
		want.Workload, want.Preferences = 1, nil
		want.Host = testkit.RandomRoom(t)
		want.Ends = rapid.SampledFrom([]int64{0, 150}).Draw(t, "ends")
		s := &snapshot.Snapshot{Pending: []snapshot.Pending{{
			Name: snapshot.NameOf(want.Pod, want.UID), Workload: "profile", Request: snapshot.RequestOf(want, 100),
		}}}
		if diff := cmp.Diff(want, s.ToPlace(&s.Pending[0], 100)); diff != "" {
			t.Fatalf("(-before +after):\n%s", diff)
		}
	})
}
