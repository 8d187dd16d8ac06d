package reservation

import (
	"time"
)

// pauses are when the scheduler tries a gang again, and what failed before.
type pauses struct {
	// retry is when the scheduler tries the gang again, zero for when something changes. failures counts plans in a row that
	// came to nothing.
	retry    time.Time
	failures int
	// limits are nodes that other plugins refused for a planned member, and unlimit when the first of them ends and the
	// scheduler tries the gang again, zero for never.
	limits  map[string]Limit
	unlimit time.Time
	// inVain counts the rooms in a row that State kept in vain while pods ended, and failed are their nodes.
	inVain int
	failed map[string]bool
	// seekVictimsAt is when preemption may seek victims for the gang again, and noVictimsReason is why not before. If
	// retriesToSeek says so, the scheduler tries the gang then. Preemption counts evictions in a row that came to nothing in
	// voidRooms, and searches in a row without an eviction in fruitlessSearches.
	seekVictimsAt                time.Time
	retriesToSeek                bool
	noVictimsReason              string
	voidRooms, fruitlessSearches int
}

func newPauses() pauses { return pauses{limits: map[string]Limit{}, failed: map[string]bool{}} }

// Limit is how many members a node takes at most, until when: it had accepted so many when it refused one more.
type Limit struct {
	Most  int
	Until time.Time
}

// The pauses before the scheduler makes a new plan after one came to nothing, from the first to the longest. Longer has a gang
// wait although it would fit now, shorter has the scheduler make plans in vain.
const (
	firstPause   = time.Second
	longestPause = time.Minute
)

// backoff returns the pause after so many failures in a row: 1s, 2s, 4s, … at most a minute.
func backoff(failures int) time.Duration { return doubled(firstPause, longestPause, failures) }

// doubled returns the pause after so many failures in a row: the first one, doubled with each failure, and never above the longest.
func doubled(first, longest time.Duration, failures int) time.Duration {
	pause := first
	for range failures - 1 {
		if pause *= 2; pause >= longest {
			return longest
		}
	}
	return pause
}

// maxDoublings bounds the pause after rooms of a gang that came to nothing: 2¹⁰ times the first, 17 hours of a minute.
const maxDoublings = 10

// voidPause returns the pause after one room that came to nothing, and so many others in a row before it.
func (s *State) voidPause(times int) time.Duration {
	return max(firstPause, min(s.cfg.After, longestPause)) << min(times, maxDoublings)
}

// limitFor is how long a Limit lasts, from when the scheduler may plan the gang again. Longer keeps the gang from a node that
// has room again, shorter has the same plan refused again.
const limitFor = 30 * time.Second

// limit bounds the members on a node for a while. The caller has the gang pause.
func (g *group) limit(node string, most int, now time.Time) {
	g.limits[node] = Limit{Most: most, Until: now.Add(backoff(g.failures + 1)).Add(limitFor)}
}

// fail counts a plan that came to nothing, and has the gang pause.
func (g *group) fail(now time.Time) {
	g.failures++
	g.retry = now.Add(backoff(g.failures))
}

// failMember counts a bind that failed, and has the member pause.
func (g *group) failMember(m *move, e *Unreserved) {
	r := g.repairs[e.UID]
	r.Failures++
	r.At = m.now.Add(backoff(r.Failures))
	g.repairs[e.UID] = r
	m.do(Count{What: RepairsKept})
}

// The least pause between two searches for victims for a gang that find none, and how often it doubles. Longer makes room later
// after a change that helps, shorter takes the time of the scheduler for gangs that no eviction helps: a hundred may wait.
const (
	seekPause     = 5 * time.Second
	seekDoublings = 4
)

// lookPause is the shortest pause between two searches for room to keep for a gang. Shorter keeps room sooner, and costs a plan
// each. After a failed search, or a turn without one, the pause is at least the gang's wait so far divided by passes.
const (
	lookPause = 15 * time.Second
	passes    = 16
)

// evictionsBegin is how long evictions may take to begin. Longer delays the members of a gang that stays after all, shorter may
// have a member placed whose siblings are about to leave.
const evictionsBegin = 30 * time.Second
