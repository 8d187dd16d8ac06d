package gpupreempt

import (
	"cmp"
	"time"
)

// allowance bounds the evictions in a minute. It is a bucket that holds as many as may be evicted at once, and fills evenly.
// The zero value bounds nothing.
type allowance struct {
	// size is how many fill the bucket, 0 for no bound, and per how long one takes to come back.
	size int
	per  time.Duration
	// full is when the bucket is full again.
	full time.Time
	// claims are those that wait for their turn, by preemptor.
	claims map[string]claim
}

// claim is a preemptor that waits to evict.
type claim struct {
	count    int
	priority int32
	// since is when it began to wait, due when its turn comes as far as was known when it asked last.
	since, due time.Time
}

// claimPatience is how long a claim stands beyond its turn. Longer lets a preemptor that needs nobody evicted any more delay the
// others, shorter has one lose its turn that the scheduler is slow to try again.
const claimPatience = time.Minute

func newAllowance(perMinute int) allowance {
	a := allowance{size: perMinute, claims: map[string]claim{}}
	if perMinute > 0 {
		a.per = time.Minute / time.Duration(perMinute)
	}
	return a
}

// ask takes so many evictions out of the bucket and returns 0, or notes the claim and returns how long it has to wait. Claims
// of a higher priority come first, then those that wait longer. A preemptor that needs more than the bucket holds waits until it
// is full. It reports whether the claim is a new one.
func (a *allowance) ask(who *preemptor, count int, now time.Time) (wait time.Duration, isNew bool) {
	if a.size == 0 || count == 0 {
		delete(a.claims, who.key)
		return 0, false
	}
	mine, waits := a.claims[who.key]
	if !waits {
		mine.since = now
	}
	mine.count, mine.priority = count, who.priority
	if wait = a.wait(who.key, mine, now); wait == 0 {
		delete(a.claims, who.key)
		a.spend(count, now)
		return 0, false
	}
	mine.due = now.Add(wait)
	a.claims[who.key] = mine
	return wait, !waits
}

// wait returns how long a claim has to wait for its turn.
func (a *allowance) wait(key string, mine claim, now time.Time) time.Duration {
	ahead := 0
	for other, c := range a.claims {
		if now.After(c.due.Add(claimPatience)) {
			delete(a.claims, other)
			continue
		}
		if other != key && cmp.Or(cmp.Compare(mine.priority, c.priority), c.since.Compare(mine.since), cmp.Compare(other, key)) < 0 {
			ahead += c.count
		}
	}
	most := a.size
	if mine.count > most {
		most = mine.count // once the bucket is full
	}
	lacking := a.filling(now) + time.Duration(ahead+mine.count-most)*a.per
	return max(0, lacking)
}

// filling returns how long the bucket takes to be full.
func (a *allowance) filling(now time.Time) time.Duration { return max(0, a.full.Sub(now)) }

// spend takes so many out of the bucket, which may so owe some.
func (a *allowance) spend(count int, now time.Time) {
	if a.size > 0 {
		a.full = now.Add(a.filling(now) + time.Duration(count)*a.per)
	}
}

// forget drops the claim of a preemptor that needs nobody evicted any more.
func (a *allowance) forget(key string) { delete(a.claims, key) }

// afford pays for so many evictions and returns 0, or returns how long the preemptor has to wait until it can.
func (p *Plugin) afford(who preemptor, count int) time.Duration {
	p.state.mu.Lock()
	defer p.state.mu.Unlock()
	wait, isNew := p.state.allowance.ask(&who, count, p.now())
	if isNew {
		p.metrics.deferred.Inc()
	}
	return wait
}
