package fleets

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/tandem-gpu/tandem/pkg/api/v1alpha1"
	"github.com/tandem-gpu/tandem/test/must"
)

// Somebody writes the size back after each pass. After two writes the variant is left alone for half an hour: a condition and one event say so, and the other variant
// grows in its place. A change of the fleet is tried at once.
func TestAnotherWriterOfTheSize(t *testing.T) {
	w := newWorld(t)
	w.arrive("200")
	w.at = w.at.Add(700 * time.Millisecond) // the API keeps whole seconds
	writes := 0
	hour := func() {
		for range 4 * 60 {
			w.pass()
			if w.replicas["bert-a100"] != 1 {
				writes++
			}
			w.replicas["bert-a100"] = 1
			w.setReady("bert-a100", 1)
			w.setReady("bert-t4", w.replicas["bert-t4"])
		}
	}
	hour()
	if writes > 3 || writes < 2 {
		t.Errorf("the size was written %d times in an hour", writes)
	}
	if got, text := w.condition(v1alpha1.ConditionFleetReady), w.message(v1alpha1.ConditionScaled); got != "False AnotherWriter" || !strings.Contains(text, "variant a100: Deployment bert-a100 was changed from 1 to ") {
		t.Errorf("%s, %s", got, text)
	}
	if w.replicas["bert-t4"] != 20 {
		t.Errorf("t4 has %d replicas", w.replicas["bert-t4"])
	}
	until := w.fleet("bert").Status.Variants[0].LeftAloneUntil
	if until == nil || w.fleet("bert").Status.Variants[1].LeftAloneUntil != nil {
		t.Fatalf("%+v", w.fleet("bert").Status.Variants)
	}
	told := slices.DeleteFunc(w.events(), func(e string) bool { return !strings.Contains(e, "Warning AnotherWriter leaves variant a100 alone") })
	if n := testutil.ToFloat64(w.metrics.contests); len(told) != 2 || n != 2 { // after the writes at first, and after the one half an hour later
		t.Errorf("%d events and %v contests, first %q", len(told), n, told[:min(3, len(told))])
	}
	versions := map[string]bool{}
	for range 40 {
		w.pass()
		versions[w.fleet("bert").ResourceVersion] = true
	}
	if len(versions) > 20 {
		t.Errorf("40 passes wrote the status %d times", len(versions))
	}
	w.restart()
	for range int(until.Sub(w.at)/(15*time.Second)) - 1 {
		if got := w.pass(); slices.ContainsFunc(got, func(write string) bool { return strings.HasPrefix(write, "scale bert-a100") }) {
			t.Fatalf("a new process writes %q before %v", got, until)
		}
	}
	if text := w.message(v1alpha1.ConditionScaled); !strings.Contains(text, "variant a100: Deployment bert-a100 was changed to another number of replicas, and somebody changed that again soon") {
		t.Error(text)
	}
	w.writes = nil
	f := w.fleet("bert")
	f.Generation++
	f.Spec.Variants[0].MinReplicas = 3
	must.OK(t, w.objects.Update(t.Context(), f))
	if got := w.pass(); !slices.Contains(got, "scale bert-a100 1→20") && !strings.Contains(strings.Join(got, ","), "scale bert-a100 1→") {
		t.Errorf("after a change of the fleet: %q", got)
	}
}

