package gang

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/tandem-gpu/tandem/pkg/vgpu"
)

// String describes the refusal with the nearest miss: "needs 8 × 1 GPU in one topology.kubernetes.io/rack; rack r3
// takes 7; rack r1 takes 8 after team/train-b-0, team/train-b-1 end".
func (r Refusal) String() string { return r.Words(firstNames) }

// firstNames names the first pods of a list, and counts the others.
func firstNames(blockers []Blocker) string {
	const most = 3
	names := make([]string, 0, most)
	for i := range blockers[:min(most, len(blockers))] {
		names = append(names, blockers[i].Pod)
	}
	text := strings.Join(names, ", ")
	if more := len(blockers) - most; more > 0 {
		text += " and " + strconv.Itoa(more) + " more"
	}
	return text
}

// Words is String with a function that names the blockers, such as by their job with its priority.
func (r *Refusal) Words(name func([]Blocker) string) string {
	text := "needs " + r.Share + r.inLevel()
	switch r.Reason {
	case NoLevel:
		text += "; no node has " + r.Level
		if len(r.Known) > 0 {
			text += ", nodes have " + strings.Join(r.Known, ", ")
		}
	case PlacedApart:
		text += "; members that have a place are on several domains of " + r.Level + " or on a node without it"
	case NeverFits:
		text += "; " + r.where(r.Nearest) + fmt.Sprintf(" takes at most %d even when all its devices are free and healthy", r.Best)
		if r.Placed > 0 {
			text += fmt.Sprintf(" but for the %d members that have a place", r.Placed)
		}
		if r.Hosts != nil {
			text += "; hosts keep members out: " + r.Hosts.String()
		}
	default:
		text += "; " + r.where(r.Nearest) + fmt.Sprintf(" takes %d", r.Best) + r.whyNoRoom(name)
	}
	if r.Cut {
		text += "; the search was cut short, there may be a place that it did not see"
	}
	return text
}

// whyNoRoom describes what keeps members out, and what would help.
func (r *Refusal) whyNoRoom(name func([]Blocker) string) string {
	text := ""
	if r.Hosts != nil {
		text += "; the devices are free, hosts keep members out: " + r.Hosts.String()
	} else if r.Member != nil {
		text += " (" + r.Member.String() + ")"
	}
	if len(r.Blockers) > 0 {
		end := " end"
		if len(r.Blockers) == 1 {
			end = " ends"
		}
		text += "; " + r.where(r.After) + fmt.Sprintf(" takes %d after ", r.Want) + name(r.Blockers) + end
	}
	if r.Helps == vgpu.RecoveryHelps {
		text += "; devices that take no pods now, such as sick or cordoned ones, would make up for it"
	}
	return text
}

// inLevel names the level.
func (r *Refusal) inLevel() string {
	if r.Level == "" {
		return ""
	}
	return " in one " + r.Level
}

// where names a domain: "rack r3" for the level topology.kubernetes.io/rack.
func (r *Refusal) where(domain string) string {
	if r.Level == "" {
		return "the cluster"
	}
	return r.Level[strings.LastIndexByte(r.Level, '/')+1:] + " " + domain
}

// share describes the requests of the members that must get a place, the classes in the order of ranks.
func (s *search) share() string {
	var parts []string
	for k, n := range s.members.countsOfFirst(s.need) {
		if n > 0 {
			parts = append(parts, fmt.Sprintf("%d × %s", n, s.words(s.members.classes[k].request)))
		}
	}
	return strings.Join(parts, " and ")
}

// words describes a request: "1 GPU", "3 of 10 slots", "no GPU".
func (s *search) words(r *vgpu.Request) string {
	if len(r.Containers) == 0 {
		return "no GPU"
	}
	slots := r.PeakSlots()
	of := vgpu.Slots(0)
	for _, n := range s.snapshot.nodes {
		for i := range n.Devices() {
			d := &n.Devices()[i]
			if r.Legal(d) != nil {
				continue
			}
			if of != 0 && of != d.Slots {
				return fmt.Sprintf("%d slots", slots)
			}
			of = d.Slots
		}
	}
	switch {
	case of == 0:
		return fmt.Sprintf("%d slots", slots)
	case slots == of:
		return "1 GPU"
	case slots%of == 0:
		return fmt.Sprintf("%d GPUs", slots/of)
	}
	return fmt.Sprintf("%d of %d slots", slots, of)
}
