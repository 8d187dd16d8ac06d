package scenario

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/tandem-gpu/tandem/pkg/vgpu"
)

// part is a part of a workload that others may come after, or that comes after others.
type part struct {
	path  string
	after scalar
	// set makes it come after the job with a UID.
	set func(vgpu.UID)
	// leader is the UID of its first pod.
	leader vgpu.UID
	// never is why others cannot come after it, "" where they can.
	never string
}

// orderedPart is a part that comes after another, or that another comes after.
type orderedPart struct {
	name, after string
	leader      vgpu.UID
}

// order reads what comes after what. The parts are by name; of two with one name both are there. It returns those with an order, each
// after the one that it comes after.
func (r *reader) order(parts map[string][]part) []orderedPart {
	names := slices.Sorted(maps.Keys(parts))
	for _, name := range names {
		for _, p := range parts[name] {
			if p.after == "" {
				continue
			}
			before := parts[string(p.after)]
			switch {
			case len(before) == 0:
				r.wrong(p.path+".after", quote(p.after), "the name of a job, a fleet or a notebook: "+strings.Join(names, ", "))
				continue
			case len(before) > 1:
				r.wrong(p.path+".after", quote(p.after), "the name of one job, fleet or notebook; "+before[0].path+" and "+before[1].path+" have this one")
			case before[0].never != "":
				r.wrong(p.path+".after", quote(p.after), before[0].never)
			}
			p.set(before[0].leader)
			if chained(parts, p) {
				r.wrong(p.path+".after", quote(p.after), "a part that does not come after this one")
			}
		}
	}
	if r.err != nil {
		return nil
	}
	var all []orderedPart
	for _, name := range names {
		if parts[name][0].after == "" {
			all = append(all, following(parts, names, name)...)
		}
	}
	return all
}

// following returns a part and those that come after it, directly or not; none where no part does.
func following(parts map[string][]part, names []string, name string) []orderedPart {
	all := []orderedPart{{name, string(parts[name][0].after), parts[name][0].leader}}
	for _, next := range names {
		if string(parts[next][0].after) == name {
			all = append(all, following(parts, names, next)...)
		}
	}
	if len(all) == 1 && all[0].after == "" {
		return nil
	}
	return all
}

// chained reports whether a part comes after itself.
func chained(parts map[string][]part, from part) bool {
	at := from
	for range parts {
		before := parts[string(at.after)]
		if len(before) == 0 {
			return false
		}
		if at = before[0]; at.path == from.path {
			return true
		}
	}
	return false
}

// partsOf returns the parts of a workload that may have an order, by name.
func partsOf(f *workloadFile, list listed, fleets []*fleet, books []*notebooks) map[string][]part {
	parts := map[string][]part{}
	add := func(name scalar, p part) { parts[string(name)] = append(parts[string(name)], p) }
	for i := range f.Jobs {
		name := "jobs/" + string(f.Jobs[i].Name)
		p := part{path: at("workload.jobs", i), after: f.Jobs[i].After, set: func(uid vgpu.UID) { list.comesAfter(name, uid) }, leader: list.leader(name)}
		if f.Jobs[i].Duration == "" {
			p.never = "a job with a duration, since one without it never ends"
		}
		add(f.Jobs[i].Name, p)
	}
	for i, x := range fleets {
		add(f.Fleets[i].Name, part{path: at("workload.fleets", i), after: f.Fleets[i].After, set: func(uid vgpu.UID) { x.after = uid }, leader: x.leader()})
	}
	for i, n := range books {
		p := part{path: at("workload.notebooks", i), after: f.Notebooks[i].After, set: func(uid vgpu.UID) { n.after = uid }, leader: vgpu.UID(n.jobName(0))}
		if n.count != 1 {
			p.never = fmt.Sprintf("one notebook: there are %d of this name", n.count)
		}
		add(f.Notebooks[i].Name, p)
	}
	return parts
}

// belongs reports whether a pod is one of a listed job.
func belongs(uid vgpu.UID, job string) bool {
	return string(uid) == job || strings.HasPrefix(string(uid), job+"/")
}

// leader returns the UID of the first pod of a job.
func (l listed) leader(job string) vgpu.UID {
	for i := range l {
		if belongs(l[i].Request.UID, job) {
			return l[i].Request.UID
		}
	}
	return ""
}

// comesAfter lets a job arrive after the one with a UID.
func (l listed) comesAfter(job string, uid vgpu.UID) {
	for i := range l {
		if belongs(l[i].Request.UID, job) {
			l[i].After = uid
		}
	}
}

// day reads up to when work is told, 0 for the end of the run.
func (r *reader) day(s scalar) time.Duration {
	if s == "" {
		return 0
	}
	return r.duration("day", s, time.Minute)
}
