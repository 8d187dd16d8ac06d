package inference

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"math/rand/v2"
	"net/http"
	"sync"
	"time"
)

const (
	// mostSeconds and mostRequests bound a load.
	mostSeconds, mostRequests = 3600, 200_000
	// answerWithin is how long a request may take. One that takes longer failed.
	answerWithin = 30 * time.Second
)

// Load is what arrives at a gateway: so many requests a second in each second, at random times (Poisson). It is open: a slow answer delays
// no later request.
type Load struct {
	Rates []float64
	Seed  uint64
}

// Steady returns a load of one rate.
func Steady(rate float64, seconds int, seed uint64) *Load {
	l := &Load{Rates: make([]float64, seconds), Seed: seed}
	for i := range l.Rates {
		l.Rates[i] = rate
	}
	return l
}

// Compressed returns a load that plays a curve in so many seconds, with a mean rate: each point lasts as long as the others. Between two points
// the rate does not change. The error names what is not legal.
func Compressed(curve []float64, seconds int, mean float64, seed uint64) (*Load, error) {
	switch {
	case len(curve) == 0:
		return nil, errors.New("the curve has no points: at least one is needed")
	case seconds < 1 || seconds > mostSeconds:
		return nil, fmt.Errorf("seconds %d: legal are 1 to %d", seconds, mostSeconds)
	case !(mean > 0 && mean*float64(seconds) <= mostRequests):
		return nil, fmt.Errorf("mean rate %v: legal are rates above 0 that make at most %d requests in %d seconds", mean, mostRequests, seconds)
	}
	l, sum := &Load{Rates: make([]float64, seconds), Seed: seed}, 0.0
	for i := range l.Rates {
		if l.Rates[i] = curve[i*len(curve)/seconds]; !(l.Rates[i] >= 0) {
			return nil, fmt.Errorf("point %d of the curve is %v: legal are rates from 0", i*len(curve)/seconds, l.Rates[i])
		}
		sum += l.Rates[i]
	}
	if sum == 0 || math.IsInf(sum, 1) {
		return nil, fmt.Errorf("the sum of the curve is %v: it must be above 0 and finite", sum)
	}
	for i := range l.Rates {
		l.Rates[i] *= mean * float64(seconds) / sum
	}
	return l, nil
}

// Arrivals returns when the requests arrive, from the begin of the load on. The error names what is not legal.
func (l *Load) Arrivals() ([]time.Duration, error) {
	if len(l.Rates) == 0 || len(l.Rates) > mostSeconds {
		return nil, fmt.Errorf("rates of %d seconds: legal are 1 to %d", len(l.Rates), mostSeconds)
	}
	random := rand.New(rand.NewPCG(l.Seed, 0))
	var arrivals []time.Duration
	for second, rate := range l.Rates {
		if !(rate >= 0 && rate <= mostRequests) {
			return nil, fmt.Errorf("rate %v in second %d: legal are 0 to %d", rate, second, mostRequests)
		}
		// Exponential times have no memory: each second begins anew.
		for at := random.ExpFloat64() / rate; at < 1; at += random.ExpFloat64() / rate {
			if len(arrivals) == mostRequests {
				return nil, fmt.Errorf("the rates have more than %d requests together", mostRequests)
			}
			arrivals = append(arrivals, time.Duration((float64(second)+at)*float64(time.Second)))
		}
	}
	return arrivals, nil
}

// Answer is what came of one request.
type Answer struct {
	// Due is when the request was to be sent. The latency counts from there, so that it has what a slow sender adds too.
	Due     time.Time
	Latency time.Duration
	// Status is 0 where there was no answer; Err says why.
	Status           int
	Variant, Replica string
	Err              error
}

// Failed reports whether the request was not answered well.
func (a *Answer) Failed() bool { return a.Err != nil || a.Status != http.StatusOK }

// Replay sends the requests of a load and returns the answers in the order of arrival. When ctx ends, it sends no more and waits for the
// answers to what it sent.
func Replay(ctx context.Context, l *Load, request func(context.Context) (*http.Request, error)) ([]Answer, error) {
	arrivals, err := l.Arrivals()
	if err != nil {
		return nil, err
	}
	transport := &http.Transport{MaxIdleConnsPerHost: 1024, IdleConnTimeout: time.Minute}
	defer transport.CloseIdleConnections()
	client := &http.Client{Transport: transport}
	answers := make([]Answer, len(arrivals))
	var sent sync.WaitGroup
	began, n := time.Now(), 0
	for i, at := range arrivals {
		due := began.Add(at)
		if !until(ctx, due) {
			break
		}
		n++
		sent.Go(func() { answers[i] = send(context.WithoutCancel(ctx), client, due, request) })
	}
	sent.Wait()
	return answers[:n], nil
}

// until waits for a time, and reports whether it came before the end of ctx.
func until(ctx context.Context, due time.Time) bool {
	timer := time.NewTimer(time.Until(due))
	defer timer.Stop()
	select {
	case <-timer.C:
		return ctx.Err() == nil
	case <-ctx.Done():
		return false
	}
}

func send(ctx context.Context, client *http.Client, due time.Time, request func(context.Context) (*http.Request, error)) Answer {
	ctx, cancel := context.WithDeadline(ctx, due.Add(answerWithin))
	defer cancel()
	a := Answer{Due: due}
	r, err := request(ctx)
	if err != nil {
		a.Err = err
		return a
	}
	response, err := client.Do(r)
	if err == nil {
		_, read := io.Copy(io.Discard, response.Body)
		err = errors.Join(read, response.Body.Close())
		a.Status, a.Variant, a.Replica = response.StatusCode, response.Header.Get(HeaderVariant), response.Header.Get(HeaderReplica)
	}
	a.Latency, a.Err = time.Since(due), err
	return a
}

// Needed returns how many requests are needed so that chance moves the measured part by more than a bound in less than a thousandth of the
// cases, where each request is sent to a variant with the probability part: 3.3 standard deviations are within the bound. For a quarter and
// 0.02: 0.25 × 0.75 × (3.3 ÷ 0.02)² = 5105.
func Needed(part, bound float64) int {
	deviations := 3.3 / bound
	return int(math.Ceil(part * (1 - part) * deviations * deviations))
}
