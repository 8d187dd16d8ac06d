package reservation

import (
	"cmp"
	"maps"
	"time"
)

// allowance bounds the evictions in a minute. The allowance is a bucket that fills evenly. A full bucket holds the evictions of
// a minute, which the scheduler may make at once. The zero value bounds nothing.
type allowance struct {
	// size is how many evictions fill the bucket, 0 for no bound. per is how long one takes to come back. Without a bound per
	// is 0, so no preemptor waits.
	size int
	per  time.Duration
	// full is when the bucket is full again.
	full time.Time
	// claims are those of the preemptors that wait for their turn.
	claims map[Preemptor]claim
}

// claim is what a preemptor waits for.
type claim struct {
	count    int
	priority int32
	// since is when the preemptor began to wait. due is when its turn comes, by the claims at its last request.
	since, due time.Time
}

// claimPatience is how long a claim stands beyond its turn. Longer lets a preemptor that needs no evictions any more delay the
// others, shorter takes the turn of a preemptor that the scheduler is slow to try again.
const claimPatience = time.Minute

// isOver reports whether the preemptor did not come when its turn came.
func (c *claim) isOver(now time.Time) bool { return now.After(c.due.Add(claimPatience)) }

func newAllowance(perMinute int) allowance {
	a := allowance{size: perMinute, claims: map[Preemptor]claim{}}
	if perMinute > 0 {
		a.per = time.Minute / time.Duration(perMinute)
	}
	return a
}

// request takes so many evictions out of the bucket and returns 0, or notes the claim and returns how long the preemptor has to wait.
// Claims of a higher priority come first, then those that wait longer. A preemptor that needs more than the bucket holds waits
// until the bucket is full. isNew says that the preemptor did not wait before.
func (a *allowance) request(id Preemptor, priority int32, count int, now time.Time) (wait time.Duration, isNew bool) {
	if count == 0 {
		delete(a.claims, id)
		return 0, false
	}
	maps.DeleteFunc(a.claims, func(other Preemptor, c claim) bool { return other != id && c.isOver(now) })
	mine, waits := a.claims[id]
	if !waits {
		mine.since = now
	}
	mine.count, mine.priority = count, priority
	if wait = a.wait(id, mine, now); wait == 0 {
		delete(a.claims, id)
		a.spend(count, now)
		return 0, false
	}
	mine.due = now.Add(wait)
	a.claims[id] = mine
	return wait, !waits
}

// wait returns how long a claim has to wait for its turn.
func (a *allowance) wait(id Preemptor, mine claim, now time.Time) time.Duration {
	ahead := 0
	for other, c := range a.claims {
		if other != id && !c.isOver(now) && cmp.Or(cmp.Compare(mine.priority, c.priority), c.since.Compare(mine.since), other.Compare(id)) < 0 {
			ahead += c.count
		}
	}
	most := max(a.size, mine.count) // a full bucket meets a larger claim
	lacking := a.filling(now) + time.Duration(ahead+mine.count-most)*a.per
	return max(0, lacking)
}

// filling returns how long the bucket takes to be full.
func (a *allowance) filling(now time.Time) time.Duration { return max(0, a.full.Sub(now)) }

// spend takes so many evictions out of the bucket, which may owe some afterwards.
func (a *allowance) spend(count int, now time.Time) {
	a.full = now.Add(a.filling(now) + time.Duration(count)*a.per)
}

// forget drops the claim of a preemptor that needs no evictions any more.
func (a *allowance) forget(id Preemptor) { delete(a.claims, id) }
