// Package bursts plays the bursts of notebooks on a GPU that they share.
//
// A notebook is idle for a while, computes for a while, and so on. Bursts at the same time divide the GPU equally, less the parts of it
// that belong to other tenants. So a burst never gets less than the share of its notebook, and it may have the whole GPU while it is
// alone. The interference of neighbours beyond that is not modelled.
package bursts

import (
	"math/rand/v2"
	"time"
)

// Session is a notebook that has a share of the GPU from a time to another.
type Session struct {
	From, To time.Duration
	// Burst is the mean time of a burst alone, and Duty the part of its time in which the notebook computes when it is alone. Both bursts
	// and the idle times before them are exponential.
	Burst time.Duration
	Duty  float64
	Seed  uint64
}

// Tenant is another pod that has a part of the GPU, from 0 to 1, from a time to another.
type Tenant struct {
	From, To time.Duration
	Part     float64
}

// Result is what came of the bursts.
type Result struct {
	// Alone is the time that the work which was done takes alone, and Took the time that it took.
	Alone, Took time.Duration
}

// step is the time between two looks at who computes. Bursts of seconds are too short for a larger one.
const step = time.Second

// notebook is a session in a run: left is what is left of its idle time, or of its burst, in seconds.
type notebook struct {
	*Session
	random   *rand.Rand
	computes bool
	left     float64
}

// Play plays the sessions of one GPU until a time.
func Play(sessions []Session, tenants []Tenant, until time.Duration) (r Result) {
	all := make([]*notebook, 0, len(sessions))
	for i := range sessions {
		n := &notebook{Session: &sessions[i], random: rand.New(rand.NewPCG(sessions[i].Seed, 5)), computes: true}
		for n.left <= 0 {
			n.next()
		}
		all = append(all, n)
	}
	from, to := extent(sessions)
	for at := from; at < min(to, until); at += step {
		active := computing(all, at)
		speed := (1 - taken(tenants, at)) / float64(max(1, active))
		for _, n := range all {
			if n.From > at || at >= n.To {
				continue
			}
			if n.computes {
				r.Took += step
				r.Alone += time.Duration(speed * float64(step))
				n.left -= speed * step.Seconds()
			} else {
				n.left -= step.Seconds()
			}
			for n.left <= 0 {
				n.next()
			}
		}
	}
	return r
}

// next begins what comes next: a burst after an idle time, or the other way round. It takes off the time by which the last step was too
// long.
func (n *notebook) next() {
	n.computes = !n.computes
	mean := n.Burst.Seconds()
	if !n.computes {
		mean *= (1 - n.Duty) / n.Duty
	}
	n.left += mean * n.random.ExpFloat64()
}

// extent returns when the first session begins, in whole steps, and when the last one ends.
func extent(sessions []Session) (from, to time.Duration) {
	from = sessions[0].From
	for i := range sessions {
		from, to = min(from, sessions[i].From), max(to, sessions[i].To)
	}
	return from / step * step, to
}

// computing counts the notebooks that compute at a time.
func computing(all []*notebook, at time.Duration) (n int) {
	for _, b := range all {
		if b.computes && b.From <= at && at < b.To {
			n++
		}
	}
	return n
}

// taken returns the part of the GPU that tenants have at a time.
func taken(all []Tenant, at time.Duration) (part float64) {
	for i := range all {
		if all[i].From <= at && at < all[i].To {
			part += all[i].Part
		}
	}
	return min(part, 1)
}
