package fleets

import (
	"errors"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/tandem-gpu/tandem/pkg/api/v1alpha1"
	"github.com/tandem-gpu/tandem/pkg/traffic"
	"github.com/tandem-gpu/tandem/test/must"
)

func wantWrites(t *testing.T, what string, got []string, want ...string) {
	t.Helper()
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("%s (-want +got):\n%s", what, diff)
	}
}

// 60 requests a second, and a tenth as a margin, are more than an a100 serves: 45.2. The cheapest replicas that are added cost 10: one a100, since
// 20.8 more are 5 t4, which cost 15. It gets requests with the next pass after it is ready.
func TestGrowsThenRoutes(t *testing.T) {
	w := newWorld(t)
	w.arrive("60")
	wantWrites(t, "the first pass", w.pass(), "scale bert-a100 1→2")
	if diff := cmp.Diff([]string{"Normal Grows grows a100 from 1 to 2 replicas: 66 requests a second are expected, 45.2 are served within 1s"}, w.events()); diff != "" {
		t.Error(diff)
	}
	if got := w.condition(v1alpha1.ConditionScaled); got != "False Loading" {
		t.Errorf("while it loads: Scaled is %s", got)
	}
	wantWrites(t, "while it loads", w.pass())
	w.setReady("bert-a100", 2)
	wantWrites(t, "once it is ready", w.pass())
	s := w.fleet("bert").Status
	if s.ObservedGeneration != 3 || s.Reason != "Steady" || s.Demand != "66" || s.Since == nil || !s.Since.Time.Equal(noon) {
		t.Errorf("status: %+v", s)
	}
	want := []v1alpha1.FleetVariantStatus{
		{Name: "a100", Replicas: 2, Ready: 2, Selector: "app=bert-a100", Weight: 1000, Capacity: "45.2", Slowdown: "1"},
		{Name: "t4", Selector: "app=bert-t4", Capacity: "5.15", Slowdown: "1"},
	}
	if diff := cmp.Diff(want, s.Variants); diff != "" {
		t.Error(diff)
	}
	for kind, want := range map[string]string{
		v1alpha1.ConditionFleetReady: "True Controlled", v1alpha1.ConditionMeasured: "True Measured", v1alpha1.ConditionRouted: "True Routed",
		v1alpha1.ConditionScaled: "True Scaled", v1alpha1.ConditionPromiseKept: "Unknown NotMeasured",
	} {
		if got := w.condition(kind); got != want {
			t.Errorf("%s: %s, want %s", kind, got, want)
		}
	}
}

// A variant whose backend is an InferencePool gets its weight there; another variant of the rule may have a Service.
func TestInferencePool(t *testing.T) {
	w := newWorld(t)
	rules, _, _ := unstructured.NestedSlice(w.route.Object, "spec", "rules")
	rules[1].(map[string]any)["backendRefs"].([]any)[1] = map[string]any{"group": "inference.networking.k8s.io", "kind": "InferencePool", "name": "pool", "weight": int64(1)}
	must.OK(t, unstructured.SetNestedSlice(w.route.Object, rules, "spec", "rules"))
	w.change(func(s *v1alpha1.InferenceFleetSpec) { s.Variants[0].InferencePool = "pool" })
	w.setWeights(300, 700)
	w.arrive("30")
	w.settle(time.Minute)
	if w.weights() != "bert-t4:0 pool:1000" || w.condition(v1alpha1.ConditionRouted) != "True Routed" {
		t.Errorf("%s, %s", w.weights(), w.condition(v1alpha1.ConditionRouted))
	}
}

