package gang_test

import (
	"cmp"
	"fmt"
	"slices"

	"pgregory.net/rapid"

	"github.com/tandem-gpu/tandem/internal/testkit"
	"github.com/tandem-gpu/tandem/pkg/gang"
	"github.com/tandem-gpu/tandem/pkg/placement"
	"github.com/tandem-gpu/tandem/pkg/vgpu"
	"github.com/tandem-gpu/tandem/test/must"
)

func pick[T any](t *rapid.T, label string, values ...T) T {
	return rapid.SampledFrom(values).Draw(t, label)
}

func number(t *rapid.T, label string, low, high int) int {
	return rapid.IntRange(low, high).Draw(t, label)
}

// site is a drawn cluster with its vgpu.Cluster, and the limits that its nodes have for members of kinds 0 and 1.
type site struct {
	cluster *vgpu.Cluster
	gang.Cluster
	admits [2][]int
}

// randomSite draws up to so many nodes with pods and holds, in racks and zones, some of them without a label.
func randomSite(t *rapid.T, nodes, devices int) *site {
	s := &site{cluster: testkit.RandomCluster(t, nodes, devices)}
	testkit.Fill(t, s.cluster, 6)
	for _, n := range s.cluster.Nodes() {
		n.SetRoom(vgpu.Room{MilliCPU: int64(number(t, "cores", 0, 20)) * 1000, Memory: 64 * vgpu.GiB})
	}
	s.Nodes = s.cluster.Nodes()
	s.label(t)
	if rapid.Bool().Draw(t, "admits") {
		for k := range s.admits {
			for range s.Nodes {
				s.admits[k] = append(s.admits[k], pick(t, "admitted", 0, 1, 2, 100, 100, 100))
			}
		}
		s.Admits = func(kind, node int) int { return s.admits[kind][node] }
	}
	return s
}

func (s *site) label(t *rapid.T) {
	racks, zones := gang.Level{Key: "rack", Names: []string{"r2", "r0", "r1"}}, gang.Level{Key: "zone", Names: []string{"z1", "z0"}}
	hosts := gang.Level{Key: "host"}
	for i, n := range s.Nodes {
		r := pick(t, "rack", 0, 0, 1, 1, 2, 2, -1)
		racks.Domain = append(racks.Domain, int32(r))
		zones.Domain = append(zones.Domain, []int32{-1, 0, 0, 1}[r+1])
		hosts.Domain, hosts.Names = append(hosts.Domain, int32(i)), append(hosts.Names, n.Name())
	}
	s.Levels = []gang.Level{racks, zones, hosts}
}

// randomWishes draws levels of all kinds.
func randomWishes(t *rapid.T) gang.Wishes {
	return gang.Wishes{
		Required:  pick(t, "required", nil, nil, []string{"rack"}, []string{"zone"}, []string{"rack", "zone"}, []string{gang.NVLink}, []string{"host"}),
		Preferred: pick(t, "preferred", nil, []string{"host"}, []string{"host", "rack", "zone"}, []string{gang.NVLink, "host", "rack"}, []string{"zone", "rack"}, []string{"rack", gang.NVLink}),
	}
}

// randomGroup draws a gang of classes of members, each of up to so many containers.
func randomGroup(t *rapid.T, classes, containers int) *gang.Group {
	g := &gang.Group{Name: "team/job", Wishes: randomWishes(t)}
	priority := int32(number(t, "priority", 0, 2))
	for k := range number(t, "classes", 1, classes) {
		like := testkit.RandomRequest(t, "like", containers)
		if k > 0 && rapid.Bool().Draw(t, "launcher") {
			like.Containers, like.Variants, like.Preferences = nil, nil, nil
		}
		like.Priority = priority
		like.MaxSlowdown = 0
		like.Host.MilliCPU = int64(number(t, "cores of a member", 0, 4)) * 1000
		kind := number(t, "kind", 0, 1)
		for i := range number(t, "members", 1, 7) {
			r := *like
			r.Pod = fmt.Sprintf("team/job-%d-%d", k, i)
			r.UID = vgpu.UID(r.Pod)
			g.Members = append(g.Members, gang.Member{Request: r, Kind: kind, Rank: len(g.Members)})
		}
	}
	g.MinCount = number(t, "min", 1, len(g.Members))
	if rapid.Bool().Draw(t, "whole") {
		g.MinCount = len(g.Members)
	}
	return g
}

func randomConfig(t *rapid.T) gang.Config {
	p, err := placement.ByName(pick(t, "policy", "packed", "tandem", "fgd", "spread", "bestfit"))
	if err != nil {
		p, err = placement.ByName("packed")
	}
	must.OK(t, err)
	return gang.Config{Policy: p.With(testkit.RandomMix(t), 1)}
}

// holdOwn holds room for some of the members, wherever they would fit an empty device.
func (s *site) holdOwn(t *rapid.T, g *gang.Group) {
	for i := range g.Members {
		r := &g.Members[i].Request
		if len(r.Containers) == 0 || number(t, "own hold", 0, 3) > 0 {
			continue
		}
		if a, ok := testkit.RandomAssignment(t, pick(t, "node", s.Nodes...), r); ok {
			_ = s.cluster.Hold(vgpu.Hold{Assignment: a, Priority: r.Priority}) // what is too large stays out
		}
	}
}

