package fleets

import (
	"fmt"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/tandem-gpu/tandem/pkg/api/v1alpha1"
	"github.com/tandem-gpu/tandem/pkg/traffic"
	"github.com/tandem-gpu/tandem/test/must"
)

// withLong makes long requests of bert a class, with a rule of its own: an a100 serves 10 a second, and 5.4 within the promise; a t4 serves none.
func withLong(t *testing.T) *world {
	t.Helper()
	w := newWorld(t)
	w.change(func(s *v1alpha1.InferenceFleetSpec) {
		s.Classes = []v1alpha1.FleetClass{{Name: "long", Rule: "long-prompts"}}
		s.Variants[0].Classes = []v1alpha1.FleetVariantClass{{Name: "long", Replica: v1alpha1.FleetReplica{Rate: "10", Time: metav1.Duration{Duration: 100 * time.Millisecond}}}}
		s.Variants[1].Cost = 1
		s.Metrics.Queries.ClassRate = "rate of $(class)"
	})
	w.addRule("long-prompts", `{"name": "bert-t4", "port": 80, "weight": 300}, {"name": "bert-a100", "port": 80}`)
	return w
}

// nameRule gives a rule of the route a name.
func (w *world) nameRule(index int, name string) {
	w.Helper()
	rules, _, _ := unstructured.NestedSlice(w.route.Object, "spec", "rules")
	rules[index].(map[string]any)["name"] = name
	must.OK(w.T, unstructured.SetNestedSlice(w.route.Object, rules, "spec", "rules"))
}

// addRule adds a rule to the route.
func (w *world) addRule(name, refs string) {
	w.Helper()
	rules, _, _ := unstructured.NestedSlice(w.route.Object, "spec", "rules")
	rule := object(w.T, `{"apiVersion": "v1", "kind": "Rule", "name": "`+name+`", "backendRefs": [`+refs+`]}`).Object
	delete(rule, "apiVersion")
	delete(rule, "kind")
	must.OK(w.T, unstructured.SetNestedSlice(w.route.Object, append(rules, rule), "spec", "rules"))
}

// arriveOf makes so many requests a second arrive, some of them long.
func (w *world) arriveOf(all, long string) {
	w.measure(map[string]string{"rate": all, "rate of long": long})
}

// The long requests go to the a100 alone, whose rule has no weight for it yet, and the others also to the t4, which serve them for less. A rule that is
// of no class stays as it is.
func TestClassesAreDividedApart(t *testing.T) {
	w := withLong(t)
	w.arriveOf("43", "3")
	for range 12 {
		w.settle(15 * time.Second)
		var t4 int
		if _, err := fmt.Sscanf(w.weights(), "bert-t4:%d", &t4); err != nil {
			t.Fatal(err)
		}
		if got, want := w.fleet("bert").Status.Variants[1].Weight, 40./43*float64(t4); math.Abs(float64(got)-want) > 2 {
			t.Errorf("of all requests the t4 get %d, want %v", got, want)
		}
	}
	if w.weightsOf(2) != "bert-t4:0 bert-a100:1000" || w.weightsOf(0) != "other:7" || w.replicas["bert-a100"] != 1 || w.replicas["bert-t4"] < 4 {
		t.Errorf("long ones: %s, others: %s, %v", w.weightsOf(2), w.weightsOf(0), w.replicas)
	}
	s := w.fleet("bert").Status
	want := []v1alpha1.FleetClassStatus{{Name: "long", Rate: "3", Weights: []v1alpha1.FleetClassWeight{{Variant: "a100", Weight: 1000}}}}
	if diff := cmp.Diff(want, s.Classes); diff != "" {
		t.Error(diff)
	}
	if s.Variants[1].Weight < 400 || s.Variants[1].Weight > 900 {
		t.Errorf("the variants get %+v", s.Variants)
	}
	if got := w.condition(v1alpha1.ConditionRouted) + ", " + w.condition(v1alpha1.ConditionFleetReady); got != "True Routed, True Controlled" {
		t.Error(got)
	}
	if writes := w.settle(5 * time.Minute); len(writes) > 0 {
		t.Errorf("at a steady rate it changes: %q", writes)
	}
}

