package traffic

import (
	"fmt"
	"math"
	"time"
)

// Replica is how one replica of a variant serves requests, without a queue of others.
//
// A replica that answers several requests at a time has a Rate above one request per Time. Example: with 100 requests a second and a
// time of 50 ms it works on five at a time.
type Replica struct {
	// Rate is how many requests a second a replica completes while it always has enough of them, above 0.
	Rate float64
	// Time is the mean time of a request on an idle replica, above 0.
	Time time.Duration
	// Variation is the squared coefficient of variation of that time: 0 where all requests take the same, 1 where the times are
	// exponential.
	Variation float64
	// Gate is how long a request may wait for the start of the next batch, although there is room in it: the time of a batch where a
	// server begins a batch only when the last one is done, 0 where requests join at any time.
	Gate time.Duration
	// FirstToken is the mean time until the first token of an answer on an idle replica, where a promise is about that; it varies as Time does. 0
	// is for promises about the whole answer. The request takes its place in the replica for Time all the same.
	FirstToken time.Duration
	// Ceiling is a rate of arrivals beyond which the replica breaks a promise that is not about its queue, such as the time for each
	// token; 0 for none.
	Ceiling float64
	// parallel is how many requests it works on at a time, 0 where Rate and Time say it. It stays what it is when times are rounded.
	parallel int
}

// Bounds of what a replica may be declared as.
const (
	MaxRate      = 1e9
	MaxTime      = 24 * time.Hour
	MaxVariation = 1e4
)

// Validate says what is wrong with a replica: the field and its legal values.
func (r *Replica) Validate() error {
	switch {
	case !(r.Rate > 0 && r.Rate <= MaxRate):
		return fmt.Errorf("rate %v: legal are numbers above 0 and up to %g requests a second", r.Rate, float64(MaxRate))
	case r.Time <= 0 || r.Time > MaxTime:
		return fmt.Errorf("time %v: legal are times above 0 and up to %v", r.Time, MaxTime)
	case !(r.Variation >= 0 && r.Variation <= MaxVariation):
		return fmt.Errorf("variation %v: legal are numbers from 0 to %g", r.Variation, float64(MaxVariation))
	case r.Gate < 0 || r.Gate > MaxTime:
		return fmt.Errorf("gate %v: legal are times from 0 to %v", r.Gate, MaxTime)
	case r.FirstToken < 0 || r.FirstToken > r.Time:
		return fmt.Errorf("first token %v: legal are times from 0 to the time of the whole answer, %v", r.FirstToken, r.Time)
	case !(r.Ceiling >= 0 && r.Ceiling <= MaxRate):
		return fmt.Errorf("ceiling %v: legal are numbers from 0 to %g requests a second", r.Ceiling, float64(MaxRate))
	}
	return nil
}

// Slowed returns the replica that takes so many times as long for everything: what neighbours do to it, or what was measured of it.
// A slowdown of 1 changes nothing.
func (r Replica) Slowed(slowdown float64) Replica {
	r.parallel = r.channels()
	r.Rate /= slowdown
	r.Ceiling /= slowdown
	r.Time = scaled(r.Time, slowdown)
	r.Gate = scaled(r.Gate, slowdown)
	r.FirstToken = scaled(r.FirstToken, slowdown)
	return r
}

// channels is how many requests a replica works on at a time.
func (r *Replica) channels() int {
	if r.parallel > 0 {
		return r.parallel
	}
	return int(min(max(1, math.Round(r.Rate*r.Time.Seconds())), maxChannels))
}

// maxChannels bounds the work of a prediction. Beyond it, requests of such a replica hardly ever wait before it is overloaded.
const maxChannels = 4096

// top is the rate of arrivals that a replica cannot exceed.
func (r *Replica) top() float64 {
	if r.Ceiling > 0 {
		return min(r.Rate, r.Ceiling)
	}
	return r.Rate
}

func scaled(d time.Duration, by float64) time.Duration {
	return time.Duration(min(float64(d)*by, float64(math.MaxInt64/2)))
}

// InFlight returns the rate of arrivals at which a replica has at most so many requests at a time, in a part q of all moments, where
// each stays for a mean time: the ceiling of a replica of a language model, whose time for each token grows with the requests that it
// generates for. The number of requests is taken as Poisson. Example: at most 8 at a time in 0.9 of all moments, 10 s each: 0.54 requests a second.
func InFlight(most int, stay time.Duration, q float64) float64 {
	low, high := 0.0, float64(most)+1
	for range 60 {
		if mid := (low + high) / 2; poisson(mid, most) >= q {
			low = mid
		} else {
			high = mid
		}
	}
	return low / stay.Seconds()
}

// poisson returns the probability of at most k events where mean are expected. It adds up the terms on the side of k that has fewer, from k on,
// each from the last one, until they count no more.
func poisson(mean float64, k int) float64 {
	if mean == 0 {
		return 1
	}
	gamma, _ := math.Lgamma(float64(k) + 1)
	term, sum := math.Exp(float64(k)*math.Log(mean)-mean-gamma), 0.0
	if mean <= float64(k) {
		for n := float64(k) + 1; ; n++ {
			if term *= mean / n; term <= sum*1e-18 {
				return 1 - sum
			}
			sum += term
		}
	}
	for n := float64(k); n >= 0 && term > sum*1e-18; n-- {
		sum += term
		term *= n / mean
	}
	return min(sum, 1)
}
