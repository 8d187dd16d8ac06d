package gang

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/tandem-gpu/tandem/pkg/vgpu"
)

// Hosts says why hosts take too few members of a class although enough devices are free.
type Hosts struct {
	// Lacks counts the nodes by what keeps members out, the most frequent reason first, then by its text.
	Lacks []Lack
	// Want is the request of a member to its host. Most is the most CPU and the most memory of the nodes that lack one
	// of them, possibly of different nodes. Empty says that these nodes have no more even without any pod.
	Want, Most vgpu.Room
	Empty      bool
}

// Lack counts the nodes that keep members out for one reason.
type Lack struct {
	// Why is the reason in the words of the scheduler's events: "Insufficient cpu", "node(s) had untolerated taint
	// {gpu: a100}".
	Why   string
	Nodes int
}

// Reasons in Lack.Why that do not come from Cluster.Bars.
const (
	lacksCPU    = "Insufficient cpu"
	lacksMemory = "Insufficient memory"
	// lacksPlaces: Cluster.Admits allows fewer members, for a reason that may pass, mostly the number of pods on the
	// node.
	lacksPlaces = "node(s) take no more pods now"
)

// String returns the reasons as text: "2 node(s) had untolerated taint {gpu: a100}, 1 Insufficient cpu (4000m CPU left
// at most, each member asks for 100000m)".
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

// hostShortage returns why hosts keep members out in a snapshot. The result is about the first class for which the
// hosts have too little, else the first class that some node keeps out.
func (s *search) hostShortage(snap *snapshot) *Hosts {
	free := s.ignoringHosts(snap).topology(slices.Contains(s.g.Wishes.Required, NVLink))
	counts := s.members.countsOfFirst(s.need)
	var some *Hosts
	for k := range s.members.classes {
		h, takes := snap.hostLacks(&s.members.classes[k], free.capacityPerNode(k), counts[k])
		if takes < counts[k] {
			return h
		}
		if some == nil && len(h.Lacks) > 0 {
			some = h
		}
	}
	if some == nil {
		some = &Hosts{} // hosts and devices together make domains too small
	}
	return some
}

// capacityPerNode returns how many members of a class the devices of each node take.
func (t *topology) capacityPerNode(k int) []int {
	sums := make([]int, len(t.snapshot.nodes))
	for i := range t.cells[:t.whole] {
		sums[t.cells[i].node] += int(t.caps[k][i])
	}
	return sums
}

// hostLacks returns why hosts take fewer than `count` members of a class although devices take more, and how many they
// take.
func (snap *snapshot) hostLacks(k *memberClass, byDevices []int, count int) (h *Hosts, takes int) {
	h = &Hosts{Want: k.request.Host, Empty: snap.hostRule == hostsIfEmpty}
	for i := range snap.nodes {
		most := min(byDevices[i], count)
		here := snap.hostCapacity(k, i)
		takes += min(most, here)
		if here >= most {
			continue
		}
		why := snap.barredBy(k.kind, i)
		if room := snap.nodes[i].Room(); why == "" && timesRoom(room, k.request.Host) < most {
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
