package wording

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/util/duration"

	"github.com/tandem-gpu/tandem/pkg/snapshot"
	"github.com/tandem-gpu/tandem/pkg/why"
)

// decided reports whether pods wait for a cause alone, so that nothing was tried.
func decided(a *why.Answer) bool {
	return a.Cause != nil && a.Cause.Kind != why.RoomKept && a.Cause.Kind != why.RoomMade
}

// sentence says in one sentence why pods wait.
func sentence(a *why.Answer, at time.Time) string {
	who := subject(a)
	switch {
	case decided(a):
		return causeSentence(who, a.Cause, at)
	case len(a.Fits) > 0:
		return fitsSentence(who, a)
	case a.Cause != nil:
		return causeSentence(who, a.Cause, at)
	case a.Gang != nil:
		return gangSentence(who, a) + giveWay(a, at)
	case len(a.Nodes) == 0:
		return who + " waits: the cluster has no node with GPUs."
	case keptForOthers(a) != nil:
		return fmt.Sprintf("%s waits: the scheduler keeps the room that it needs for %s.", who, leaving(keptForOthers(a).Leave))
	case a.Host != nil: // devices of these nodes would take it
		return fmt.Sprintf("%s waits: the devices of %s would take it, and their hosts have too little free; %s.", who, Count(refusing(a, why.HostFull), "node"), host(a.Host))
	case refusing(a, why.Stray) > 0: // the devices of these nodes would take it too
		return fmt.Sprintf("%s waits: on %s %s.", who, Count(refusing(a, why.Stray), "node"), Reason(why.Stray))
	case a.Miss != nil:
		return fmt.Sprintf("%s waits: %s.", who, miss(a.Miss))
	}
	return fmt.Sprintf("%s waits: on %s %s.", who, Count(a.Nodes[0].Nodes, "node"), Reason(a.Nodes[0].Reason))
}

// keptForOthers returns the room that the scheduler keeps for others where that alone is in the way, nil where it is not.
func keptForOthers(a *why.Answer) *why.Change {
	var kept *why.Change
	for i := range a.Changes {
		switch a.Changes[i].Kind {
		case why.HoldsEnd:
			kept = &a.Changes[i]
		case why.PodsLeave:
			return nil
		}
	}
	return kept
}

// refusing counts the nodes that refuse for a reason.
func refusing(a *why.Answer, reason string) int {
	for _, n := range a.Nodes {
		if n.Reason == reason {
			return n.Nodes
		}
	}
	return 0
}

// gangSentence says why members of a gang wait that have no room.
func gangSentence(who string, a *why.Answer) string {
	if a.Never {
		return fmt.Sprintf("%s waits in vain: %s.", who, cmp.Or(strings.TrimSuffix(a.Said, "."), Count(a.Least, "member")+" must run together, and there is no room for so many even if all devices are free and healthy"))
	}
	have := a.Placed
	for i := range a.Changes {
		have = max(have, a.Changes[i].Members)
	}
	switch {
	case a.Least <= a.Placed:
		return fmt.Sprintf("%s runs with %s, and there is no room for one more.", who, Count(a.Placed, "member"))
	case have == 0:
		return fmt.Sprintf("%s waits: %s must run together, and there is room for none.", who, Count(a.Least, "member"))
	}
	return fmt.Sprintf("%s waits: %s must run together, and there is room for %d only.", who, Count(a.Least, "member"), have)
}

// giveWay says which of two gangs that lack members gives way to the other, "" for none.
func giveWay(a *why.Answer, now time.Time) string {
	from := func(at time.Time) string {
		if !now.Before(at) {
			return "from now on"
		}
		return "in " + duration.HumanDuration(at.Sub(now))
	}
	switch {
	case a.TakesFrom != nil:
		g := a.TakesFrom
		return fmt.Sprintf(" Gang %s lacks members too: if its GPUs help, it is evicted for this gang, %s.", Name(g.Gang.Namespace+"/"+g.Gang.Name), from(g.At))
	case a.GivesWay != nil:
		g := a.GivesWay
		return fmt.Sprintf(" Gang %s lacks members too: if the GPUs of this gang help it, this gang is evicted, %s.", Name(g.Gang.Namespace+"/"+g.Gang.Name), from(g.At))
	}
	return ""
}

