package why_test

import (
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/tandem-gpu/tandem/internal/testkit"
	"github.com/tandem-gpu/tandem/pkg/placement"
	"github.com/tandem-gpu/tandem/pkg/snapshot"
	"github.com/tandem-gpu/tandem/pkg/vgpu"
	"github.com/tandem-gpu/tandem/pkg/why"
	"github.com/tandem-gpu/tandem/test/must"
)

// drawWaiting draws a small cluster and a pod that waits there.
func drawWaiting(t *rapid.T) (*snapshot.Snapshot, *vgpu.Request) {
	c := testkit.RandomCluster(t, 2, 3)
	testkit.Furnish(t, c)
	testkit.Fill(t, c, 16)
	r := testkit.RandomRequest(t, "a/waits", 2)
	r.UID, r.Tenancy, r.Preferences = "waits", vgpu.Tenancy{}, nil
	if rapid.IntRange(0, 3).Draw(t, "host") == 0 {
		r.Host = testkit.RandomRoom(t)
	}
	r.Priority = rapid.Int32Range(-1, 1).Draw(t, "priority")
	s := &snapshot.Snapshot{Source: snapshot.FromScheduler, Pending: []snapshot.Pending{
		{Name: snapshot.NameOf("a/waits", "waits"), Request: snapshot.RequestOf(r, 0)},
	}}
	for _, n := range c.Nodes() {
		node := snapshot.NodeOf(n)
		if rapid.IntRange(0, 5).Draw(t, "closed") == 0 {
			node.Problem = "the node is closed"
		}
		if rapid.IntRange(0, 5).Draw(t, "stray") == 0 {
			node.StraySlots = 2
		}
		for i := range node.Pods {
			if rapid.Bool().Draw(t, "ends") {
				node.Pods[i].EndsBy = time.Unix(rapid.Int64Range(1, 5).Draw(t, "end"), 0).UTC()
			}
			node.Pods[i].Priority = rapid.Int32Range(-2, 2).Draw(t, "priority")
		}
		s.Nodes = append(s.Nodes, node)
	}
	scale(s)
	foretell(t, s)
	return s, s.ToPlace(&s.Pending[0], 0)
}

// scale turns the few bytes of drawn devices into gibibytes: the search for less memory has steps of one.
func scale(s *snapshot.Snapshot) {
	pods := func(p *snapshot.Pod) {
		for k := range p.Containers {
			p.Containers[k].MemoryBytes *= vgpu.MiB
			p.Containers[k].MemoryLimitBytes *= vgpu.MiB
		}
	}
	for i := range s.Nodes {
		n := &s.Nodes[i]
		for k := range n.Devices {
			n.Devices[k].MemoryBytes *= vgpu.MiB
		}
		for k := range n.Pods {
			pods(&n.Pods[k])
		}
		for k := range n.Holds {
			pods(&n.Holds[k].Pod)
		}
	}
	r := s.Pending[0].Request
	r.MemoryLimitBytes *= vgpu.MiB
	for k := range r.Containers {
		r.Containers[k].MemoryBytes *= vgpu.MiB
	}
}

// fits is the twin of the package: it asks each node that takes pods.
func fits(s *snapshot.Snapshot, nodes []*vgpu.Node, r *vgpu.Request) bool {
	return slices.ContainsFunc(nodes, func(n *vgpu.Node) bool {
		at := slices.IndexFunc(s.Nodes, func(o snapshot.Node) bool { return o.Name == n.Name() })
		free := -s.Nodes[at].StraySlots
		for i := range n.Devices() {
			free += n.FreeFor(i, r).Slots
		}
		return s.Nodes[at].Problem == "" && (s.Nodes[at].StraySlots == 0 || free >= r.PeakSlots()) && r.Host.Within(n.Room()) && placement.Fit(n, r) == nil
	})
}

func clusterOf(t *rapid.T, s *snapshot.Snapshot) *vgpu.Cluster {
	c, err := s.Cluster()
	must.OK(t, err)
	return c
}

func answer(t *rapid.T, s *snapshot.Snapshot) *why.Answer {
	a, err := why.Pod(s, "waits")
	must.OK(t, err)
	return a
}

// TestReasonLaw: a pod has places where some node takes it, and else no node does, and each node is counted.
func TestReasonLaw(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s, r := drawWaiting(t)
		a, c := answer(t, s), clusterOf(t, s)
		if got, want := len(a.Fits) > 0, fits(s, c.Nodes(), r); got != want {
			t.Fatalf("fits is %v, want %v: %+v", got, want, a)
		}
		counted := 0
		for _, n := range a.Nodes {
			counted += n.Nodes
		}
		if len(a.Fits) == 0 && counted != len(s.Nodes) {
			t.Fatalf("%d of %d nodes are counted: %v", counted, len(s.Nodes), a.Nodes)
		}
	})
}

