package scenario

import (
	"fmt"
	"slices"
	"time"

	configv1 "github.com/tandem-gpu/tandem/pkg/api/config/v1"
	"github.com/tandem-gpu/tandem/pkg/gang"
	"github.com/tandem-gpu/tandem/pkg/sim"
	"github.com/tandem-gpu/tandem/pkg/vgpu"
)

const (
	// maxMembers bounds the members of a gang.
	maxMembers = 10_000
	// maxDomains bounds the tried domains for a gang, as in GPUGangArgs.
	maxDomains = 1000
	// maxWishes bounds the levels of one list.
	maxWishes = 8
	// drainAfter is the default time that a gang waits before the scheduler keeps room for it, as in GPUGangArgs, and
	// eagerDrainAfter the one where drains are on.
	drainAfter      = 24 * time.Hour
	eagerDrainAfter = time.Minute
	maxDrainAfter   = 24 * time.Hour
	// drainTimeout is the default bound of the time for which the scheduler keeps room for a gang, as in GPUGangArgs.
	drainTimeout    = 24 * time.Hour
	maxDrainTimeout = 720 * time.Hour
)

// drainsWord is a word for the condition of drains, with the default of the least wait before them.
type drainsWord struct {
	word   scalar
	drains gang.Drains
	after  time.Duration
}

// drains are the words, as in GPUGangArgs; the first stands where the scenario has none.
var drains = []drainsWord{
	{"bounded", gang.BoundedDrains, drainAfter},
	{"enabled", gang.AllDrains, eagerDrainAfter},
	{"disabled", gang.NoDrains, drainAfter},
}

// work is the request of a job, or those of the members of a gang, by rank.
type work struct {
	requests []vgpu.Request
	// roles of the members, with their number among those of the role: "worker-2"; "" for a single pod.
	roles []string
	gang  *sim.Gang
}

// jobs returns the pods of a job that has a name.
func (w *work) jobs(name string, arrive, duration time.Duration, declares bool) []sim.Job {
	var own *sim.Gang
	if w.gang != nil {
		own = &sim.Gang{Name: name, MinCount: w.gang.MinCount, Wishes: w.gang.Wishes, Losses: w.gang.Losses, Elastic: w.gang.Elastic}
	}
	jobs := make([]sim.Job, 0, len(w.requests))
	for i := range w.requests {
		job := sim.Job{Request: w.requests[i], Arrive: arrive, Duration: duration, DeclaresEnd: declares, Gang: own}
		pod := name
		if own != nil {
			pod += "/" + w.roles[i]
		}
		named(&job.Request, pod)
		jobs = append(jobs, job)
	}
	return jobs
}

// work reads the request of a job.
func (a *asker) work(path string, f *workFile) work {
	if f.Gang == nil {
		return work{requests: []vgpu.Request{a.request(path, &f.askFile)}}
	}
	if f.Slots != "" || f.GPUMemory != "" || f.CPU != "" || f.Memory != "" || len(f.Models) > 0 {
		a.wrong(path, "a gang, and slots, gpu_memory, cpu, memory or models beside it", "them in the gang's members")
	}
	return a.gang(path+".gang", f.Gang)
}

// gang reads a gang, and refuses one that the empty cluster could not take.
func (a *asker) gang(path string, f *gangFile) work {
	w := work{gang: &sim.Gang{Name: path}}
	if len(f.Members) == 0 {
		a.wrong(path+".members", "no members", "a list of roles such as {role: worker, count: 4, slots: 10}")
	}
	taken := map[scalar]string{}
	for i := range f.Members {
		at, m := at(path+".members", i), &f.Members[i]
		role := a.name(at+".role", m.Role, taken)
		count := int(a.wholeOr(1, at+".count", m.Count, 1, int64(max(1, maxMembers-len(w.requests)))))
		r := a.request(at, &m.askFile)
		for k := range count {
			w.requests = append(w.requests, r)
			w.roles = append(w.roles, fmt.Sprintf("%s-%d", role, k))
		}
	}
	w.gang.MinCount = int(a.wholeOr(0, path+".min_count", f.MinCount, 1, int64(max(1, len(w.requests)))))
	w.gang.Wishes = a.wishes(path, f)
	resizes := a.resizes(path, f, &w)
	if a.err == nil {
		a.fits(path, &w)
	}
	w.gang.Elastic = resizes
	return w
}

