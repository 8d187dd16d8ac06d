package elasticity

import (
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/tandem-gpu/tandem/internal/cluster/podgroup"
	"github.com/tandem-gpu/tandem/pkg/api/v1alpha1"
	"github.com/tandem-gpu/tandem/pkg/elastic"
)

// report is what a member reports of itself.
type report struct {
	// rate is its work per second.
	rate float64
	// since is since when its program works without a restart, zero where it does not work yet, or does not show that.
	since time.Time
	// pause is for how long it did no work before that; negative where it does not show that.
	pause time.Duration
}

// reportsOf returns what the members of gangs report, by UID. A node reports only pods that are on it, so that a false agent spoils only
// what runs there.
func reportsOf(nodes []*v1alpha1.GPUNode, members map[podgroup.Ref][]*v1.Pod) map[types.UID]report {
	on := map[types.UID]string{}
	for _, pods := range members {
		for _, pod := range pods {
			on[pod.UID] = pod.Spec.NodeName
		}
	}
	reports := map[types.UID]report{}
	for _, n := range nodes {
		for i := range n.Status.Devices {
			for _, t := range n.Status.Devices[i].Tenants {
				if node, member := on[types.UID(t.UID)]; t.Rate == nil || !member || node != n.Name {
					continue
				}
				r := report{rate: t.Rate.AsApproximateFloat64(), pause: -1} // a pod on several devices tells the same of each
				if t.RateSince != nil {
					r.since = t.RateSince.Time
					if t.PauseSeconds != nil {
						r.pause = time.Duration(*t.PauseSeconds) * time.Second
					}
				}
				reports[types.UID(t.UID)] = r
			}
		}
	}
	return reports
}

// sizeChange is a change of the number of members of a gang.
type sizeChange struct {
	// at is when a pass saw it, and after is the pass before, in whole seconds as members report.
	at, after time.Time
	// stayed are the members that ran before it too.
	stayed map[types.UID]bool
}

// settle is the time after a change of size after which a member that has not shown a restart went on without one. Agents publish
// a restart within a minute and some of their intervals. A shorter time takes a late publication for work without a restart; a
// longer one learns later.
const settle = 2 * time.Minute

// observe takes the rate of the gang, where all its members report one. An error says that the report is impossible.
//
// The published rate is up to a minute old and smoothed over a minute, so the rate itself does not say when the gang was back
// at work after a change of its size. The members' own times say it. The reports between the change and the time at which that
// is known do not count. declared says that the user has declared the resize cost: then all reports count at once.
func (m *memory) observe(g *elasticGang, reports map[types.UID]report, declared bool, now time.Time) error {
	m.served += float64(len(g.running)) * max(0, now.Sub(m.at).Seconds())
	before := m.at
	m.at, m.seen = now, now
	m.noteSize(g, before, now)
	servers, settled := g.servers()
	if len(g.running) == 0 || !settled {
		return nil
	}
	sum, restarts := 0., true
	for _, pod := range g.running {
		r, reports := reports[pod.UID]
		if !reports {
			return nil
		}
		sum += r.rate
		restarts = restarts && !r.since.IsZero()
	}
	m.restarts = m.restarts || restarts
	size := elastic.Size{Workers: len(g.running), Hosts: g.hosts, Servers: servers}
	if m.change != nil && m.restarts && !declared {
		pause, known := m.pause(g, reports, now)
		if !known {
			return nil
		}
		if err := m.learner.ReportAt(m.change.at.Unix(), size, 0); err != nil {
			return err
		}
		now = m.change.at.Add(pause)
	}
	m.change = nil
	return m.learner.ReportAt(now.Unix(), size, sum)
}

// noteSize notes who runs, and a change of their number or that of their nodes. The cost of the change before it stays unknown if
// it is not known yet.
func (m *memory) noteSize(g *elasticGang, last, now time.Time) {
	before := m.present
	m.present = make(map[types.UID]bool, len(g.running))
	stayed := map[types.UID]bool{}
	for _, pod := range g.running {
		m.present[pod.UID] = true
		if before[pod.UID] {
			stayed[pod.UID] = true
		}
	}
	if len(before) > 0 && (len(before) != len(m.present) || m.hosts != g.hosts) {
		m.change = &sizeChange{after: last.Truncate(time.Second), at: now, stayed: stayed}
	}
	m.hosts = g.hosts
}

// pause returns for how long the gang did no work after the last change of its size, and whether that is known: the longest pause
// of a member that stayed and has begun anew since. Members that have joined say nothing of it: they have to start in any case,
// and the others work meanwhile. If no member stayed, all count, from the change on.
//
// Example: the size changes at 12:00:00. The members that stayed work since 12:00:19 and 12:00:20, each after a pause of 9 s, since
// the new ones took 11 s to start: 9 s.
func (m *memory) pause(g *elasticGang, reports map[types.UID]report, now time.Time) (time.Duration, bool) {
	longest, all := time.Duration(0), true
	for _, pod := range g.running {
		r := reports[pod.UID]
		switch {
		case len(m.change.stayed) > 0 && !m.change.stayed[pod.UID]:
		case r.since.IsZero():
			return 0, false
		case !r.since.After(m.change.after):
			all = false
		default:
			pause := r.since.Sub(m.change.at)
			if pause < 0 { // the member began anew before the pass that saw the change
				pause = r.since.Sub(m.change.after)
			}
			if r.pause >= 0 {
				pause = min(pause, r.pause)
			}
			longest = max(longest, pause)
		}
	}
	return longest, all || now.Sub(m.change.at) >= settle
}