// More long requests bring a100, although the sum is the same.
func TestClassGrows(t *testing.T) {
	w := withLong(t)
	w.arriveOf("43", "3")
	w.settle(3 * time.Minute)
	w.events()
	w.arriveOf("43", "9")
	w.pass()
	if w.replicas["bert-a100"] < 2 {
		t.Errorf("%v", w.replicas)
	}
	if events := w.events(); len(events) == 0 || !strings.Contains(events[0], "requests a second of such a mix of classes are expected, more than the replicas serve within 1s") {
		t.Errorf("%q", events)
	}
}

// A class of which no request was ever counted has none, and the condition says so. One whose count is no number makes the mix unknown.
func TestUncountedClass(t *testing.T) {
	w := withLong(t)
	w.arrive("20")
	w.pass()
	if got := w.condition(v1alpha1.ConditionMeasured) + ": " + w.message(v1alpha1.ConditionMeasured); got !=
		"True Measured: Prometheus says how many requests arrive; it has counted none of class long: see whether classRate finds its requests" {
		t.Error(got)
	}
	w.at = w.at.Add(time.Minute)
	w.arriveOf("200", "NaN")
	if writes := w.pass(); len(writes) > 0 {
		t.Errorf("it writes %q", writes)
	}
	if got := w.condition(v1alpha1.ConditionMeasured) + ": " + w.message(v1alpha1.ConditionMeasured); !strings.HasPrefix(got, "False NotANumber: class long: query classRate: the result is NaN") {
		t.Error(got)
	}
}

// A class whose only variant has no ready replica keeps its weights, and the others are divided all the same.
func TestClassWithoutReplica(t *testing.T) {
	w := withLong(t)
	w.change(func(s *v1alpha1.InferenceFleetSpec) {
		s.Variants[1].Classes, s.Variants[0].Classes = s.Variants[0].Classes, nil
		s.Variants[1].MaxReplicas = 0
	})
	w.arriveOf("20", "1")
	w.setWeights(300, 700)
	w.settle(time.Minute)
	if w.weights() != "bert-t4:0 bert-a100:1000" || w.weightsOf(2) != "bert-t4:300 bert-a100:<nil>" {
		t.Errorf("%s, long ones: %s", w.weights(), w.weightsOf(2))
	}
	if got := w.message(v1alpha1.ConditionRouted); got != "no replica is ready that serves class long without errors: the weights of that rule stay as they are" {
		t.Error(got)
	}
}

// A rule that another writer moved between the read and the write is not mistaken for that of the class.
func TestRuleOfClassMoves(t *testing.T) {
	w := withLong(t)
	w.arriveOf("20", "1")
	w.before = func(string) error {
		w.before = nil
		rules, _, _ := unstructured.NestedSlice(w.route.Object, "spec", "rules")
		rules[2].(map[string]any)["name"] = "another"
		return unstructured.SetNestedSlice(w.route.Object, rules, "spec", "rules")
	}
	if writes := w.pass(); len(writes) > 0 || w.condition(v1alpha1.ConditionRouted) != "False RouteChanged" {
		t.Errorf("%q, %s", writes, w.condition(v1alpha1.ConditionRouted))
	}
}

