package integration

import (
	"maps"
	"math"
	"slices"
	"strconv"
	"sync"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/tandem-gpu/tandem/pkg/api/v1alpha1"
	"github.com/tandem-gpu/tandem/test/inference"
)

// divided holds the measured parts to the wanted ones, and the number of requests to what rules chance out.
func divided(t *testing.T, answers []inference.Answer, want map[string]float64) {
	t.Helper()
	const bound = .02
	parts := inference.Parts(answers)
	for _, name := range slices.Sorted(maps.Keys(want)) {
		part := want[name]
		t.Logf("%s answered %.4f of %d requests; its weight is %.4f", name, parts[name], len(answers), part)
		if needed := inference.Needed(part, bound); len(answers) < needed {
			t.Errorf("%d requests: %d are needed to rule chance out", len(answers), needed)
		}
		if math.Abs(parts[name]-part) > bound {
			t.Errorf("%s answered the part %.4f of the requests, want %.4f", name, parts[name], part)
		}
	}
	if failures := inference.Failures(answers); failures != "" {
		t.Error(failures)
	}
}

// gatewayDivides: the gateway divides requests as the weights say, and a rule for a header sends its class to one variant.
func gatewayDivides(t *testing.T, s *gatewayScene) {
	s.serve(t, []pool{
		{name: "a100", hardware: inference.Hardware{GPU: "A100", Share: 1000}, replicas: 1, weight: 750},
		{name: "t4", hardware: inference.Hardware{GPU: "T4", Share: 1000}, replicas: 1, weight: 250},
	})
	var of [2][]inference.Answer
	var both sync.WaitGroup
	both.Go(func() { of[0] = s.send(t, inference.Steady(140, 40, 11), "") })
	both.Go(func() { of[1] = s.send(t, inference.Steady(10, 40, 12), "batch") })
	both.Wait()
	divided(t, of[0], map[string]float64{"a100": .75, "t4": .25})
	if parts := inference.Parts(of[1]); len(of[1]) < 200 || len(parts) != 1 || parts["a100"] < .999 || inference.Failures(of[1]) != "" {
		t.Errorf("the parts of %d requests of the class are %v, want all of them at a100; %s", len(of[1]), parts, inference.Failures(of[1]))
	}
}

// steadyRate is the load of a scene in requests a second, and measured how long it is measured: for so many requests that chance explains
// less than what is found.
const (
	steadyRate = 110
	measured   = time.Minute
)

// gatewayFleetDivides: at the same load and sizes, the weights of the fleet have a lower p99 than equal weights. A variant that gets slower
// loses requests, and one that is fast again gets them back.
func gatewayFleetDivides(t *testing.T, s *gatewayScene) {
	pools := []pool{
		{name: "a100", hardware: inference.Hardware{GPU: "A100", Share: 1000}, replicas: 1, least: 1, most: 1, cost: 10, weight: 500},
		{name: "t4", hardware: inference.Hardware{GPU: "T4", Share: 1000}, replicas: 1, least: 1, most: 1, cost: 3, weight: 500},
	}
	s.serve(t, pools)
	end := s.begin(t, steadyRate, 21)
	equal := s.pass(t, measured)
	s.control(t, "1s", pools)
	s.awaitFleet(t, "the fleet keeps its promise with weights in proportion to the rates", func(f *v1alpha1.InferenceFleet, weights map[string]float64) bool {
		return keeps(f) && weights["t4"] < .26 // 59 of the 259 requests a second that both serve are 0.23
	})
	s.controller.Stop(0) // so that the weights do not change while they are measured
	s.pass(t, time.Second)
	weights := s.weights(t)
	fleet := s.pass(t, measured)
	s.restart(t)
	steady, slow := s.slower(t)
	answers := end()

	divided(t, fleet.of(answers), weights)
	of := [2]time.Duration{inference.Quantile(equal.of(answers), .99), inference.Quantile(fleet.of(answers), .99)}
	t.Logf("%d and %d requests, %v a second: the p99 is %v with equal weights and %v with those of the fleet",
		len(equal.of(answers)), len(fleet.of(answers)), steadyRate, of[0].Round(time.Millisecond), of[1].Round(time.Millisecond))
	if of[1] >= of[0] {
		t.Error("the weights of the fleet have no lower p99")
	}
	parts := [2]float64{inference.Parts(steady.of(answers))["t4"], inference.Parts(slow.of(answers))["t4"]}
	t.Logf("t4 answered %.3f of %d requests before it slowed down, and %.3f of %d afterwards", parts[0], len(steady.of(answers)), parts[1], len(slow.of(answers)))
	if parts[1] >= parts[0]-.02 {
		t.Error("the slow variant has lost no requests")
	}
	if failures := inference.Failures(answers); failures != "" {
		t.Error(failures)
	}
}

// A span is a time of a scene.
type span struct{ from, to time.Time }

// of returns the answers to the requests that were due in the span.
func (s span) of(answers []inference.Answer) []inference.Answer {
	var in []inference.Answer
	for i := range answers {
		if due := answers[i].Due; !due.Before(s.from) && due.Before(s.to) {
			in = append(in, answers[i])
		}
	}
	return in
}

