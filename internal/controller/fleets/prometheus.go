package fleets

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/prometheus/client_golang/api"
	promv1 "github.com/prometheus/client_golang/api/prometheus/v1"
	"github.com/prometheus/common/model"

	"github.com/tandem-gpu/tandem/pkg/api/v1alpha1"
	"github.com/tandem-gpu/tandem/pkg/traffic"
)

// Reasons of the condition Measured.
const (
	reasonMeasured     = "Measured"
	reasonUnreachable  = "PrometheusUnreachable"
	reasonQueryRefused = "QueryRefused"
	reasonNoSample     = "NoSample"
	reasonNoQuery      = "NoQuery"
	reasonManySamples  = "SeveralSamples"
	reasonNotANumber   = "NotANumber"
	reasonStale        = "StaleSample"
	reasonNotReported  = "NotReported"
)

const (
	// measureWithin bounds the time of all queries of a fleet. A Prometheus that takes longer counts as gone: a longer bound would delay
	// the other fleets.
	measureWithin = 5 * time.Second
	// mostAnswer bounds the answer of a query in bytes, and mostHeaders the headers of it. One number takes some hundred.
	mostAnswer, mostHeaders = 1 << 20, 64 << 10
	// mostAge is by how much the time of a sample may differ from the clock. A cache or a Prometheus that stopped answers with older ones; a
	// smaller bound takes clocks that differ for that.
	mostAge = 2 * time.Minute
	// mostFails is the part of a variant's requests beyond which errors take it out of the route.
	mostFails = .5
	// together bounds how many fleets of a namespace are measured at a time, and namespaceWithin the time of all of them. A namespace whose
	// Prometheus does not answer delays the fleets of other namespaces by so much in each pass, however many fleets it has. A smaller bound
	// leaves fleets of large namespaces unmeasured.
	together        = 8
	namespaceWithin = 2 * measureWithin
)

// measurement is what Prometheus said of a fleet.
type measurement struct {
	// rate is requests a second, NaN where problem says why it is unknown. If summed is set, there is no query for it: the rates of the
	// variants say it.
	rate    float64
	problem *refusal
	summed  bool
	// latency and perToken are 0 for unknown.
	latency, perToken time.Duration
	// least is the rate from which on a quantile is more than the slowest request of the window.
	least float64
	// variants in the order of the spec.
	variants []variantMeasurement
	// classes are the rates of the classes in the order of the spec, silent those of which no request was ever counted.
	classes []float64
	silent  []string
}

// variantMeasurement is what a variant did. The rate is NaN where problem says why it is unknown, the latency 0 where it is.
type variantMeasurement struct {
	rate    float64
	problem *refusal
	latency time.Duration
	fails   bool
}

// measureAll measures fleets side by side. The fleets of a namespace wait for one another only, so that a Prometheus that does not answer
// delays its own namespace. It does not wait: the channel gets the index of each fleet whose result is there.
func (c *Controller) measureAll(ctx context.Context, fleets []*v1alpha1.InferenceFleet, now time.Time) (results []measurement, ready <-chan int) {
	ctx, end := context.WithTimeout(ctx, namespaceWithin)
	results, done := make([]measurement, len(fleets)), make(chan int, len(fleets))
	rooms := map[string]chan struct{}{}
	var all sync.WaitGroup
	for i, f := range fleets {
		room := rooms[f.Namespace]
		if room == nil {
			room = make(chan struct{}, together)
			rooms[f.Namespace] = room
		}
		all.Go(func() {
			defer func() { done <- i }()
			if !enter(ctx, room) {
				results[i] = unmeasured(f)
				results[i].problem = &refusal{reasonUnreachable, fmt.Sprintf("it was not measured: Prometheus took %v for the other fleets of the namespace", namespaceWithin)}
				return
			}
			defer func() { <-room }()
			within, end := context.WithTimeout(ctx, measureWithin)
			defer end()
			results[i] = measure(within, c.http, f, now)
		})
	}
	go func() {
		all.Wait()
		end()
	}()
	return results, done
}

