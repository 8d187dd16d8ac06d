package integration

import (
	"fmt"
	"math"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"testing"
	"time"

	evaluation "github.com/tandem-gpu/tandem/evaluation/inference"
	"github.com/tandem-gpu/tandem/test/inference"
)

const (
	// traceTime is how long the trace is played, and traceBefore how long its first rate before that, without counting.
	traceTime, traceBefore = 10 * time.Minute, 90 * time.Second
	// traceRate is the mean of the trace in requests a second.
	traceRate = 90
	// tracePromise is the p99 that is promised, and traceSpan the time of a window in which it is broken or kept. A window has traceLeast requests
	// at least: the p99 of fewer is just the slowest one.
	tracePromise, traceSpan, traceLeast = 2 * time.Second, 10 * time.Second, 100
	// traceQuantile is the part of the requests that is promised.
	traceQuantile = .99
	// mostBroken is the part of its windows that the fleet may break, and mostRan how many times the replica-minutes it may have of the autoscaler
	// with the most room: a fleet that never grows exceeds the first one, and one that always has twice of what it needs the second one.
	mostBroken, mostRan = .1, 1.25
)

// A contestant has replicas of its own, which it scales, and a host, whose requests they answer.
type contestant struct {
	pool
	// perReplica is the target of its HorizontalPodAutoscaler in requests a second, 0 for the fleet.
	perReplica float64
	// beforehand says that a formula has the target.
	beforehand bool
	// The result has the number of windows, when those began that broke the promise, and how long its replicas ran together.
	broken  []time.Duration
	windows int
	ran     time.Duration
}

// contestants are the fleet, and HorizontalPodAutoscalers with three targets: what keeps the promise by the formula of [utilisation] for one
// channel and for as many as a replica has, and the mean of both.
func contestants(t *testing.T) []*contestant {
	t.Helper()
	as := pool{
		hardware: inference.Hardware{GPU: "T4", Share: 500}, replicas: 4, least: 1, most: 12, cost: 1, loads: 5 * time.Second,
	}
	fleet := &contestant{pool: as}
	fleet.name = "fleet"
	all := []*contestant{fleet}
	few, many := utilisation(as.times(t), 1), utilisation(as.times(t), poolSlots)
	for _, of := range []float64{few, (few + many) / 2, many} {
		c := &contestant{pool: as, perReplica: of * as.rate(t), beforehand: of == few || of == many}
		c.name = fmt.Sprintf("hpa-%02.0f", 100*of)
		all = append(all, c)
	}
	return all
}

// utilisation is the part of its rate up to which a replica keeps the promise, by the mean wait of an M/G/1 queue: ρ = 1 - (1+c²)·S·ln 100 ÷
// (2·(promise-S)), where S is the mean time of a request. With several channels S of the wait is divided by their number.
//
// Example: 264 ms with the variation 0.5 and one channel: 1 - 1.5 × 0.264 × 4.605 ÷ (2 × 1.736) = 0.475.
func utilisation(times inference.Times, channels float64) float64 {
	s := times.Mean.Seconds()
	return 1 - (1+times.Variation)*s/channels*math.Log(100)/(2*(tracePromise.Seconds()-s))
}

// gatewayTrace plays a trace to a fleet and to HorizontalPodAutoscalers with several targets, side by side: each has the same requests at the
// same times, equal servers and bounds. See [worse] for what is held.
func gatewayTrace(t *testing.T, s *gatewayScene) {
	all := contestants(t)
	for _, c := range all {
		s.compete(t, c)
	}
	what, load := traceLoad(t)
	answers := make([][]inference.Answer, len(all))
	var sent sync.WaitGroup
	for i, c := range all {
		sent.Go(func() { answers[i] = s.sendUntil(t.Context(), t, load, s.hostOf(c), "") })
	}
	began := time.Now()
	s.pass(t, window) // so that the first rate that each sees is that of the load
	s.scaleAll(t, all)
	s.pass(t, traceBefore-time.Since(began))
	for _, c := range all {
		c.ran = -s.replicas.replicaTime(s.namespace + "/bert-" + c.name)
	}
	played := s.pass(t, traceTime)
	for _, c := range all {
		c.ran += s.replicas.replicaTime(s.namespace + "/bert-" + c.name)
	}
	sent.Wait()
	t.Logf("%s in %v, %d requests a second on average, a promise of %v for the p99, and windows of %v", what, traceTime, traceRate, tracePromise, traceSpan)
	for i, c := range all {
		s.judge(t, c, played.of(answers[i]))
	}
	for _, complaint := range worse(all[0], all[1:]) {
		t.Error(complaint)
	}
}