// A route without the rule of a class, or with a rule that is not the fleet's alone, stays as it is, and a condition says what is missing.
func TestRefusalsOfClasses(t *testing.T) {
	for _, test := range []struct {
		name  string
		spoil func(w *world)
		want  string
	}{
		{"no rule of the name", func(w *world) { w.change(func(s *v1alpha1.InferenceFleetSpec) { s.Classes[0].Rule = "l" }) },
			"False RuleMissing: HTTPRoute bert has 0 rules with the name l, which class long names: one is needed, with matches for the class"},
		{"two rules of the name", func(w *world) { w.addRule("long-prompts", "") },
			"False RuleMissing: HTTPRoute bert has 2 rules with the name long-prompts, which class long names: one is needed, with matches for the class"},
		{"the rule of the fleet", func(w *world) { w.change(func(s *v1alpha1.InferenceFleetSpec) { s.Route.HTTPRoute.Rule = 2 }) },
			"False RuleMissing: rule long-prompts of HTTPRoute bert is that of class long, and rule 2, for all other requests, is the same one: name another one in route"},
		{"no backend for a variant that serves it", func(w *world) {
			w.addRule("l", `{"name": "bert-t4", "port": 80}`)
			w.change(func(s *v1alpha1.InferenceFleetSpec) { s.Classes[0].Rule = "l" })
		}, "False BackendMissing: rule 3 of HTTPRoute bert has no backend for Service bert-a100 with port 80 of variant a100: add it, with weight 0"},
		{"a backend of others", func(w *world) {
			w.addRule("l", `{"name": "bert-a100", "port": 80}, {"name": "other", "port": 80}`)
			w.change(func(s *v1alpha1.InferenceFleetSpec) { s.Classes[0].Rule = "l" })
		}, "False ForeignBackends: rule 3 of HTTPRoute bert has the backend Service other, which is no Service or InferencePool of a variant, or stands there twice: a rule for the fleet alone is needed"},
		{"a variant that does not serve it has no backend", func(w *world) {
			w.addRule("l", `{"name": "bert-a100", "port": 80, "weight": 0}`)
			w.nameRule(1, "all")
			w.change(func(s *v1alpha1.InferenceFleetSpec) { s.Classes[0].Rule, s.Route.HTTPRoute.RuleName = "l", "all" })
		}, "True Routed: the HTTPRoute has the wanted weights"},
	} {
		w := withLong(t)
		w.arriveOf("20", "1")
		test.spoil(w)
		w.settle(time.Minute)
		if got := w.condition(v1alpha1.ConditionRouted) + ": " + w.message(v1alpha1.ConditionRouted); got != test.want {
			t.Errorf("%s: %s", test.name, got)
		}
		if refused := strings.HasPrefix(test.want, "False"); refused && w.weightsOf(2) != "bert-t4:300 bert-a100:<nil>" {
			t.Errorf("%s: %s", test.name, w.weightsOf(2))
		}
	}
}

// If two fleets name one rule, by its name or by its index, the older one has it.
func TestRuleOfClassIsTaken(t *testing.T) {
	w := withLong(t)
	f := w.fleet("bert")
	for _, test := range []struct {
		name string
		edit func(*v1alpha1.InferenceFleetSpec)
		want string
	}{
		{"both by its name", func(s *v1alpha1.InferenceFleetSpec) { s.Route.HTTPRoute.Rule = 0 },
			"the older InferenceFleet ns/a-bert writes the weights of rule long-prompts of HTTPRoute bert: name another rule for class long"},
		{"the older by its index", func(s *v1alpha1.InferenceFleetSpec) { s.Route.HTTPRoute.Rule, s.Classes = 2, nil },
			"the older InferenceFleet ns/a-bert writes the weights of rule 2 of HTTPRoute bert: name another rule or route"},
		{"the older by the name of the rule that the newer has by its index", func(s *v1alpha1.InferenceFleetSpec) {
			s.Route.HTTPRoute.Rule, s.Classes[0].Rule = 0, "others"
		}, "the older InferenceFleet ns/a-bert writes the weights of rule 1 of HTTPRoute bert: name another rule or route"},
		{"none", func(s *v1alpha1.InferenceFleetSpec) { s.Route.HTTPRoute.Rule, s.Classes = 0, nil }, ""},
	} {
		older := f.DeepCopy()
		older.Name, older.UID = "a-bert", "uid-older"
		test.edit(&older.Spec)
		c := claimsOf([]*v1alpha1.InferenceFleet{f, older})
		r := &route{name: "bert", rules: []rule{{index: 1, name: "others"}, {index: 2, name: "long-prompts"}}}
		got := ""
		if refused := c.route(f); refused != nil {
			got = refused.message
		} else if refused := c.rules(f, r); refused != nil {
			got = refused.message
		}
		if got != test.want {
			t.Errorf("%s: %s", test.name, got)
		}
		own := &route{name: "bert", rules: []rule{{index: int(older.Spec.Route.HTTPRoute.Rule), name: "long-prompts"}}}
		if c.route(older) != nil || c.rules(older, own) != nil {
			t.Errorf("%s: the older one has lost its rule", test.name)
		}
	}
}