// wishes reads the levels that a gang wishes for.
func (a *asker) wishes(path string, f *gangFile) gang.Wishes {
	for _, l := range []struct {
		name string
		list []scalar
	}{{".required", f.Required}, {".preferred", f.Preferred}} {
		if len(l.list) > maxWishes {
			a.wrong(path+l.name, fmt.Sprintf("%d levels", len(l.list)), fmt.Sprintf("at most %d", maxWishes))
		}
	}
	return gang.Wishes{
		Required:  a.reader.levels(path+".required", f.Required, a.levels),
		Preferred: a.reader.levels(path+".preferred", f.Preferred, a.levels),
	}.Or(a.usual)
}

// fits refuses a gang that the cluster could not take if it were empty.
func (a *asker) fits(path string, w *work) {
	h, err := sim.Run(sim.Setup{Nodes: a.all, Labels: a.nodeLabels, Jobs: w.jobs("gang", 0, 0, false)})
	if err != nil {
		a.wrong(path, "a gang that cannot be ("+err.Error()+")", "another")
		return
	}
	refusals, err := h.GangRefusals()
	if err != nil {
		a.wrong(path, "a gang that cannot be ("+err.Error()+")", "another")
		return
	}
	if refusal := refusals[0]; refusal != nil {
		a.wrong(path, "more than the cluster has ("+refusal.String()+")", "what the empty cluster can give")
	}
}

// gangs reads the configuration of gang placement, and the preferred levels of gangs that name none: without any in the file those
// of GPUGangArgs that nodes have.
func (r *reader) gangs(f *gangsFile, known []string) (sim.GangConfig, []string) {
	if f == nil {
		f = &gangsFile{}
	}
	at := 0
	if f.Drain != "" {
		at = slices.IndexFunc(drains, func(d drainsWord) bool { return d.word == f.Drain })
	}
	if at < 0 {
		r.wrong("gangs.drain", quote(f.Drain), "bounded, enabled or disabled")
		at = 0
	}
	c := sim.GangConfig{Drains: drains[at].drains}
	c.DrainAfter = r.drainTime("gangs.drain_after", f.DrainAfter, drains[at].after, [2]time.Duration{0, maxDrainAfter})
	c.DrainTimeout = r.drainTime("gangs.drain_timeout", f.DrainTimeout, drainTimeout, [2]time.Duration{time.Minute, maxDrainTimeout})
	c.MaxDomains = int(r.wholeOr(0, "gangs.max_domains", f.MaxDomains, 1, maxDomains))
	if f.Preferred != nil {
		if len(f.Preferred) > maxWishes {
			r.wrong("gangs.preferred", fmt.Sprintf("%d levels", len(f.Preferred)), fmt.Sprintf("at most %d", maxWishes))
		}
		return c, r.levels("gangs.preferred", f.Preferred, known)
	}
	return c, slices.DeleteFunc(configv1.DefaultPreferredTopology(), func(key string) bool { return !contains(known, key) })
}

// drainTime reads a time of drains within bounds, another where nothing stands.
func (r *reader) drainTime(path string, s scalar, otherwise time.Duration, within [2]time.Duration) time.Duration {
	if s == "" {
		return otherwise
	}
	d, err := time.ParseDuration(string(s))
	if err != nil || d < within[0] || d > within[1] || d%time.Millisecond != 0 {
		r.wrong(path, quote(s), fmt.Sprintf("a time such as 1m30s from %v to %v in whole milliseconds", within[0], within[1]))
	}
	return d
}

// yes reads true or false, false where nothing stands.
func (r *reader) yes(path string, s scalar) bool {
	if s != "" && s != "true" && s != "false" {
		r.wrong(path, quote(s), "true or false")
	}
	return s == "true"
}