// compete makes the replicas and the route of a contestant, and waits until requests are answered.
func (s *gatewayScene) compete(t *testing.T, c *contestant) {
	t.Helper()
	s.serveOne(t, &c.pool)
	s.createObject(t, httpRoutes, "HTTPRoute", "bert-"+c.name, map[string]any{
		"parentRefs": []any{map[string]any{"name": "gateway"}}, "hostnames": []any{s.hostOf(c)},
		"rules": []any{map[string]any{"backendRefs": []any{map[string]any{"name": "bert-" + c.name, "port": int64(80), "weight": int64(1)}}}},
	})
	s.poll(t, "requests to "+c.name+" are answered", func() (bool, string) {
		answers := s.sendUntil(t.Context(), t, inference.Steady(20, 1, 1), s.hostOf(c), "")
		return len(answers) > 0 && inference.Failures(answers) == "", inference.Failures(answers)
	})
}

func (s *gatewayScene) hostOf(c *contestant) string { return c.name + "." + s.host() }

// scaleAll makes the fleet and the autoscalers, and waits until these measure.
func (s *gatewayScene) scaleAll(t *testing.T, all []*contestant) {
	t.Helper()
	for _, c := range all {
		if c.perReplica == 0 {
			s.controlRoute(t, tracePromise.String(), []pool{c.pool}, map[string]any{"name": "bert-" + c.name})
		} else {
			s.autoscale(t, &c.pool, c.perReplica)
		}
	}
	for _, c := range all {
		if c.perReplica > 0 {
			s.awaitAutoscaler(t, &c.pool)
		}
	}
}

// judge counts what came of a contestant, and refuses a scene in which nothing happened.
func (s *gatewayScene) judge(t *testing.T, c *contestant, answers []inference.Answer) {
	t.Helper()
	c.broken, c.windows = inference.Windows(answers, traceSpan, traceLeast, tracePromise, traceQuantile)
	sizes := []int64{}
	for _, change := range s.changes() {
		if change.what == "replicas bert-"+c.name {
			sizes = append(sizes, change.to)
		}
	}
	target := "the fleet"
	if c.perReplica > 0 {
		target = fmt.Sprintf("%.1f requests a second for each replica", c.perReplica)
	}
	t.Logf("%s (%s): %d of %d windows broken, %.1f replica-minutes, %d requests, p99 %v; the sizes %v, broken from %v on", c.name, target, len(c.broken),
		c.windows, c.ran.Minutes(), len(answers), inference.Quantile(answers, traceQuantile).Round(time.Millisecond), sizes, c.broken)
	if c.windows < 50 || len(sizes) < 4 {
		t.Errorf("%s: %d windows and the sizes %v: the scene says nothing", c.name, c.windows, sizes)
	}
}