// Somebody writes the weights back after each pass. After two writes they are left alone for half an hour: a condition and one event say so. A new process goes on with
// that, and a change of the fleet is tried at once.
func TestAnotherWriterOfTheWeights(t *testing.T) {
	w := newWorld(t)
	w.change(func(s *v1alpha1.InferenceFleetSpec) { s.Variants[1].MinReplicas = 4 })
	w.arrive("20")
	w.at = w.at.Add(700 * time.Millisecond) // the API keeps whole seconds
	w.pass()
	w.setReady("bert-t4", 4)
	writes := 0
	for range 4 * 60 {
		w.pass()
		if w.weights() != "bert-t4:0 bert-a100:1" {
			writes++
		}
		w.setWeights(0, 1)
	}
	if writes > 3 || writes < 2 {
		t.Errorf("the weights were written %d times in an hour", writes)
	}
	if got, text := w.condition(v1alpha1.ConditionRouted), w.message(v1alpha1.ConditionRouted); got != "False AnotherWriter" || w.condition(v1alpha1.ConditionFleetReady) != got ||
		!strings.Contains(text, "HTTPRoute bert got other weights, and somebody changed that again soon, 3 times in a row: its managedFields say who writes spec.rules") {
		t.Errorf("%s, %s", got, text)
	}
	told := slices.DeleteFunc(w.events(), func(e string) bool { return !strings.Contains(e, "Warning AnotherWriter leaves the weights alone") })
	if n := testutil.ToFloat64(w.metrics.contests); len(told) != 2 || n != 2 { // after the writes at first, and after the one half an hour later
		t.Errorf("%d events and %v contests, first %q", len(told), n, told[:min(3, len(told))])
	}
	until := w.fleet("bert").Status.WeightsLeftAloneUntil
	if until == nil {
		t.Fatal("the status does not say until when")
	}
	w.restart()
	for range int(until.Sub(w.at)/(15*time.Second)) - 1 {
		if got := w.pass(); len(got) > 0 {
			t.Fatalf("a new process writes %q before %v", got, until)
		}
	}
	if text := w.message(v1alpha1.ConditionRouted); !strings.Contains(text, "HTTPRoute bert got other weights, and somebody changed that again soon, several times in a row") {
		t.Error(text)
	}
	f := w.fleet("bert")
	f.Generation++
	must.OK(t, w.objects.Update(t.Context(), f))
	if got := w.pass(); len(got) != 1 || !strings.HasPrefix(got[0], "route bert-t4:") {
		t.Errorf("after a change of the fleet: %q", got)
	}
	w.settle(time.Minute)
	if f := w.fleet("bert"); w.condition(v1alpha1.ConditionRouted) != "True Routed" || f.Status.WeightsLeftAloneUntil != nil {
		t.Errorf("once nobody else writes: %s, %v", w.condition(v1alpha1.ConditionRouted), f.Status.WeightsLeftAloneUntil)
	}
}

// Weights that change with the load, and that nobody undoes, are no contest, and neither are two other writes hours apart.
func TestWeightsThatChange(t *testing.T) {
	w := newWorld(t)
	w.change(func(s *v1alpha1.InferenceFleetSpec) { s.Variants[1].MinReplicas = 4 })
	w.arrive("20")
	w.settle(time.Minute)
	for minute := range 6 * 60 {
		w.setReady("bert-t4", 3+minute%2)
		for range 4 {
			w.pass()
		}
		if minute%170 == 10 {
			w.setWeights(500, 500)
		}
		if got := w.condition(v1alpha1.ConditionRouted); got != "True Routed" {
			t.Fatalf("after %d minutes: %s, %s", minute, got, w.message(v1alpha1.ConditionRouted))
		}
	}
}