// changed returns the snapshot and the cluster after a change, without one part of it, −1 for none.
func changed(t *rapid.T, s *snapshot.Snapshot, c *why.Change, but int) (*snapshot.Snapshot, *vgpu.Cluster) {
	cluster := clusterOf(t, s)
	if c.Kind == why.NodesReturn {
		open := *s
		open.Nodes = slices.Clone(s.Nodes)
		for i := range open.Nodes {
			at := slices.IndexFunc(c.Nodes, func(n why.ClosedNode) bool { return n.Name == open.Nodes[i].Name })
			if at >= 0 && at != but {
				open.Nodes[i].Problem = ""
			}
		}
		return &open, cluster
	}
	for i, l := range c.Leave {
		switch {
		case i == but:
		case c.Kind == why.PodsLeave || c.Kind == why.PodsEnd:
			cluster.Remove(l.UID)
		default:
			cluster.Release(l.UID)
		}
	}
	if c.Kind != why.DevicesRecover {
		return s, cluster
	}
	var nodes []*vgpu.Node
	for _, n := range cluster.Nodes() {
		nodes = append(nodes, n.Healed().Only(func(k int) bool {
			at := slices.Index(c.Devices, n.Name()+"/"+n.Devices()[k].Name())
			return n.Devices()[k].Healthy || at >= 0 && at != but
		}))
	}
	cluster, err := vgpu.NewCluster(nodes...)
	must.OK(t, err)
	return s, cluster
}

// endedBy returns a node without the pods that have ended by a time.
func endedBy(s *snapshot.Snapshot, n *vgpu.Node, at int64) *vgpu.Node {
	return n.Without(func(h *vgpu.Hold, held bool) bool {
		return !held && slices.ContainsFunc(s.Nodes, func(o snapshot.Node) bool {
			return slices.ContainsFunc(o.Pods, func(p snapshot.Pod) bool { return p.UID == h.UID && !p.EndsBy.IsZero() && p.EndsBy.Unix() <= at })
		})
	})
}

// TestChangeLaw: after each change the pod fits, and with any one pod, hold or device less it does not. Each kind is there where
// all pods, holds or devices together would help.
func TestChangeLaw(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s, r := drawWaiting(t)
		a, found := answer(t, s), map[why.Kind]bool{}
		for i := range a.Changes {
			c := &a.Changes[i]
			found[c.Kind] = true
			if !parted(c.Kind) {
				continue
			}
			if open, after := changed(t, s, c, -1); !fits(open, after.Nodes(), r) {
				t.Fatalf("the pod does not fit after %+v", c)
			}
			for but := range max(len(c.Leave), len(c.Devices), len(c.Nodes)) {
				if open, after := changed(t, s, c, but); fits(open, after.Nodes(), r) {
					t.Fatalf("part %d of the change is superfluous: %+v", but, c)
				}
			}
			for _, n := range clusterOf(t, s).Nodes() {
				if c.Kind == why.PodsEnd && fits(s, []*vgpu.Node{endedBy(s, n, c.At-1)}, r) {
					t.Fatalf("node %s takes the pod before: %+v", n.Name(), c)
				}
			}
			if len(c.Leave)+len(c.Devices)+len(c.Nodes) == 0 {
				t.Fatalf("nothing changes: %+v", c)
			}
		}
		for kind, nodes := range everything(t, s) {
			in := s
			if kind == why.NodesReturn {
				in = opened(s)
			}
			if helps := len(a.Fits) == 0 && fits(in, nodes, r); helps != found[kind] {
				t.Fatalf("%s is found: %v, and all together help: %v", kind, found[kind], helps)
			}
		}
	})
}

// parted reports whether a change consists of pods, holds or devices.
func parted(k why.Kind) bool {
	return k == why.PodsLeave || k == why.PodsEnd || k == why.HoldsEnd || k == why.DevicesRecover || k == why.NodesReturn
}

// opened returns the snapshot with all nodes open.
func opened(s *snapshot.Snapshot) *snapshot.Snapshot {
	open := *s
	open.Nodes = slices.Clone(s.Nodes)
	for i := range open.Nodes {
		open.Nodes[i].Problem = ""
	}
	return &open
}

// everything returns the nodes without any pod, without any hold, with healthy devices only, and as they are. Preemption does not look at nodes
// with stray slots.
func everything(t *rapid.T, s *snapshot.Snapshot) map[why.Kind][]*vgpu.Node {
	all := map[why.Kind][]*vgpu.Node{}
	for i, n := range clusterOf(t, s).Nodes() {
		if s.Nodes[i].StraySlots == 0 {
			all[why.PodsLeave] = append(all[why.PodsLeave], n.Without(func(_ *vgpu.Hold, held bool) bool { return !held }))
		}
		all[why.PodsEnd] = append(all[why.PodsEnd], endedBy(s, n, 5))
		all[why.HoldsEnd] = append(all[why.HoldsEnd], n.Without(func(_ *vgpu.Hold, held bool) bool { return held }))
		all[why.DevicesRecover] = append(all[why.DevicesRecover], n.Healed())
		all[why.NodesReturn] = append(all[why.NodesReturn], n)
	}
	return all
}