// A variant that had no replica gets its part of the requests when the first one is ready, and it begins with little. A Scale of 0 replicas has no
// field to test.
func TestNewVariantGetsItsPartWhenReady(t *testing.T) {
	w := newWorld(t)
	w.arrive("45")
	wantWrites(t, "the first pass", w.pass(), "scale bert-t4 0→1")
	wantWrites(t, "while it loads", w.pass())
	w.setReady("bert-t4", 1)
	// A t4 serves 5.15 of 49.5 expected requests within the promise; a cold one counts for 0.2 of that.
	wantWrites(t, "once it is ready", w.pass(), "route bert-t4:22 bert-a100:978")
	// 15 s later it counts for 0.6, then in full.
	wantWrites(t, "after 15 s", w.pass(), "route bert-t4:64 bert-a100:936")
	wantWrites(t, "after 30 s", w.pass(), "route bert-t4:104 bert-a100:896")
	wantWrites(t, "from then on", w.pass())
}

// shrinks is a fleet of one a100 and one t4 that needed both, and has not needed the t4 for as long as the patience: with the next pass it leaves.
func shrinks(t *testing.T) *world {
	t.Helper()
	w := newWorld(t)
	w.arrive("45")
	w.settle(3 * time.Minute)
	if w.replicas["bert-t4"] != 1 {
		t.Fatalf("it has %d t4", w.replicas["bert-t4"])
	}
	w.arrive("20")
	for range 100 {
		before := w.weights()
		w.settle(15 * time.Second)
		if w.replicas["bert-t4"] == 0 {
			t.Fatal("the t4 left before its weight was 0 in a pass of its own")
		}
		if strings.HasPrefix(w.weights(), "bert-t4:0 ") && before != w.weights() {
			return w
		}
	}
	t.Fatal("the t4 does not leave the route")
	return nil
}

// A variant leaves the route, and its last replica ends in the next pass.
func TestLeavesTheRouteBeforeItShrinks(t *testing.T) {
	w := shrinks(t)
	if got := w.condition(v1alpha1.ConditionScaled); got != "False WaitsForRoute" {
		t.Errorf("before it leaves: Scaled is %s", got)
	}
	w.events()
	wantWrites(t, "the next pass", w.pass(), "scale bert-t4 1→0")
	if diff := cmp.Diff([]string{"Normal Shrinks shrinks t4 from 1 to 0 replicas: fewer replicas have been enough for 2m0s, and it has not grown in that time"}, w.events()); diff != "" {
		t.Error(diff)
	}
}

// A process that dies between the two writes leaves nothing that another one does not bring to the same end. The new one has no history: it gives
// the t4 requests again, and takes its time.
func TestCrashBetweenTheWrites(t *testing.T) {
	w := shrinks(t)
	w.restart()
	began := w.at
	writes := w.settle(10 * time.Minute)
	at := slices.Index(writes, "scale bert-t4 1→0")
	if at < 1 || !strings.HasPrefix(writes[at-1], "route bert-t4:0 ") {
		t.Errorf("after the restart: %q", writes)
	}
	if w.weights() != "bert-t4:0 bert-a100:1000" || w.replicas["bert-a100"] != 1 {
		t.Errorf("in the end: %s, %v", w.weights(), w.replicas)
	}
	if since := w.fleet("bert").Status.Since; since.Sub(began) < 2*time.Minute {
		t.Errorf("it shrank %v after the start of a process that knew no demand", since.Sub(began))
	}
}

// A weight that another writer gave back to a variant that is about to end keeps its last replica.
func TestWeightsOfOthersKeepReplicas(t *testing.T) {
	w := shrinks(t)
	w.setWeights(500, 500)
	if writes := w.pass(); slices.Contains(writes, "scale bert-t4 1→0") {
		t.Errorf("a variant with half of the requests shrank: %q", writes)
	}
}