// Somebody holds the weights of a variant that is no longer needed. It shrinks to what serves these requests: half of 22 a second, of which a replica serves 5.15, and
// to nothing once it gets none.
func TestShrinksBesideAnotherWriter(t *testing.T) {
	w := newWorld(t)
	w.replicas["bert-t4"] = 8
	w.setReady("bert-t4", 8)
	w.arrive("20")
	w.setWeights(500, 500)
	w.before = func(what string) error {
		if what == "scale bert-t4" && w.replicas["bert-t4"] <= 3 && w.weights() == "bert-t4:500 bert-a100:500" {
			t.Errorf("with half of the requests t4 has %d replicas, and fewer are asked for", w.replicas["bert-t4"])
		}
		return nil
	}
	hours := func(t4, a100 int64) {
		for range 3 * 240 {
			w.settle(15 * time.Second)
			w.setWeights(t4, a100)
		}
	}
	hours(500, 500)
	if n := w.replicas["bert-t4"]; n != 3 || w.condition(v1alpha1.ConditionScaled) != "True Scaled" {
		t.Errorf("t4 has %d replicas, want 3; %s", n, w.condition(v1alpha1.ConditionScaled))
	}
	if got := w.fleet("bert").Status.Variants[1]; got.Replicas != 3 || got.Weight != 500 {
		t.Errorf("%+v", got)
	}
	w.before = nil
	w.arrive("60") // it grows where the requests go
	hours(500, 500)
	if n := w.replicas["bert-t4"]; n < 6 || n > 9 || w.condition(v1alpha1.ConditionRouted) != "False AnotherWriter" {
		t.Errorf("with half of 60 requests a second t4 has %d replicas, want 6 to 9; %s", n, w.condition(v1alpha1.ConditionRouted))
	}
	last, changes := w.replicas["bert-t4"], 0
	for i := range 2 * 240 { // two hours in which the load swings within the patience: it does not follow
		w.arrive([]string{"60", "45"}[i/8%2])
		w.settle(15 * time.Second)
		w.setWeights(500, 500)
		if n := w.replicas["bert-t4"]; n != last {
			last, changes = n, changes+1
		}
	}
	if changes > 2 {
		t.Errorf("t4 changed its size %d times", changes)
	}
	w.change(func(s *v1alpha1.InferenceFleetSpec) { s.Variants[1].MaxReplicas = 4 }) // and not beyond what it may have
	hours(500, 500)
	if n := w.replicas["bert-t4"]; n != 4 {
		t.Errorf("t4 has %d replicas, and may have 4", n)
	}
	w.arrive("20")
	hours(0, 1)
	if n := w.replicas["bert-t4"]; n != 0 {
		t.Errorf("without requests t4 has %d replicas", n)
	}
	w.arrive("200")
	hours(0, 1)
	if w.replicas["bert-a100"]*45 < 200 {
		t.Errorf("for 200 requests a second there are %v", w.replicas)
	}
}

// A rule is put before that of the fleet, with the same backends: nobody's weights change until the fleet names its rule.
func TestRuleBeforeTheFleets(t *testing.T) {
	w := newWorld(t)
	w.arrive("200")
	w.pass()
	rules, _, _ := unstructured.NestedSlice(w.route.Object, "spec", "rules")
	debug := map[string]any{"matches": []any{map[string]any{"path": map[string]any{"value": "/debug"}}}, "backendRefs": rules[1].(map[string]any)["backendRefs"]}
	must.OK(t, unstructured.SetNestedSlice(w.route.Object, []any{rules[0], debug, rules[1]}, "spec", "rules"))
	before := w.weightsOf(2)
	w.at = w.at.Add(time.Minute)
	w.replicas["bert-t4"] = 5
	w.setReady("bert-t4", 5)
	w.pass()
	if got := w.condition(v1alpha1.ConditionRouted); got != "False RuleAmbiguous" || w.weightsOf(1) != before || w.weightsOf(2) != before {
		t.Errorf("%s: %s; weights %s and %s, before %s", got, w.message(v1alpha1.ConditionRouted), w.weightsOf(1), w.weightsOf(2), before)
	}
	named := rules[1].(map[string]any)
	named["name"] = "inference"
	must.OK(t, unstructured.SetNestedSlice(w.route.Object, []any{rules[0], debug, named}, "spec", "rules"))
	w.change(func(s *v1alpha1.InferenceFleetSpec) { s.Route.HTTPRoute.RuleName = "inference" })
	w.pass()
	if got := w.condition(v1alpha1.ConditionRouted); got != "True Routed" || w.weightsOf(1) != before || w.weightsOf(2) == before {
		t.Errorf("%s: %s; weights %s and %s, before %s", got, w.message(v1alpha1.ConditionRouted), w.weightsOf(1), w.weightsOf(2), before)
	}
	w.change(func(s *v1alpha1.InferenceFleetSpec) { s.Route.HTTPRoute.RuleName = "absent" })
	w.pass()
	if got := w.message(v1alpha1.ConditionRouted); got != "HTTPRoute bert has 0 rules with the name absent, which route names: one is needed" {
		t.Error(got)
	}
}