// most is the linear twin of a search: the largest amount below one with which the pod fits, 0 for none.
func most(s *snapshot.Snapshot, c *vgpu.Cluster, r *vgpu.Request, below int64, set func(r *vgpu.Request, amount int64)) int64 {
	for amount := below - 1; amount > 0; amount-- {
		want := *r
		want.Containers = slices.Clone(r.Containers)
		set(&want, amount)
		if fits(s, c.Nodes(), &want) {
			return amount
		}
	}
	return 0
}

// TestLeastLaw: the change of an amount is the least that helps, and is missing only where none helps.
func TestLeastLaw(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s, r := drawWaiting(t)
		a, c := answer(t, s), clusterOf(t, s)
		if len(a.Fits) > 0 || len(r.Containers) == 0 {
			return
		}
		got := map[why.Kind]int64{}
		for _, change := range a.Changes {
			got[change.Kind] = int64(change.Memory/vgpu.GiB) + int64(change.Slots)
		}
		at := 0
		for i := range r.Containers {
			if r.Containers[i].Slots > r.Containers[at].Slots {
				at = i
			}
		}
		slots := most(s, c, r, int64(r.Containers[at].Slots), func(r *vgpu.Request, k int64) { r.Containers[at].Slots = vgpu.Slots(k) })
		if slots != got[why.FewerSlots] {
			t.Fatalf("FewerSlots is %d, want %d", got[why.FewerSlots], slots)
		}
		free := *r
		free.Variants = nil
		if helps := len(r.Variants) > 0 && fits(s, c.Nodes(), &free); helps != slices.ContainsFunc(a.Changes, func(c why.Change) bool { return c.Kind == why.AnyModel }) {
			t.Fatalf("all models help: %v, the changes are %+v", helps, a.Changes)
		}
		if memory := memoryAsked(c, &r.Containers[0]); len(r.Containers) == 1 {
			gib := most(s, c, r, int64((memory+vgpu.GiB-1)/vgpu.GiB), func(r *vgpu.Request, k int64) { r.Containers[0].Memory = vgpu.Bytes(k) * vgpu.GiB })
			if gib != got[why.LessMemory] {
				t.Fatalf("LessMemory is %d, want %d", got[why.LessMemory], gib)
			}
		}
	})
}

// memoryAsked returns the memory that a container asks for: that in proportion to its slots on the largest device, where it names none.
func memoryAsked(c *vgpu.Cluster, asks *vgpu.ContainerRequest) vgpu.Bytes {
	most := asks.Memory
	for _, n := range c.Nodes() {
		for i := range n.Devices() {
			if share, ok := asks.ShareOn(&n.Devices()[i], 0, 0); ok && asks.Memory == 0 {
				most = max(most, share.Memory*vgpu.Bytes(share.Devices))
			}
		}
	}
	return most
}

// TestHostLaw: less of the host is a change where some amount of it helps, and it is the most: with a bit more of the CPU, or of the
// memory, the pod does not fit.
func TestHostLaw(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s, r := drawWaiting(t)
		a, c := answer(t, s), clusterOf(t, s)
		with := func(cpu int64, memory vgpu.Bytes) bool {
			less := *r
			less.Host = vgpu.Room{MilliCPU: cpu, Memory: memory}
			return fits(s, c.Nodes(), &less)
		}
		at := slices.IndexFunc(a.Changes, func(c why.Change) bool { return c.Kind == why.LessHost })
		if helps := len(a.Fits) == 0 && r.Host != (vgpu.Room{}) && with(min(1, r.Host.MilliCPU), min(1, r.Host.Memory)); helps != (at >= 0) {
			t.Fatalf("less of the host helps: %v, the changes are %+v", helps, a.Changes)
		}
		if at < 0 {
			return
		}
		most := &a.Changes[at]
		cpu, memory := r.Host.MilliCPU, r.Host.Memory
		if most.MilliCPU > 0 {
			cpu = most.MilliCPU
		}
		if most.HostMemory > 0 {
			memory = most.HostMemory
		}
		switch {
		case !with(cpu, memory):
			t.Fatalf("the pod does not fit with %+v", most)
		case most.MilliCPU > 0 && with(cpu+1, min(1, r.Host.Memory)):
			t.Fatalf("the pod fits with more CPU: %+v", most)
		case most.HostMemory > 0 && with(cpu, memory+vgpu.MiB):
			t.Fatalf("the pod fits with more memory: %+v", most)
		}
	})
}

// TestKindsMet: the laws do not hold for want of cases.
func TestKindsMet(t *testing.T) {
	met, cases := map[why.Kind]int{}, rapid.Custom(func(t *rapid.T) *why.Answer {
		s, _ := drawWaiting(t)
		return answer(t, s)
	})
	for seed := range 1000 {
		for _, c := range cases.Example(seed).Changes {
			met[c.Kind]++
		}
	}
	for _, kind := range []why.Kind{why.LessMemory, why.FewerSlots, why.AnyModel, why.PodsLeave, why.PodsEnd, why.PodsLikelyEnd, why.HoldsEnd, why.DevicesRecover, why.NodesReturn, why.LessHost} {
		if met[kind] < 5 {
			t.Errorf("%d of 1000 cases have the change %s, want 5 at least", met[kind], kind)
		}
	}
}