// A value that others wrote after the read stands. The next pass goes on from there.
func TestConflicts(t *testing.T) {
	w := newWorld(t)
	w.setWeights(300, 700)
	w.arrive("60")
	w.before = func(what string) error {
		if w.before = nil; what == "scale bert-a100" {
			w.replicas["bert-a100"] = 5 // a person was faster
		}
		return nil
	}
	wantWrites(t, "a scale that changed", w.pass(), "route bert-t4:0 bert-a100:1000")
	if got := w.condition(v1alpha1.ConditionScaled); got != "False ScaleRefused" || w.patches("scale", "stale") != 1 {
		t.Errorf("a scale that changed: %s, %v patches", got, w.patches("scale", "stale"))
	}
	if w.replicas["bert-a100"] != 5 || len(w.events()) != 0 {
		t.Errorf("the number of another writer was lost: %v", w.replicas)
	}
	w.setWeights(300, 700)
	w.before = func(string) error {
		w.before = nil
		w.setWeights(400, 600)
		return nil
	}
	wantWrites(t, "a route that changed", w.pass())
	if got := w.condition(v1alpha1.ConditionRouted); got != "False RouteChanged" || w.weights() != "bert-t4:400 bert-a100:600" {
		t.Errorf("a route that changed: %s, %s", got, w.weights())
	}
	wantWrites(t, "the next pass", w.pass(), "route bert-t4:0 bert-a100:1000")
	if got := w.condition(v1alpha1.ConditionRouted); got != "True Routed" {
		t.Errorf("the next pass: %s", got)
	}
	w.at = w.at.Add(time.Hour) // three soon would be a contest
	w.setWeights(300, 700)
	w.before = func(string) error {
		return apierrors.NewConflict(HTTPRoutes.GroupResource(), "bert", errors.New("busy"))
	}
	wantWrites(t, "a conflict", w.pass())
	w.before = nil
	wantWrites(t, "after the conflict", w.pass(), "route bert-t4:0 bert-a100:1000")
}

// An API server that fails is an error of the pass, and loses nothing.
func TestFailedRequests(t *testing.T) {
	w := newWorld(t)
	w.setWeights(300, 700)
	w.arrive("60")
	w.before = func(string) error { return apierrors.NewInternalError(errors.New("etcd")) }
	if err := w.Pass(t.Context()); err == nil || !strings.Contains(err.Error(), "fleet ns/bert: ") || w.patches("scale", "failed") != 1 || w.patches("route", "failed") != 1 {
		t.Errorf("writes that fail: %v", err)
	}
	if got := w.condition(v1alpha1.ConditionRouted); got != "False WriteFailed" {
		t.Errorf("Routed: %s", got)
	}
	w.before = nil
	w.scaleErr["bert-t4"] = apierrors.NewInternalError(errors.New("etcd"))
	if err := w.Pass(t.Context()); err == nil || len(w.writes) > 0 {
		t.Errorf("a fleet that cannot be read was changed: %q, %v", w.writes, err)
	}
	w.scaleErr = nil
	wantWrites(t, "after the failures", w.pass(), "scale bert-a100 1→2", "route bert-t4:0 bert-a100:1000")
}

// Replicas that leave get no requests from a weight that was not yet written: a shrink waits for a route that cannot be written.
func TestShrinkWaitsForTheRoute(t *testing.T) {
	w := shrinks(t)
	w.setWeights(100, 900)
	w.before = func(what string) error {
		if strings.HasPrefix(what, "route") {
			return apierrors.NewForbidden(HTTPRoutes.GroupResource(), "bert", errors.New("a policy"))
		}
		return nil
	}
	for range 20 {
		_ = w.Pass(t.Context()) // each fails: the route cannot be written
		w.at = w.at.Add(15 * time.Second)
	}
	if w.replicas["bert-t4"] != 1 {
		t.Error("the t4 ended while the route gave it requests")
	}
}

// Tenfold requests: the fleet grows at once, to its bounds, and says which are too small.
func TestSpikeBeyondTheBounds(t *testing.T) {
	w := newWorld(t)
	w.change(func(s *v1alpha1.InferenceFleetSpec) { s.Variants[0].MaxReplicas, s.Variants[1].MaxReplicas = 3, 2 })
	w.arrive("40")
	w.settle(time.Minute)
	w.arrive("400")
	w.settle(time.Minute)
	if got := []int{w.replicas["bert-a100"], w.replicas["bert-t4"]}; !slices.Equal(got, []int{3, 2}) {
		t.Errorf("replicas: %v", got)
	}
	if s := w.fleet("bert").Status; s.Reason != "AtMost" || !strings.HasSuffix(s.Message, "serve 146 within 1s: raise maxReplicas") {
		t.Errorf("%s: %s", s.Reason, s.Message)
	}
	if writes := w.settle(5 * time.Minute); len(writes) > 0 {
		t.Errorf("at its bounds it changes: %q", writes)
	}
}

