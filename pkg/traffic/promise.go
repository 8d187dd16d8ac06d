package traffic

import (
	"fmt"
	"time"
)

// Promise is the time within which a part of the requests is answered: 0.99 of them for a p99.
type Promise struct {
	// Quantile is from 0.5 to below 1, and Within is above 0.
	Quantile float64
	Within   time.Duration
	// PerToken is the time within which the same part of the tokens follows the one before, 0 for no such promise. The Ceiling of each replica
	// says up to which rate it keeps that; PerToken itself is for the guard.
	PerToken time.Duration
}

// Validate says what is wrong with a promise.
func (p Promise) Validate() error {
	switch {
	case !(p.Quantile >= .5 && p.Quantile < 1):
		return fmt.Errorf("quantile %v: legal are numbers from .5 to below 1", p.Quantile)
	case p.Within <= 0 || p.Within > MaxTime:
		return fmt.Errorf("latency %v: legal are times above 0 and up to %v", p.Within, MaxTime)
	case p.PerToken < 0 || p.PerToken > MaxTime:
		return fmt.Errorf("per token %v: legal are times from 0 to %v", p.PerToken, MaxTime)
	}
	return nil
}

// Capacity returns the highest rate of arrivals at which a replica keeps a promise, 0 where it keeps it at none.
//
// Example: one request at a time, 10 a second, exponential times: a p99 of 921 ms is kept up to 5 a second, since ln 100 ÷ (10 − 5) is 0.921.
func (r *Replica) Capacity(p Promise) float64 {
	keeps := func(arrivals float64) bool {
		l, ok := r.At(arrivals)
		return ok && l.tail(p.Within.Seconds()) <= 1-p.Quantile
	}
	if !keeps(0) {
		return 0
	}
	low, high := 0.0, r.top()
	if keeps(high) {
		return high
	}
	for range 40 {
		if mid := (low + high) / 2; keeps(mid) {
			low = mid
		} else {
			high = mid
		}
	}
	return low
}

// Best returns the shortest time that a replica can promise at that quantile: the one of a replica that nearly nobody uses.
func (r *Replica) Best(quantile float64) time.Duration {
	l, _ := r.At(r.top() * 1e-9)
	return l.Quantile(quantile)
}