// placeSome gives a place to some of the members, which then count as placed.
func (s *site) placeSome(t *rapid.T, g *gang.Group) {
	for i := len(g.Members) - 1; i >= 0 && len(g.Members) > 1; i-- {
		r := &g.Members[i].Request
		if len(r.Containers) == 0 || number(t, "placed", 0, 4) > 0 {
			continue
		}
		if a, ok := testkit.RandomAssignment(t, pick(t, "node", s.Nodes...), r); ok && s.cluster.Add(a) == nil {
			g.Placed = append(g.Placed, a)
			g.Members = slices.Delete(g.Members, i, i+1)
		}
	}
}

// apply books a plan in the ledgers without the holds of the members, and fails where a place is not free or a host is
// over its limits.
func (s *site) apply(t *rapid.T, g *gang.Group, places []vgpu.Assignment) {
	for i := range g.Members {
		s.cluster.Release(g.Members[i].Request.UID)
	}
	admitted := map[[2]int]int{}
	for i := range places {
		m, a := &g.Members[i], &places[i]
		if a.UID != m.Request.UID || a.Pod != m.Request.Pod {
			t.Fatalf("place %d is of pod %s, the member is %s", i, a.Pod, m.Request.Pod)
		}
		if a.Node == "" {
			continue
		}
		n := s.cluster.Node(a.Node)
		if !m.Request.Host.Within(n.Room()) {
			t.Fatalf("host %s has %v, member %s asks for %v", a.Node, n.Room(), a.Pod, m.Request.Host)
		}
		n.SetRoom(n.Room().Minus(m.Request.Host))
		at := [2]int{m.Kind, slices.Index(s.Nodes, n)}
		if admitted[at]++; s.Admits != nil && admitted[at] > s.Admits(at[0], at[1]) {
			t.Fatalf("node %s admits %d of kind %d", a.Node, s.Admits(at[0], at[1]), m.Kind)
		}
		s.book(t, n, m, a)
	}
	must.OK(t, s.cluster.Check())
}

func (s *site) book(t *rapid.T, n *vgpu.Node, m *gang.Member, a *vgpu.Assignment) {
	if len(a.Containers) != len(m.Request.Containers) {
		t.Fatalf("member %s has %d containers placed of %d", a.Pod, len(a.Containers), len(m.Request.Containers))
	}
	if len(a.Containers) == 0 {
		return
	}
	free := map[int]vgpu.Use{}
	for i := range n.Devices() {
		free[i] = n.FreeFor(i, &m.Request)
	}
	must.OK(t, s.cluster.Add(*a))
	for c := range a.Containers {
		want, refusal := m.Request.On(c, &n.Devices()[n.Index(a.Containers[c].Devices[0])])
		if refusal != nil || want != a.Containers[c].Share || want.Devices != len(a.Containers[c].Devices) {
			t.Fatalf("member %s has the share %+v, legal is %+v (%v)", a.Pod, a.Containers[c].Share, want, refusal)
		}
		for _, id := range a.Containers[c].Devices {
			if i := n.Index(id); !want.Use().Within(free[i]) {
				t.Fatalf("device %s has %v free for %s, which takes %v:\n%s", id, free[i], a.Pod, want.Use(), testkit.Draw(s.cluster))
			}
		}
	}
}

// island numbers the NVLink island of a device by its lowest device, found by repeated joining.
func island(n *vgpu.Node, i int) int {
	low := make([]int, len(n.Devices()))
	for d := range low {
		low[d] = d
	}
	for range low {
		for a := range low {
			for b := range low {
				if n.Link(a, b).Class == vgpu.LinkNVLink {
					low[a] = min(low[a], low[b])
				}
			}
		}
	}
	return low[i]
}

// domains lists the domains of a level that assignments use, each once; "?node" for a node without the label.
func (s *site) domains(key string, places ...[]vgpu.Assignment) []string {
	var used []string
	for _, a := range slices.Concat(places...) {
		n := s.cluster.Node(a.Node)
		if n == nil {
			continue
		}
		if key != gang.NVLink {
			used = append(used, s.domain(key, n))
			continue
		}
		for _, c := range a.Containers {
			for _, id := range c.Devices {
				used = append(used, fmt.Sprint(a.Node, "/", island(n, n.Index(id))))
			}
		}
	}
	slices.Sort(used)
	return slices.Compact(used)
}

func (s *site) domain(key string, n *vgpu.Node) string {
	i := slices.Index(s.Nodes, n)
	for l := range s.Levels {
		if s.Levels[l].Key == key {
			if d := s.Levels[l].Domain[i]; d >= 0 {
				return s.Levels[l].Names[d]
			}
			return "?" + n.Name()
		}
	}
	return n.Name()
}

func placed(places []vgpu.Assignment) (n int) {
	for i := range places {
		if places[i].Node != "" {
			n++
		}
	}
	return n
}

// dump writes all that a ledger says.
func (s *site) dump() string {
	out := ""
	for _, n := range s.Nodes {
		out += fmt.Sprintf("%s %v %+v %+v\n", n.Name(), n.Room(), n.Assignments(), n.Holds())
	}
	return out
}

// where lists the pods with their nodes and devices, by pod.
func where(places []vgpu.Assignment) []string {
	var list []string
	for i := range places {
		line := fmt.Sprint(places[i].Pod, " → ", places[i].Node)
		for _, c := range places[i].Containers {
			line += fmt.Sprint(" ", c.Devices)
		}
		list = append(list, line)
	}
	slices.SortFunc(list, cmp.Compare[string])
	return list
}

func mustPlace(t rapid.TB, s *gang.Cluster, g *gang.Group, cfg gang.Config) gang.Plan {
	t.Helper()
	plan, err := gang.Place(s, g, cfg)
	must.OK(t, err)
	return plan
}