// A promise that no size keeps: the conditions name the best possible one.
func TestPromiseTooShort(t *testing.T) {
	w := newWorld(t)
	w.change(func(s *v1alpha1.InferenceFleetSpec) { s.Promise.Latency.Duration = 10 * time.Millisecond })
	w.arrive("20")
	w.pass()
	// A request takes 20 ms on average on an idle a100, and 0.99 of them less than ln 100 times that.
	const want = "no number of replicas answers 0.99 of the requests within 10ms: the shortest latency that the fleet can promise is 92ms"
	if got, message := w.condition(v1alpha1.ConditionPromiseKept), w.message(v1alpha1.ConditionPromiseKept); got != "False PromiseTooShort" || message != want {
		t.Errorf("%s: %s", got, message)
	}
}

func TestPromiseKept(t *testing.T) {
	w := newWorld(t)
	for _, test := range []struct{ latency, want, message string }{
		{"0.8", "True Kept", "0.99 of the requests were answered within 800ms, and the promise is 1s"},
		{"1.25", "False Broken", "0.99 of the requests were answered within 1.25s, and the promise is 1s"},
		{"NaN", "Unknown NotMeasured", ""},
	} {
		w.measure(map[string]string{"rate": "20", "latency": test.latency})
		w.at = w.at.Add(time.Minute)
		w.pass()
		if got := w.condition(v1alpha1.ConditionPromiseKept); got != test.want {
			t.Errorf("%s s: %s, want %s", test.latency, got, test.want)
		}
		if got := w.message(v1alpha1.ConditionPromiseKept); test.message != "" && got != test.message {
			t.Errorf("%s s: %s", test.latency, got)
		}
	}
	// At one request a second, a minute has 60: their p99 is just the slowest.
	w.measure(map[string]string{"rate": "1", "latency": "1.25"})
	w.pass()
	if got := w.condition(v1alpha1.ConditionPromiseKept); got != "Unknown NotMeasured" {
		t.Errorf("with few requests: %s", got)
	}
}

// llm makes bert a language model with promises about the first token and each further one.
func llm(s *v1alpha1.InferenceFleetSpec) {
	s.Promise = v1alpha1.FleetPromise{Quantile: "0.9", Of: v1alpha1.PromiseOfFirstToken, Latency: metav1.Duration{Duration: 500 * time.Millisecond}, PerToken: &metav1.Duration{Duration: 40 * time.Millisecond}}
	for i := range s.Variants {
		r := s.Variants[i].Replica
		r.Rate, r.Time, r.FirstToken, r.InFlight = "2", metav1.Duration{Duration: 4 * time.Second}, &metav1.Duration{Duration: 100 * time.Millisecond}, 6
	}
	s.Metrics.Queries.PerToken = "tokens"
}