// fitsSentence says why pods wait although there is room.
func fitsSentence(who string, a *why.Answer) string {
	switch {
	case slices.Contains(a.Unknown, why.Attempts):
		return fmt.Sprintf("%s has room on %s: the scheduler has not tried it yet.", who, a.Fits[0].Node)
	case len(a.Others) > 0:
		most := slices.MaxFunc(a.Others, func(a, b snapshot.RefusedNodes) int { return a.Nodes - b.Nodes })
		return fmt.Sprintf("%s waits although devices and a host have room for it: at the last attempt the plugin %s refused %s%s.", who, most.Reason, Count(most.Nodes, "node"), lookedAt(most.Reason))
	case a.Promise != nil:
		said := fmt.Sprintf("%s waits although devices have room for it: at the last attempt a promise would have been broken: %s.", who, redacted(a.Promise))
		if a.RoomAt > 0 {
			said += fmt.Sprintf("\n\nTried by the scheduler at that attempt; %s would have fit\n  at max-slowdown %s", who, times(a.RoomAt))
		}
		return said
	case a.Said != "":
		return fmt.Sprintf("%s waits although devices have room for it: the scheduler said at the last attempt: %s.", who, strings.TrimSuffix(a.Said, "."))
	case slices.Contains(a.Unknown, why.Slowdowns):
		return fmt.Sprintf("%s waits although devices have room for it: a promised slowdown may keep it away from there, or the scheduler has not tried it since.", who)
	}
	return fmt.Sprintf("%s has room on %s: the scheduler has not tried it since the room became free.", who, a.Fits[0].Node)
}

// times writes thousandths: 1.35 for 1350.
func times(milli int64) string { return strconv.FormatFloat(float64(milli)/1000, 'f', -1, 64) }

// redacted describes a refusal, with "another team" for pods that the reader may not see.
func redacted(r *snapshot.Refusal) string {
	shown := *r
	hide := func(path string) string {
		if path == snapshot.Other {
			return hidden
		}
		return path
	}
	shown.Promised, shown.Beside = hide(r.Promised), nil
	for _, path := range r.Beside {
		shown.Beside = append(shown.Beside, hide(path))
	}
	return shown.String()
}

// causeSentence says in one sentence what keeps pods waiting beside nodes, devices and hosts.
func causeSentence(who string, c *why.Cause, at time.Time) string {
	switch c.Kind {
	case why.Malformed:
		if c.Pod == nil {
			return fmt.Sprintf("%s waits: %s.", who, orEvents(c.Message))
		}
		return fmt.Sprintf("%s waits: the request of %s cannot be read: %s.", who, orIt(who, c), orEvents(c.Message))
	case why.Illegal:
		return fmt.Sprintf("%s waits: no device can meet the request of %s: %s.", who, orIt(who, c), orEvents(c.Message))
	case why.Gated:
		return fmt.Sprintf("%s waits: the scheduler does not try %s before these scheduling gates are removed: %s.", who, orIt(who, c), strings.Join(c.Gates, ", "))
	case why.HeldBack:
		return fmt.Sprintf("%s waits: its target holds it back, which allows %s%s.", who, Count(c.Want, "worker"), inBrackets(c.Message))
	case why.Incomplete:
		if c.Message != "" {
			return fmt.Sprintf("%s waits: %s.", who, c.Message)
		}
		return fmt.Sprintf("%s waits: %d of the %d members that must run exist.", who, c.Have, c.Want)
	case why.BeingBound:
		return fmt.Sprintf("%s has a place%s, and the scheduler binds it.", who, on(c.Places))
	case why.RoomKept:
		return fmt.Sprintf("%s waits: the scheduler keeps room for it%s, until the pods there have ended%s.", who, on(c.Places), by(c.Until, at))
	}
	return fmt.Sprintf("%s waits until the scheduler has evicted %s for it%s.", who, victims(c.Victims), by(c.Until, at))
}

// orIt names the pod of a cause, "the pod" where the sentence is about that pod alone.
func orIt(who string, c *why.Cause) string {
	if name := Name(c.Pod.Path()); name != who {
		return name
	}
	return "the pod"
}

// victims names pods that are evicted.
func victims(places []snapshot.Place) string {
	pods := make([]snapshot.Name, 0, len(places))
	for _, p := range places {
		pods = append(pods, p.Name)
	}
	return names(pods)
}

func orEvents(message string) string {
	if message == "" {
		return "the events of the pod say why"
	}
	return strings.TrimSuffix(message, ".")
}

func inBrackets(word string) string {
	if word == "" {
		return ""
	}
	return " (" + word + ")"
}

// by writes a time by which something has ended, "" where it is not known.
func by(until int64, at time.Time) string {
	if until == 0 {
		return ""
	}
	return ", in " + duration.HumanDuration(max(0, time.Unix(until, 0).Sub(at))) + " at the latest"
}

// on names the nodes of places, as many as a line has.
func on(places []snapshot.Place) string {
	names := make([]string, 0, len(places))
	for i := range places {
		names = append(names, places[i].Node)
	}
	slices.Sort(names)
	names = slices.Compact(names)
	switch {
	case len(names) == 0:
		return ""
	case len(names) > most:
		return fmt.Sprintf(" on %s and %s", strings.Join(names[:most], ", "), Count(len(names)-most, "more node"))
	}
	return " on " + strings.Join(names, ", ")
}
