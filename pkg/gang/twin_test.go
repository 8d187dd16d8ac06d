package gang_test

import (
	"math/bits"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/tandem-gpu/tandem/pkg/gang"
	"github.com/tandem-gpu/tandem/pkg/vgpu"
)

// twin answers by trying all sets of cells: nodes, or islands where NVLink is wished.
type twin struct {
	s     *site
	g     *gang.Group
	cells []twinCell
}

type twinCell struct {
	node    *vgpu.Node
	devices []int
	takes   int
}

func newTwin(s *site, g *gang.Group, islands bool) *twin {
	w := &twin{s: s, g: g}
	for at, n := range s.Nodes {
		groups := map[int][]int{}
		for i := range n.Devices() {
			k := 0
			if islands {
				k = island(n, i)
			}
			groups[k] = append(groups[k], i)
		}
		for k := range len(n.Devices()) {
			if groups[k] != nil {
				w.cells = append(w.cells, twinCell{n, groups[k], w.takes(at, groups[k])})
			}
		}
	}
	return w
}

// takes counts how many members some devices take, by putting one after the other.
func (w *twin) takes(at int, devices []int) int {
	n, m := w.s.Nodes[at].Clone(), &w.g.Members[0]
	for i := range w.g.Members {
		n.Release(w.g.Members[i].Request.UID)
	}
	most := 99
	if w.s.Admits != nil {
		most = w.s.Admits(m.Kind, at)
	}
	if cpu := m.Request.Host.MilliCPU; cpu > 0 {
		most = min(most, int(n.Room().MilliCPU/cpu))
	}
	if mem := m.Request.Host.Memory; mem > 0 {
		most = min(most, int(n.Room().Memory/mem))
	}
	sum := 0
	wholes := map[int]int{}
	for _, i := range devices {
		share, refusal := m.Request.On(0, &n.Devices()[i])
		if refusal != nil {
			continue
		}
		use, free := share.Use(), n.FreeFor(i, &m.Request)
		if share.Devices == 1 {
			for use.Within(free) && sum < 99 {
				free = free.Minus(use)
				sum++
			}
		} else if use.Within(free) {
			if wholes[n.Shape(i)]++; wholes[n.Shape(i)]%share.Devices == 0 {
				sum++
			}
		}
	}
	return min(most, sum)
}

// in returns the domain of a level that a cell is in, "?…" for none.
func (w *twin) in(key string, c *twinCell) string {
	if key == gang.NVLink {
		return c.node.Name() + "/" + string(rune('a'+c.devices[0]))
	}
	return w.s.domain(key, c.node)
}

// spread counts the domains that a set of cells uses.
func (w *twin) spread(key string, set uint) int {
	var used []string
	for i := range w.cells {
		if set&(1<<i) != 0 {
			used = append(used, w.in(key, &w.cells[i]))
		}
	}
	slices.Sort(used)
	return len(slices.Compact(used))
}

// one reports whether one domain that has a name has a set of cells.
func (w *twin) one(key string, set uint) bool {
	for i := range w.cells {
		if set&(1<<i) != 0 && w.in(key, &w.cells[i])[0] == '?' {
			return false
		}
	}
	return w.spread(key, set) == 1
}

// best returns the least level and spreads of a place for so many members, nil where there is none.
func (w *twin) best(members int) []int {
	var best []int
	for set := uint(1); set < 1<<len(w.cells); set++ {
		sum := 0
		for i := range w.cells {
			if set&(1<<i) != 0 {
				sum += w.cells[i].takes
			}
		}
		if sum < members || bits.OnesCount(set) > members || slices.ContainsFunc(w.g.Wishes.Required, func(key string) bool { return !w.one(key, set) }) {
			continue
		}
		key := []int{len(w.g.Wishes.Preferred)}
		for i, level := range w.g.Wishes.Preferred {
			if w.one(level, set) {
				key[0] = min(key[0], i)
			}
			key = append(key, w.spread(level, set))
		}
		key = append(key, w.spread("", set))
		if best == nil || slices.Compare(key, best) < 0 {
			best = key
		}
	}
	return best
}

// keyOf returns the level and the spreads of a plan, as best does.
func keyOf(s *site, g *gang.Group, places []vgpu.Assignment) []int {
	key := []int{len(g.Wishes.Preferred)}
	for i, level := range g.Wishes.Preferred {
		domains := s.domains(level, places)
		if len(domains) == 1 && domains[0][0] != '?' {
			key[0] = min(key[0], i)
		}
		key = append(key, len(domains))
	}
	return append(key, len(s.domains("", places)))
}

// TestTwinProperty: members that are alike, of one container, have a place where a search of all sets of nodes and islands
// finds one, for as many members as it finds; and no set is in one domain of a preferred level before, or on fewer domains
// of the first preferred level. If one domain has them all, no set is on fewer domains of the others in turn, or on fewer
// nodes.
func TestTwinProperty(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s, g := randomSite(t, 5, 3), randomGroup(t, 1, 1)
		islands := slices.Contains(slices.Concat(g.Wishes.Required, g.Wishes.Preferred), gang.NVLink)
		if islands { // hosts are shared by islands, and so are pods of several devices: neither is for this twin
			s.Admits = nil
			for i := range g.Members {
				r := &g.Members[i].Request
				r.Host, r.Variants = vgpu.Room{}, nil
				r.Containers[0].Slots = min(4, r.Containers[0].Slots)
			}
		}
		s.holdOwn(t, g)
		plan := mustPlace(t, &s.Cluster, g, randomConfig(t))
		w := newTwin(s, g, islands)
		members, want := len(g.Members), []int(nil)
		for ; members >= g.MinCount && want == nil; members-- {
			want = w.best(members)
		}
		if want == nil {
			if plan.Places != nil {
				t.Fatalf("placed %v, the twin finds no place", where(plan.Places))
			}
			return
		}
		if plan.Refused != nil || placed(plan.Places) != members+1 {
			t.Fatalf("placed %d (%v), the twin finds places for %d", placed(plan.Places), plan.Refused, members+1)
		}
		got := keyOf(s, g, plan.Places)
		if want[0] == len(g.Wishes.Preferred) { // spread over several domains of each level: greedy beyond the first
			got, want = got[:2], want[:2]
		}
		if slices.Compare(got, want) > 0 {
			t.Fatalf("wishes %v: placed with %v, the twin has %v: %v", g.Wishes, got, want, where(plan.Places))
		}
	})
}