// A replica that generates eight answers at a time, for 4 s each, has tokens in time while at most six are there: for 0.9 of all moments that is up
// to 0.97 requests a second, and the first token is in time with those.
func TestPromisesOfTokens(t *testing.T) {
	w := newWorld(t)
	w.change(llm)
	for _, test := range []struct{ first, tokens, want, message string }{
		{"0.4", "0.03", "True Kept", "0.9 of the requests had their first token within 400ms, and the promise is 500ms; as many of the tokens followed within 30ms, and the promise is 40ms"},
		{"0.6", "0.03", "False Broken", "0.9 of the requests had their first token within 600ms, and the promise is 500ms; as many of the tokens followed within 30ms, and the promise is 40ms"},
		{"0.4", "0.05", "False Broken", "0.9 of the requests had their first token within 400ms, and the promise is 500ms; as many of the tokens followed within 50ms, and the promise is 40ms"},
		{"0.4", "NaN", "Unknown NotMeasured", "the time for each token is unknown: there is no query for it, or its result is no number"},
	} {
		w.measure(map[string]string{"rate": "3", "latency": test.first, "tokens": test.tokens})
		w.at = w.at.Add(time.Minute)
		w.pass()
		if got := w.condition(v1alpha1.ConditionPromiseKept); got != test.want {
			t.Errorf("%+v: %s", test, got)
		}
		if got := w.message(v1alpha1.ConditionPromiseKept); got != test.message {
			t.Errorf("%+v: %s", test, got)
		}
	}
	f := w.fleet("bert")
	if got := f.Status.Variants[0].Capacity; got != "0.974" {
		t.Errorf("a replica serves %s requests a second", got)
	}
	if !strings.Contains(f.Status.Message, "with the first token within 500ms and each further token within 40ms") {
		t.Errorf("the message is %s", f.Status.Message)
	}
}

// The status has what an earlier process learned. Slowdowns that are no numbers, or those of variants that are gone, count for nothing.
func TestSlowdownsOutliveTheProcess(t *testing.T) {
	w := newWorld(t)
	// With 20 requests a second a replica that is half as fast has a p99 of ln 100 ÷ (25 − 20) s.
	w.measure(map[string]string{"rate": "20", "rate a100": "20", "latency a100": "0.921"})
	w.settle(time.Hour)
	learned := w.fleet("bert").Status.Variants[0].Slowdown
	if x, err := strconv.ParseFloat(learned, 64); err != nil || x < 1.9 || x > 2 {
		t.Fatalf("slowdown: %s", learned)
	}
	f := w.fleet("bert")
	f.Status.Variants = append(f.Status.Variants, v1alpha1.FleetVariantStatus{Name: "gone", Slowdown: "3"})
	f.Status.Variants[1].Slowdown = "NaN"
	must.OK(t, w.objects.Status().Update(t.Context(), f))
	w.restart()
	w.arrive("20")
	w.at = w.at.Add(time.Minute)
	w.pass()
	if got := w.fleet("bert").Status.Variants; len(got) != 2 || got[0].Slowdown != learned || got[1].Slowdown != "1" {
		t.Errorf("after a restart: %+v", got)
	}
}

// A variant whose answers are errors gets no requests for a while, then it is tried again.
func TestErrors(t *testing.T) {
	w := newWorld(t)
	w.change(func(s *v1alpha1.InferenceFleetSpec) { s.Variants[1].MinReplicas = 1 })
	w.arrive("40")
	w.settle(3 * time.Minute)
	w.measure(map[string]string{"rate": "40", "rate t4": "4", "errors t4": "1.9", "rate a100": "36"})
	w.pass()
	if strings.HasPrefix(w.weights(), "bert-t4:0 ") {
		t.Error("a variant with errors for less than half of its requests lost all of them")
	}
	w.measure(map[string]string{"rate": "40", "rate t4": "4", "errors t4": "2.1", "rate a100": "36"})
	w.pass()
	if w.weights() != "bert-t4:0 bert-a100:1000" {
		t.Errorf("weights: %s", w.weights())
	}
	w.arrive("40")
	w.settle(failsFor - 30*time.Second)
	if w.weights() != "bert-t4:0 bert-a100:1000" || w.replicas["bert-t4"] != 1 {
		t.Errorf("before it is tried again: %s, %v", w.weights(), w.replicas)
	}
	writes := w.settle(time.Minute)
	if !slices.ContainsFunc(writes, func(s string) bool {
		return strings.HasPrefix(s, "route bert-t4:") && !strings.HasPrefix(s, "route bert-t4:0 ")
	}) {
		t.Errorf("it is not tried again: %q", writes)
	}
	w.measure(map[string]string{"rate": "40", "rate t4": "4", "errors t4": "4", "rate a100": "36", "errors a100": "36"})
	wantWrites(t, "when all variants fail", w.pass())
	if s := w.fleet("bert").Status; s.Reason != "AllFail" {
		t.Errorf("reason: %s", s.Reason)
	}
}

