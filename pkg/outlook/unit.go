package outlook

import (
	"cmp"
	"slices"
	"strings"
	"time"

	"github.com/tandem-gpu/tandem/pkg/gang"
	"github.com/tandem-gpu/tandem/pkg/sim"
	"github.com/tandem-gpu/tandem/pkg/snapshot"
)

// unit is what the simulator places together: a pod, or members of a gang.
type unit struct {
	pods []pod
	// gang is the name of the gang, "" for a pod alone, and min the least number of members.
	gang string
	min  int
}

// apart stands between the name of a gang and what tells it from others of that name. No name has it.
const apart = "@"

// nameOf returns the name of a gang without what tells it from others.
func nameOf(gang string) string {
	name, _, _ := strings.Cut(gang, apart)
	return name
}

// units returns the pods by gangs. Members that wait for a gang of which enough run are alone. Those of a gang of which too few run
// are a gang of their own: the others have their places. Members of which there are too few to run wait for more, so they are left out.
func (w *world) units() []unit {
	var all []unit
	var order []snapshot.GangName
	there, waits := map[snapshot.GangName][]pod{}, map[snapshot.GangName][]pod{}
	for _, p := range append(slices.Clone(w.there), w.waits...) {
		if p.gang == nil {
			all = append(all, unit{pods: []pod{p}})
			continue
		}
		if len(there[*p.gang])+len(waits[*p.gang]) == 0 {
			order = append(order, *p.gang)
		}
		if p.at != nil {
			there[*p.gang] = append(there[*p.gang], p)
		} else {
			waits[*p.gang] = append(waits[*p.gang], p)
		}
	}
	least := map[snapshot.GangName]int{}
	for i := range w.s.Gangs {
		least[w.s.Gangs[i].GangName] = w.s.Gangs[i].MinCount
	}
	names := map[string]int{}
	for _, g := range order {
		name := (&snapshot.Name{Namespace: g.Namespace, Name: g.Name}).Path()
		if names[name]++; names[name] > 1 {
			name += apart + g.Source
		}
		all = append(all, w.split(name, least[g], there[g], waits[g])...)
	}
	return all
}

// split returns the units of one gang.
func (w *world) split(name string, least int, there, waits []pod) []unit {
	byRank(there)
	byRank(waits)
	if least == 0 {
		least = len(there) + len(waits)
	}
	var all []unit
	if len(there) > 0 {
		all = append(all, unit{pods: there, gang: name, min: min(least, len(there))})
	}
	missing := least - len(there)
	switch {
	case missing > len(waits):
		w.gaps[Incomplete] += len(waits)
	case missing > 0:
		if len(there) > 0 {
			name += apart
		}
		all = append(all, unit{pods: waits, gang: name, min: missing})
	default:
		for _, p := range waits {
			all = append(all, unit{pods: []pod{p}})
		}
	}
	if missing > 0 && missing <= len(waits) {
		w.gaps[Topology]++
	}
	return all
}

// byRank orders the members of a gang by the numbers at the ends of their names, as most jobs name them: w-2 before w-10. A snapshot does not
// have their ranks.
func byRank(pods []pod) {
	slices.SortFunc(pods, func(a, b pod) int {
		return cmp.Or(cmp.Compare(len(a.Name.Name), len(b.Name.Name)), cmp.Compare(a.Name.Name, b.Name.Name), cmp.Compare(a.UID, b.UID))
	})
}

// since returns when the first pod came.
func (u *unit) since() time.Time {
	return slices.MinFunc(u.pods, func(a, b pod) int { return a.since.Compare(b.since) }).since
}

// jobs returns the jobs of a unit. Members of a gang end together: with the last of them, and not at all where one declares no end.
func (u *unit) jobs(now time.Time, preferred []string) []sim.Job {
	left, ran := u.pods[0].left, time.Duration(0)
	for i := range u.pods {
		if u.pods[i].left == 0 || left == 0 {
			left = 0
		} else {
			left = max(left, u.pods[i].left)
		}
	}
	if since := u.since(); u.pods[0].at != nil && !since.IsZero() {
		ran = max(0, now.Sub(since))
	}
	var group *sim.Gang
	if u.gang != "" {
		group = &sim.Gang{Name: u.gang, MinCount: u.min, Wishes: gang.Wishes{Preferred: preferred}}
	}
	all := make([]sim.Job, 0, len(u.pods))
	for i := range u.pods {
		p := &u.pods[i]
		p.request.Priority = u.pods[0].request.Priority // the scheduler refuses members that are not alike
		j := sim.Job{Request: p.request, Gang: group, At: p.at, Ran: ran}
		if left > 0 {
			j.Duration, j.DeclaresEnd = ran+left, true
		}
		all = append(all, j)
	}
	return all
}