// worse says where a fleet is not what it is for: it breaks no more windows than an autoscaler whose target a formula says, or has fewer
// replica-minutes. The target between both formulas is one that a user does not know beforehand.
func worse(fleet *contestant, rivals []*contestant) (complaints []string) {
	most := time.Duration(0)
	for _, rival := range rivals {
		if rival.beforehand && len(fleet.broken) > len(rival.broken) && fleet.ran >= rival.ran {
			complaints = append(complaints, fmt.Sprintf("%s has fewer broken windows, %d, and no more replica-minutes, %.1f, than the fleet with %d and %.1f",
				rival.name, len(rival.broken), rival.ran.Minutes(), len(fleet.broken), fleet.ran.Minutes()))
		}
		most = max(most, rival.ran)
	}
	if float64(len(fleet.broken)) > mostBroken*float64(fleet.windows) {
		complaints = append(complaints, fmt.Sprintf("the fleet breaks %d of %d windows, more than %v of them", len(fleet.broken), fleet.windows, mostBroken))
	}
	if fleet.ran.Seconds() > mostRan*most.Seconds() {
		complaints = append(complaints, fmt.Sprintf("the fleet has more than %v times the replica-minutes of each autoscaler", mostRan))
	}
	return complaints
}

// TestWorse: what the scene holds a fleet to, on made-up results.
func TestWorse(t *testing.T) {
	of := func(broken int, minutes float64, beforehand bool) *contestant {
		return &contestant{beforehand: beforehand, broken: make([]time.Duration, broken), windows: 60, ran: time.Duration(minutes * float64(time.Minute))}
	}
	for name, c := range map[string]struct {
		fleet, rival *contestant
		complaints   int
	}{
		"better in both":                   {of(1, 50, false), of(2, 60, true), 0},
		"fewer replicas":                   {of(6, 50, false), of(2, 60, true), 0},
		"fewer windows":                    {of(1, 60, false), of(2, 50, true), 0},
		"as many windows":                  {of(2, 60, false), of(2, 50, true), 0},
		"worse in both":                    {of(3, 60, false), of(2, 50, true), 1},
		"worse in windows, and no cheaper": {of(3, 50, false), of(2, 50, true), 1},
		"worse than a target of hindsight": {of(3, 60, false), of(2, 50, false), 0},
		"breaks more than a tenth":         {of(7, 50, false), of(30, 60, true), 1},
		"a tenth, and as dear as may be":   {of(6, 75, false), of(30, 60, true), 0},
		"always keeps far too many":        {of(0, 76, false), of(0, 60, true), 1},
		"breaks most, with far too many":   {of(60, 120, false), of(0, 60, true), 3},
		"never grows, as the autoscaler":   {of(40, 20, false), of(40, 20, true), 1},
	} {
		if got := worse(c.fleet, []*contestant{c.rival}); len(got) != c.complaints {
			t.Errorf("%s: the complaints are %q, want %d", name, got, c.complaints)
		}
	}
}

// traceLoad returns a load, and what it is: the requests of an hour of Azure's trace of conversations where TANDEM_DATA has it, else a day
// that is made up.
func traceLoad(t *testing.T) (what string, load *inference.Load) {
	t.Helper()
	what, curve := "a made-up day", madeUpDay()
	if dir := os.Getenv("TANDEM_DATA"); dir != "" {
		read, err := evaluation.ReadLoad(filepath.Join(dir, "azure_llm", "AzureLLMInferenceTrace_conv.csv"))
		if err != nil {
			t.Fatalf("TANDEM_DATA is set, so the trace should be there: %v", err)
		}
		what, curve = fmt.Sprintf("%d minutes of Azure's conversations", len(read.Rates)-1), read.Rates[1:] // the first minute is not whole
	}
	load, err := inference.Compressed(curve, int(traceTime.Seconds()), traceRate, 41)
	if err != nil {
		t.Fatal(err)
	}
	load.Rates = slices.Concat(slices.Repeat(load.Rates[:1], int(traceBefore.Seconds())), load.Rates)
	return what, load
}

// madeUpDay is a day by quarters of an hour: four times as many requests by day as by night, and three quarters in the afternoon with half as
// many again.
func madeUpDay() []float64 {
	day := make([]float64, 96)
	for i := range day {
		day[i] = 1 - .6*math.Cos(2*math.Pi*float64(i)/float64(len(day)))
		if i >= 64 && i < 67 {
			day[i] *= 1.5
		}
	}
	return day
}