// pass lets requests arrive for a time.
func (s *gatewayScene) pass(t *testing.T, d time.Duration) span {
	t.Helper()
	from := time.Now()
	s.poll(t, "requests have arrived", func() (bool, string) { return time.Since(from) >= d, "" })
	return span{from, time.Now()}
}

// scrapes and passes are the times between two scrapes and between two passes of the controller, window is that of the fleet. On an idle machine
// a slow variant loses weight within three scrapes and a pass; only a fault delays that by the window.
const scrapes, passes, window = time.Second, time.Second, 30 * time.Second

// slower has T4 serve at half of its speed until it has lost weight, and returns a time before and one afterwards.
func (s *gatewayScene) slower(t *testing.T) (before, after span) {
	t.Helper()
	least := 1.0
	before.from = time.Now()
	s.awaitFleet(t, "the weights have been watched", func(_ *v1alpha1.InferenceFleet, weights map[string]float64) bool {
		least = min(least, weights["t4"])
		return time.Since(before.from) > 20*time.Second
	})
	before.to = time.Now()
	s.replicas.slowDown(s.namespace+"/bert-t4", 2)
	s.awaitFleet(t, "the slow variant loses weight", func(_ *v1alpha1.InferenceFleet, weights map[string]float64) bool { return weights["t4"] < least-.01 })
	took := time.Since(before.to)
	t.Logf("%v after t4 slowed down to half of its speed its weight is %.3f, below the least of 20s before, %.3f; three scrapes and a pass take %v",
		took.Round(10*time.Millisecond), s.weights(t)["t4"], least, 3*scrapes+passes)
	if took > window {
		t.Errorf("that took longer than the %v over which rates are measured", window)
	}
	s.awaitFleet(t, "the weight of the slow variant is below three quarters of the one before", func(_ *v1alpha1.InferenceFleet, weights map[string]float64) bool {
		return weights["t4"] < .75*least
	})
	t.Logf("after %v its weight is below three quarters of that", time.Since(before.to).Round(10*time.Millisecond))
	s.pass(t, time.Second)
	after = s.pass(t, 10*time.Second)
	s.replicas.slowDown(s.namespace+"/bert-t4", 1)
	fast := time.Now()
	s.awaitFleet(t, "the variant has nine tenths of its weight back", func(_ *v1alpha1.InferenceFleet, weights map[string]float64) bool {
		return weights["t4"] > .9*least
	})
	t.Logf("%v after t4 is fast again it has nine tenths of its weight", time.Since(fast).Round(10*time.Millisecond))
	return before, after
}

// gatewayFleetScales: no request fails while the controller takes all replicas of a variant away and brings them back. The weight goes first.
func gatewayFleetScales(t *testing.T, s *gatewayScene) {
	const many, few = 120, 40
	pools := []pool{
		{name: "a100", hardware: inference.Hardware{GPU: "A100", Share: 500}, replicas: 1, least: 1, most: 1, cost: 10, weight: 650},
		{name: "t4", hardware: inference.Hardware{GPU: "T4", Share: 1000}, replicas: 1, most: 3, cost: 8, weight: 350},
	}
	s.serve(t, pools)
	serves := func(f *v1alpha1.InferenceFleet, replicas int32, weight float64) bool {
		demand, err := strconv.ParseFloat(f.Status.Demand, 64)
		return err == nil && demand > many && keeps(f) && replicas > 0 && weight > .1
	}
	end := s.begin(t, many, 31)
	s.pass(t, window) // so that the first rate that the fleet sees is that of the load
	s.control(t, "1s", pools)
	s.awaitT4(t, "t4 serves", serves)
	first := end()
	end = s.begin(t, few, 32)
	s.awaitT4(t, "t4 is gone", func(_ *v1alpha1.InferenceFleet, replicas int32, weight float64) bool {
		return replicas == 0 && weight == 0
	})
	without := end()
	end = s.begin(t, many, 33)
	s.awaitT4(t, "t4 is back", serves)
	last := end()
	if inference.Parts(first)["t4"] == 0 || inference.Parts(last)["t4"] == 0 {
		t.Error("t4 has answered nothing: the scene says nothing")
	}
	all := slices.Concat(first, without, last)
	t.Logf("%d requests arrived", len(all))
	if failures := inference.Failures(all); failures != "" {
		t.Error(failures)
	}
}

// awaitT4 waits until a fleet, the ready replicas of T4 and its weight are right, and all its replicas have loaded or ended.
func (s *gatewayScene) awaitT4(t *testing.T, what string, right func(f *v1alpha1.InferenceFleet, replicas int32, weight float64) bool) {
	t.Helper()
	began := time.Now()
	s.awaitFleet(t, what, func(f *v1alpha1.InferenceFleet, weights map[string]float64) bool {
		d, err := s.admin.AppsV1().Deployments(s.namespace).Get(t.Context(), "bert-t4", metav1.GetOptions{})
		return err == nil && d.Status.Replicas == *d.Spec.Replicas && right(f, d.Status.ReadyReplicas, weights["t4"])
	})
	t.Logf("%s after %v", what, time.Since(began).Round(time.Second))
}