// enter takes a place of a room, false where none is free before the end of ctx.
func enter(ctx context.Context, room chan struct{}) bool {
	select {
	case room <- struct{}{}:
	case <-ctx.Done():
		return false
	}
	if ctx.Err() != nil {
		<-room
		return false
	}
	return true
}

// unmeasured returns a measurement that says nothing.
func unmeasured(f *v1alpha1.InferenceFleet) measurement {
	m := measurement{rate: math.NaN(), variants: make([]variantMeasurement, len(f.Spec.Variants)), classes: make([]float64, len(f.Spec.Classes))}
	for i := range m.variants {
		m.variants[i].rate = math.NaN()
	}
	return m
}

// measure queries the Prometheus of a fleet.
func measure(ctx context.Context, client *http.Client, f *v1alpha1.InferenceFleet, now time.Time) measurement {
	m := unmeasured(f)
	quantile, _ := decimal("promise.quantile", f.Spec.Promise.Quantile, defaultQuantile) // a fleet with another text is refused
	m.least = 1 / (1 - quantile) / window(f).Seconds()
	if f.Spec.Metrics.PrometheusURL == "" {
		m.summed = true
		return m
	}
	connection, err := api.NewClient(api.Config{Address: f.Spec.Metrics.PrometheusURL, Client: client})
	if err != nil {
		m.problem = &refusal{reasonUnreachable, fmt.Sprintf("prometheusURL: %v", err)}
		return m
	}
	q := &querier{api: promv1.NewAPI(connection), now: now}
	queries := queriesOf(f)
	for i := range m.variants {
		m.variants[i] = q.variant(ctx, forVariant(queries, &f.Spec.Variants[i]), m.least)
	}
	if m.summed = queries.Rate == ""; !m.summed {
		m.rate, m.problem = q.ask(ctx, "rate", queries.Rate)
	}
	for k := range m.classes {
		m.class(ctx, q, k, f.Spec.Classes[k].Name, queries.ClassRate)
	}
	m.latency = q.seconds(ctx, "latency", queries.Latency)
	if f.Spec.Promise.PerToken != nil {
		m.perToken = q.seconds(ctx, "perToken", queries.PerToken)
	}
	if q.gone != nil { // what was answered before it went away may be of another time
		m.rate, m.problem = math.NaN(), q.gone
	}
	return m
}

// querier queries one Prometheus during one pass.
type querier struct {
	api promv1.API
	now time.Time
	// gone says that it did not answer: then it is not queried again in this pass.
	gone *refusal
}

// variant measures one variant.
func (q *querier) variant(ctx context.Context, queries v1alpha1.FleetQueries, least float64) (m variantMeasurement) {
	if queries.VariantRate == "" {
		return variantMeasurement{rate: math.NaN(), problem: &refusal{reasonNoQuery, "there is no query for its rate"}}
	}
	if m.rate, m.problem = q.ask(ctx, "variantRate", queries.VariantRate); !(m.rate > 0) {
		return m
	}
	if queries.VariantErrors != "" {
		failed, _ := q.ask(ctx, "variantErrors", queries.VariantErrors) // no sample is no error
		m.fails = failed > mostFails*m.rate
	}
	if m.rate >= least {
		m.latency = q.seconds(ctx, "variantLatency", queries.VariantLatency)
	}
	return m
}

// seconds returns a latency, 0 where there is none.
func (q *querier) seconds(ctx context.Context, field, query string) time.Duration {
	if query == "" {
		return 0
	}
	s, _ := q.ask(ctx, field, query)
	if !(s > 0 && s < math.MaxInt32) {
		return 0
	}
	return time.Duration(s * float64(time.Second))
}