// A clock that goes back changes nothing, and nothing shrinks for it.
func TestClockGoesBack(t *testing.T) {
	w := shrinks(t)
	w.setWeights(93, 907)
	w.at = w.at.Add(-time.Hour)
	for range 8 {
		if writes := w.pass(); len(writes) > 0 {
			t.Fatalf("an hour back: %q", writes)
		}
	}
}

// Numbers that move alone are written once a minute.
func TestStatusIsWrittenSparingly(t *testing.T) {
	w := newWorld(t)
	w.arrive("20")
	w.settle(time.Minute)
	version := w.fleet("bert").ResourceVersion
	changes := 0
	for i := range 16 {
		w.arrive([]string{"20", "21"}[i/4%2])
		w.pass()
		if now := w.fleet("bert").ResourceVersion; now != version {
			version, changes = now, changes+1
		}
	}
	if changes == 0 || changes > 4 {
		t.Errorf("in four minutes the status was written %d times", changes)
	}
}

// Replicas leave when the route as it was read gives the variant no more than those that stay should get.
func TestMayLeave(t *testing.T) {
	changed := &refusal{reason: reasonRouteChanged}
	for _, test := range []struct {
		name    string
		part    float64
		stays   int
		weights []int
		others  int
		routed  *refusal
		want    bool
	}{
		{"the route has the weight", .4, 2, []int{400, 600}, 1, nil, true},
		{"it has a little more", .41, 2, []int{400, 600}, 1, nil, true},
		{"it has more", .411, 2, []int{400, 600}, 1, nil, false},
		{"it has less", .3, 2, []int{400, 600}, 1, nil, true},
		{"the route changed since it was read", .4, 2, []int{400, 600}, 1, changed, false},
		{"the last replica, without requests", 0, 0, []int{0, 1000}, 1, nil, true},
		{"the last replica, with some", .001, 0, []int{0, 1000}, 1, nil, false},
		{"no replica is ready, and others are wanted", .4, 1, nil, 1, &refusal{reason: reasonNoReplicas}, false},
		{"all replicas of the fleet leave", .4, 0, nil, 0, &refusal{reason: reasonNoReplicas}, true},
		{"all leave, and the route has changed", .4, 0, nil, 0, changed, false},
	} {
		v := &visit{
			fleet: &traffic.Fleet{Variants: make([]traffic.Variant, 2)}, parts: [][]float64{{test.part, 0}}, weights: [][]int{test.weights},
			plan: &traffic.Plan{Variants: []traffic.Sizing{{Replicas: test.stays}, {Replicas: test.others}}},
		}
		if got := v.mayLeave(0, &outcome{routed: test.routed}); got != test.want {
			t.Errorf("%s: %v, want %v", test.name, got, test.want)
		}
	}
}

// The status has the times at which more replicas are needed than there should be now, in whole minutes.
func TestLater(t *testing.T) {
	v := &visit{pass: &pass{now: noon.Add(30 * time.Second)}, plan: &traffic.Plan{
		Variants: []traffic.Sizing{{Replicas: 2}, {Replicas: 1}},
		Later:    []traffic.Need{{In: 75 * time.Second, Replicas: []int{2, 1}}, {In: 10 * time.Minute, Replicas: []int{4, 0}}, {In: time.Hour, Replicas: []int{4, 3}}},
	}}
	want := [][]v1alpha1.FleetNeed{{{From: metav1.NewTime(noon.Add(10 * time.Minute)), Replicas: 4}}, {{From: metav1.NewTime(noon.Add(time.Hour)), Replicas: 3}}}
	for i := range want {
		if diff := cmp.Diff(want[i], v.later(i)); diff != "" {
			t.Errorf("variant %d (-want +got):\n%s", i, diff)
		}
	}
}
