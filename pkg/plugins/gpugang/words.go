package gpugang

import (
	"fmt"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/util/duration"

	"github.com/tandem-gpu/tandem/pkg/gang"
	"github.com/tandem-gpu/tandem/pkg/reservation"
)

// words says why a pod is refused, whose turn it is, and what is done for its gang.
func words(r *reservation.Refuse) string {
	if r == nil {
		return ""
	}
	return r.Why + turnWords(&r.Turn) + roomMade(r.Victims)
}

// turnWords says which room is kept for a gang, or which gang comes before it.
func turnWords(t *reservation.Turn) string {
	switch t.Kind {
	case reservation.Kept:
		text := "; room for it is kept on " + plural(len(t.Nodes), "node") + " as pods end there"
		if t.Left > 0 {
			text += ", the last within " + duration.HumanDuration(t.Left)
		}
		return text
	case reservation.Behind:
		return "; gang " + t.Ahead.String() + " waits before it"
	case reservation.InVain:
		if len(t.Nodes) > 0 {
			return "; the room that was kept for it is free, and " + few(t.Nodes) + " lack CPU or memory for it"
		}
		return "; the room that was kept for it is free, and its nodes lack something else"
	}
	return t.Text
}

// roomMade says that room is made for a gang, "" where it is not.
func roomMade(victims int) string {
	if victims == 0 {
		return ""
	}
	return "; room is made for it: " + plural(victims, "pod") + " of a lower priority leave"
}

// blockers names the pods that a gang waits for, by their gangs where they have one, with their priority.
func (p *Plugin) blockers(pods []gang.Blocker) string {
	names := make([]string, 0, len(pods))
	for _, l := range pods {
		name := l.Pod
		if pod := p.seen(l.UID, l.Pod); pod != nil {
			if ref, member := p.gangs.Of(pod); member {
				name = ref.String()
			}
			name = fmt.Sprintf("%s (priority %d)", name, priorityOf(pod))
		}
		if !slices.Contains(names, name) {
			names = append(names, name)
		}
	}
	return few(names)
}

// plural returns "1 node", "2 nodes".
func plural(n int, noun string) string {
	if n == 1 {
		return "1 " + noun
	}
	return fmt.Sprintf("%d %ss", n, noun)
}

// maxNamed bounds how many pods a message names: events hold 1,024 characters in all.
const maxNamed = 3

// few joins names, and counts those beyond the first.
func few(names []string) string {
	if len(names) <= maxNamed {
		return strings.Join(names, ", ")
	}
	return fmt.Sprintf("%s and %d more", strings.Join(names[:maxNamed], ", "), len(names)-maxNamed)
}
