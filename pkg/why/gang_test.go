package why

import (
	"fmt"
	"testing"

	"pgregory.net/rapid"

	"github.com/tandem-gpu/tandem/internal/testkit"
	"github.com/tandem-gpu/tandem/pkg/snapshot"
	"github.com/tandem-gpu/tandem/pkg/vgpu"
	"github.com/tandem-gpu/tandem/test/must"
)

// drawGang draws a cluster and a gang of which some members wait and one may have a place.
func drawGang(t *rapid.T) (*snapshot.Snapshot, snapshot.GangName) {
	c := testkit.RandomCluster(t, 3, 3)
	testkit.Furnish(t, c)
	testkit.Fill(t, c, 14)
	name := snapshot.GangName{Source: "label", Namespace: "a", Name: "j"}
	s := &snapshot.Snapshot{Source: snapshot.FromScheduler}
	placed := 0
	for _, n := range c.Nodes() {
		node := snapshot.NodeOf(n)
		for i := range node.Pods {
			node.Pods[i].Priority = rapid.Int32Range(-2, 2).Draw(t, "priority")
			if placed == 0 && rapid.IntRange(0, 4).Draw(t, "member") == 0 {
				node.Pods[i].Gang, placed = &name, 1
			}
		}
		s.Nodes = append(s.Nodes, node)
	}
	members := rapid.IntRange(1, 4).Draw(t, "members")
	r := testkit.RandomRequest(t, "a/w", 1)
	r.Tenancy, r.Preferences, r.Priority = vgpu.Tenancy{}, nil, 0
	for i := range members {
		r.UID, r.Pod = vgpu.UID(fmt.Sprint("w", i)), fmt.Sprint("a/w", i)
		s.Pending = append(s.Pending, snapshot.Pending{Name: snapshot.NameOf(r.Pod, r.UID), Gang: &name, Request: snapshot.RequestOf(r, 0)})
	}
	s.Gangs = []snapshot.Gang{{GangName: name, MinCount: rapid.IntRange(1, members+placed).Draw(t, "least")}}
	return s, name
}

// carryOut books the places of a change on the cluster after it, and returns how many there are.
func carryOut(t *rapid.T, s *snapshot.Snapshot, c *Change) int {
	cluster, err := s.Cluster()
	must.OK(t, err)
	for i := range c.Leave {
		if c.Kind == PodsLeave {
			cluster.Remove(c.Leave[i].UID)
		} else {
			cluster.Release(c.Leave[i].UID)
		}
	}
	booked := 0
	for i, a := range c.assigns {
		if a.Node == "" {
			continue
		}
		n := cluster.Node(a.Node)
		for k := range n.Devices() {
			for _, container := range a.Containers {
				share, ok := c.request[i].ShareOn(0, &n.Devices()[k])
				for _, id := range container.Devices {
					free := n.FreeFor(k, &c.request[i])
					if id == n.Devices()[k].ID && c.Kind != DevicesRecover && (!ok || share.Slots > free.Slots || share.Memory > free.Memory) {
						t.Fatalf("after %s device %s has %v free for %v", c.Kind, id, free, share)
					}
				}
			}
		}
		if err := cluster.Add(a); err != nil {
			t.Fatalf("after %s: %v", c.Kind, err)
		}
		booked++
	}
	return booked
}

// TestGangChangeLaw: the places of each change can be booked on the cluster after it, and are as many as must run.
func TestGangChangeLaw(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s, name := drawGang(t)
		a, err := Gang(s, name)
		must.OK(t, err)
		q, err := ask(s, pendingOf(s), &name)
		must.OK(t, err)
		placed := 0
		for i := range s.Nodes {
			for k := range s.Nodes[i].Pods {
				if s.Nodes[i].Pods[k].Gang != nil {
					placed++
				}
			}
		}
		if want := max(1, s.Gangs[0].MinCount-placed); q.min != want {
			t.Fatalf("%d of %d members must get a place, want %d", q.min, len(s.Pending), want)
		}
		for i := range a.Changes {
			c := &a.Changes[i]
			least := q.min
			if c.Kind == FewerMembers {
				least = c.Members - len(q.placed)
			}
			if booked := carryOut(t, s, c); booked < least || booked != len(c.Places) {
				t.Fatalf("%s has %d places, and %d must run: %+v", c.Kind, booked, least, c)
			}
		}
	})
}

func pendingOf(s *snapshot.Snapshot) []*snapshot.Pending {
	all := make([]*snapshot.Pending, 0, len(s.Pending))
	for i := range s.Pending {
		all = append(all, &s.Pending[i])
	}
	return all
}

// TestGangKindsMet: the law does not hold for want of cases.
func TestGangKindsMet(t *testing.T) {
	met, cases := map[Kind]int{}, rapid.Custom(func(t *rapid.T) *Answer {
		a, err := Gang(drawGang(t))
		must.OK(t, err)
		return a
	})
	for seed := range 1000 {
		for _, c := range cases.Example(seed).Changes {
			met[c.Kind]++
		}
	}
	for _, kind := range []Kind{FewerSlots, FewerMembers, PodsLeave, HoldsEnd, DevicesRecover} {
		if met[kind] < 5 {
			t.Errorf("%d of 1000 cases have the change %s, want 5 at least", met[kind], kind)
		}
	}
}