// The last replica of a variant leaves when no rule gives it requests, but for those of classes that no replica will serve.
func TestMayLeaveWithClasses(t *testing.T) {
	for _, test := range []struct {
		name    string
		parts   [][]float64
		weights [][]int
		others  int
		// alone says that no other variant serves the class.
		alone bool
		want  bool
	}{
		{"no rule gives it requests", [][]float64{{0, 1}, {0, 1}}, [][]int{{0, 1000}, {0, 1000}}, 1, false, true},
		{"that of the class does", [][]float64{{0, 1}, {.1, .9}}, [][]int{{0, 1000}, {0, 1000}}, 1, false, false},
		{"no replica serves the class, and it has none of it", [][]float64{{0, 1}, {0, 1}}, [][]int{{0, 1000}, nil}, 1, false, true},
		{"no replica serves the class, and it has some of it", [][]float64{{0, 1}, {.5, .5}}, [][]int{{0, 1000}, nil}, 1, false, false},
		{"no replica will serve the class", [][]float64{{0, 1}, {.5, .5}}, [][]int{nil, nil}, 0, false, true},
		{"no replica will serve the class, and others stay", [][]float64{{0, 1}, {1, 0}}, [][]int{{0, 1000}, nil}, 1, true, true},
	} {
		replicas := []traffic.Replica{{Rate: 1}, {Rate: 1}}
		if test.alone {
			replicas[1] = traffic.Replica{}
		}
		v := &visit{
			fleet: &traffic.Fleet{Variants: make([]traffic.Variant, 2), Classes: []traffic.Class{{}, {Replicas: replicas}}},
			parts: test.parts, weights: test.weights, plan: &traffic.Plan{Variants: []traffic.Sizing{{}, {Replicas: test.others}}},
		}
		if got := v.mayLeave(0, &outcome{}); got != test.want {
			t.Errorf("%s: %v", test.name, got)
		}
	}
}

// An illegal class, as an API server without the rules of the CustomResourceDefinition would let through, changes nothing.
func TestDeclaredRefusesBadClasses(t *testing.T) {
	for _, test := range []struct {
		edit func(*v1alpha1.InferenceFleetSpec)
		want string
	}{
		{func(s *v1alpha1.InferenceFleetSpec) {
			s.Classes = append(s.Classes, v1alpha1.FleetClass{Name: "l", Rule: "long-prompts"})
		},
			`classes "long" and "l": both name the rule long-prompts; each needs its own`},
		{func(s *v1alpha1.InferenceFleetSpec) { s.Classes[0].Name = "l" }, `variant "a100": it serves class "long", which spec.classes does not have`},
		{func(s *v1alpha1.InferenceFleetSpec) { s.Variants[0].Classes = nil }, `class "long": no variant serves it`},
		{func(s *v1alpha1.InferenceFleetSpec) { s.Variants[0].Classes[0].Replica.Rate = "much" }, `variant "a100", class "long": replica.rate "much": legal are decimals such as 12.5`},
		{func(s *v1alpha1.InferenceFleetSpec) { s.Objective = "p99-optimal" }, `objective "p99-optimal": with classes it must be "proportional"`},
	} {
		w := withLong(t)
		w.change(test.edit)
		o := w.fleet("bert")
		replicas := make([]description, len(o.Spec.Variants))
		for i := range replicas {
			replicas[i].FleetReplica = o.Spec.Variants[i].Replica
		}
		if _, err := declared(o, replicas); err == nil || err.Error() != test.want {
			t.Errorf("%v, want %s", err, test.want)
		}
	}
}
