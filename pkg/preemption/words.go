package preemption

import (
	"fmt"
	"strconv"
	"strings"
)

// Words describes what a plan does, for events: "evicts 2 pods: team/a-0, team/b-1 (surplus of team/b)"; "evicts no
// pod, waits for team/c to leave". The candidates must be those of the plan. For a refused plan it is the text of the
// refusal.
func (p *Plan) Words(candidates *Candidates) string {
	switch {
	case p.Refused != nil:
		return p.Refused.Text
	case len(p.Evict) == 0 && len(p.Waits) == 0:
		return "evicts no pod: there is room"
	}
	text := "evicts no pod"
	if len(p.Evict) > 0 {
		text = "evicts " + count(p.Cost.Victims) + ": " + list(p.Evict, candidates)
	}
	if len(p.Waits) > 0 {
		names := make([]string, 0, len(p.Waits))
		for _, i := range p.Waits {
			names = append(names, candidates.Pods[i].Name)
		}
		text += ", waits for " + firstNames(names) + " to leave"
	}
	return text
}

// count writes a number of pods.
func count(pods int) string {
	if pods == 1 {
		return "1 pod"
	}
	return strconv.Itoa(pods) + " pods"
}

// maxNames is the number of names that a text lists. A larger number makes events longer than people read.
const maxNames = 8

// firstNames lists the first of the names, and counts the others.
func firstNames(names []string) string {
	text := strings.Join(names[:min(maxNames, len(names))], ", ")
	if more := len(names) - maxNames; more > 0 {
		text += " and " + strconv.Itoa(more) + " more"
	}
	return text
}

// list names units: "team/a-0, team/b-1 (surplus of team/b), team/c (gang of 4)".
func list(units []Unit, candidates *Candidates) string {
	names := make([]string, 0, len(units))
	for i := range units {
		names = append(names, units[i].words(candidates))
	}
	return firstNames(names)
}

func (u *Unit) words(candidates *Candidates) string {
	switch u.Kind {
	case Surplus:
		return u.Name + " (surplus of " + candidates.Gangs[candidates.Pods[u.Pods[0]].Gang].Name + ")"
	case Whole:
		return fmt.Sprintf("%s (gang of %d)", u.Name, len(u.Pods))
	}
	return u.Name
}
