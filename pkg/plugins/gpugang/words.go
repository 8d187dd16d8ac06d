package gpugang

import (
	"fmt"
	"slices"

	"k8s.io/apimachinery/pkg/util/duration"

	"github.com/tandem-gpu/tandem/internal/cluster/verdict"
	"github.com/tandem-gpu/tandem/pkg/gang"
	"github.com/tandem-gpu/tandem/pkg/reservation"
)

// words says why the plugin refuses a pod, whose turn it is, and what happens for its gang.
func words(r *reservation.Refuse) string {
	if r == nil {
		return ""
	}
	return r.Why + turnWords(&r.Turn) + roomMade(r.Victims)
}

// turnWords names the room that the scheduler keeps for a gang, or the gang that comes before it.
func turnWords(t *reservation.Turn) string {
	switch t.Kind {
	case reservation.Kept:
		text := "; room for it is kept on " + verdict.Plural(len(t.Nodes), "node") + " as pods end there"
		if t.Left > 0 {
			text += ", the last within " + duration.HumanDuration(t.Left)
		}
		return text
	case reservation.Behind:
		return "; gang " + t.Ahead.String() + " waits before it"
	case reservation.InVain:
		if len(t.Nodes) > 0 {
			return "; the room that was kept for it is free, and " + verdict.First(maxNamed, t.Nodes) + " lack CPU or memory for it"
		}
		return "; the room that was kept for it is free, and its nodes lack something else"
	}
	return t.Text
}

// roomMade says that preemption makes room for a gang, "" where it does not.
func roomMade(victims int) string {
	if victims == 0 {
		return ""
	}
	if victims == 1 {
		return "; room is made for it: 1 pod leaves"
	}
	return "; room is made for it: " + verdict.Plural(victims, "pod") + " leave"
}

// blockers names the pods that a gang waits for, by their gangs where they have one, with their priority.
func (p *Plugin) blockers(pods []gang.Blocker) string {
	names := make([]string, 0, len(pods))
	for _, l := range pods {
		name := l.Pod
		if pod := p.machine.Seen(l.UID, l.Pod); pod != nil {
			if ref, member := p.gangs.Of(pod); member {
				name = ref.String()
			}
			name = fmt.Sprintf("%s (priority %d)", name, priorityOf(pod))
		}
		if !slices.Contains(names, name) {
			names = append(names, name)
		}
	}
	return verdict.First(maxNamed, names)
}

// maxNamed bounds how many pods a message names: events hold 1,024 characters in all.
const maxNamed = 3