// ask returns the number that a query has as its result: from 0 to the highest legal rate. Else it returns NaN and the reason.
func (q *querier) ask(ctx context.Context, field, query string) (float64, *refusal) {
	if q.gone != nil {
		return math.NaN(), q.gone
	}
	value, _, err := q.api.Query(ctx, query, time.Time{})
	if err != nil {
		why := failure(field, err)
		if why.reason == reasonUnreachable {
			q.gone = why
		}
		return math.NaN(), why
	}
	x, at, why := single(value)
	switch {
	case why != nil:
	case q.now.Sub(at).Abs() > mostAge:
		why = &refusal{reasonStale, fmt.Sprintf("the sample is of %s, and now it is %s: see whether Prometheus works, and whether the clocks agree", at.UTC().Format(time.RFC3339), q.now.UTC().Format(time.RFC3339))}
	case !(x >= 0 && x <= traffic.MaxRate):
		why = &refusal{reasonNotANumber, fmt.Sprintf("the result is %v: a number from 0 to %g is needed", x, float64(traffic.MaxRate))}
	default:
		return x, nil
	}
	return math.NaN(), &refusal{why.reason, fmt.Sprintf("query %s: %s", field, why.message)}
}

// single returns the only number of a result, and its time.
func single(value model.Value) (float64, time.Time, *refusal) {
	switch v := value.(type) {
	case *model.Scalar:
		return float64(v.Value), v.Timestamp.Time(), nil
	case model.Vector:
		switch len(v) {
		case 0:
			return 0, time.Time{}, &refusal{reasonNoSample, "Prometheus has no sample for it: see whether it scrapes the replicas, and whether the labels are those of the query"}
		case 1:
			return float64(v[0].Value), v[0].Timestamp.Time(), nil
		}
		return 0, time.Time{}, &refusal{reasonManySamples, fmt.Sprintf("the result has %d series: one is needed, so sum them", len(v))}
	}
	return 0, time.Time{}, &refusal{reasonManySamples, fmt.Sprintf("the result is a %s: one number is needed", value.Type())}
}

// failure says why a query has no result. It repeats no text of a server that does not speak the API of Prometheus: the address is the user's
// choice, and the answer might not be for the user's eyes.
func failure(field string, err error) *refusal {
	var said *promv1.Error
	var transport *url.Error
	switch {
	case errors.As(err, &said) && (said.Type == promv1.ErrBadData || said.Type == promv1.ErrExec):
		return &refusal{reasonQueryRefused, fmt.Sprintf("query %s: Prometheus refuses it: %.300s", field, said.Msg)}
	case errors.As(err, &said):
		return &refusal{reasonUnreachable, fmt.Sprintf("what answers at prometheusURL does not speak the API of Prometheus, or it is overloaded (%s)", said.Type)}
	case errors.Is(err, context.DeadlineExceeded):
		return &refusal{reasonUnreachable, fmt.Sprintf("Prometheus did not answer within %v", measureWithin)}
	case errors.As(err, &transport):
		return &refusal{reasonUnreachable, fmt.Sprintf("Prometheus cannot be reached: %v", transport.Err)}
	}
	return &refusal{reasonUnreachable, "the answer of Prometheus cannot be read"}
}

// newHTTP returns a client for Prometheus at some hosts, or at any where none are named. It follows no redirect, so that the address that the user
// named is the one that is read.
func newHTTP(transport http.RoundTripper, hosts []string) *http.Client {
	if transport == nil {
		t := api.DefaultRoundTripper.(*http.Transport).Clone()
		t.MaxResponseHeaderBytes = mostHeaders
		transport = t
	}
	return &http.Client{
		Transport:     bounded{transport, hosts},
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
}

// bounded reads no more of an answer than mostAnswer, and asks no other hosts than those that are named.
type bounded struct {
	http.RoundTripper
	hosts []string
}

func (b bounded) RoundTrip(r *http.Request) (*http.Response, error) {
	if len(b.hosts) > 0 && !slices.Contains(b.hosts, r.URL.Host) {
		return nil, fmt.Errorf("%s is not allowed: name one of %s in prometheusURL, or ask an administrator to add it to --inference-prometheus",
			r.URL.Host, strings.Join(b.hosts, ", "))
	}
	response, err := b.RoundTripper.RoundTrip(r)
	if err == nil {
		response.Body = struct {
			io.Reader
			io.Closer
		}{io.LimitReader(response.Body, mostAnswer), response.Body}
	}
	return response, err
}
