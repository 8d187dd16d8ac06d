package gang

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/tandem-gpu/tandem/pkg/vgpu"
)

// Hosts says why hosts take too few members of a class although devices for more are there.
type Hosts struct {
	// Lacks counts the nodes by what keeps members out, the most frequent first, then by the words.
	Lacks []Lack
	// Want is what a member asks of its host. Most is the most CPU and the most memory of those nodes that lack one of them,
	// possibly of different ones; Empty says that they have no more while no pod is there.
	Want, Most vgpu.Room
	Empty      bool
}

// Lack is nodes that keep members out for one reason.
type Lack struct {
	// Why is in the words of the scheduler's events: "Insufficient cpu", "node(s) had untolerated taint {gpu: a100}".
	Why   string
	Nodes int
}

// Words of Lack.Why that are not those of Cluster.Bars.
const (
	lacksCPU    = "Insufficient cpu"
	lacksMemory = "Insufficient memory"
	// lacksPlaces: Cluster.Admits has fewer, for a reason that may pass, mostly the number of pods of the node.
	lacksPlaces = "node(s) take no more pods now"
)

// String says it in words: "2 node(s) had untolerated taint {gpu: a100}, 1 Insufficient cpu (4000m CPU left at most, each
// member asks for 100000m)".
func (h *Hosts) String() string {
	parts := make([]string, 0, len(h.Lacks))
	for _, l := range h.Lacks {
		text := fmt.Sprintf("%d %s", l.Nodes, l.Why)
		left := "left"
		if h.Empty {
			left = "in an empty host"
		}
		switch l.Why {
		case lacksCPU:
			text += fmt.Sprintf(" (%dm CPU %s at most, each member asks for %dm)", h.Most.MilliCPU, left, h.Want.MilliCPU)
		case lacksMemory:
			text += fmt.Sprintf(" (%v of memory %s at most, each member asks for %v)", h.Most.Memory, left, h.Want.Memory)
		}
		parts = append(parts, text)
	}
	return strings.Join(parts, ", ")
}

// hosts returns why hosts keep members out on a ground: of the first class that they leave too little room for, else of the
// first that some node keeps out.
func (s *search) hosts(f *ground) *Hosts {
	free := s.unhosted(f).chart(slices.Contains(s.g.Wishes.Required, NVLink))
	counts := s.crew.first(s.need)
	var some *Hosts
	for k := range s.crew.classes {
		h, takes := f.keepOut(&s.crew.classes[k], free.perNode(k), counts[k])
		if takes < counts[k] {
			return h
		}
		if some == nil && len(h.Lacks) > 0 {
			some = h
		}
	}
	if some == nil {
		some = &Hosts{} // domains that hosts and devices make too small together
	}
	return some
}

// perNode returns how many members of a class the devices of each node take.
func (t *chart) perNode(k int) []int {
	sums := make([]int, len(t.ground.nodes))
	for i := range t.cells[:t.whole] {
		sums[t.cells[i].node] += int(t.caps[k][i])
	}
	return sums
}

// keepOut says why hosts take fewer of so many members of a class than devices do, and how many they take.
func (f *ground) keepOut(k *class, byDevices []int, count int) (h *Hosts, takes int) {
	h = &Hosts{Want: k.request.Host, Empty: f.hosting == ifEmpty}
	for i := range f.nodes {
		most := min(byDevices[i], count)
		here := f.hosts(k, i)
		takes += min(most, here)
		if here >= most {
			continue
		}
		why := f.bar(k.kind, i)
		if room := f.nodes[i].Room(); why == "" && timesRoom(room, k.request.Host) < most {
			why = lacksCPU
			if timesRoom(vgpu.Room{MilliCPU: room.MilliCPU}, vgpu.Room{MilliCPU: k.request.Host.MilliCPU}) >= most {
				why = lacksMemory
			}
			h.Most = vgpu.Room{MilliCPU: max(h.Most.MilliCPU, room.MilliCPU), Memory: max(h.Most.Memory, room.Memory)}
		}
		h.add(cmp.Or(why, lacksPlaces))
	}
	slices.SortFunc(h.Lacks, func(a, b Lack) int { return cmp.Or(cmp.Compare(b.Nodes, a.Nodes), strings.Compare(a.Why, b.Why)) })
	return h, takes
}

func (h *Hosts) add(why string) {
	at := slices.IndexFunc(h.Lacks, func(l Lack) bool { return l.Why == why })
	if at < 0 {
		at = len(h.Lacks)
		h.Lacks = append(h.Lacks, Lack{Why: why})
	}
	h.Lacks[at].Nodes++
}
