package integration

import (
	"fmt"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"

	"github.com/tandem-gpu/tandem/pkg/api/v1alpha1"
	"github.com/tandem-gpu/tandem/test/inference"
)

// addLong makes requests with a header a class of a fleet, which only a100 serves: 10 a second. The second rule of its route takes them.
const addLong = `[
	{"op": "add", "path": "/spec/classes", "value": [{"name": "long", "rule": "long-prompts"}]},
	{"op": "add", "path": "/spec/variants/0/classes", "value": [{"name": "long", "replica": {"rate": "10", "time": "100ms"}}]},
	{"op": "add", "path": "/spec/metrics/queries/classRate", "value": "rate/$(namespace)/$(class)"}
]`

// createWithClass makes a fleet with the class long.
func (s *fleetScene) createWithClass(t *testing.T) {
	t.Helper()
	variants := twoVariants()
	variants[1].cost = 1 // so that t4 serves for less what it can
	s.create(t, "bert", variants)
	s.patchRoute(t, "bert", types.JSONPatchType, `[{"op": "add", "path": "/spec/rules/1", "value": {
		"name": "long-prompts", "matches": [{"headers": [{"name": "X-Class", "value": "long"}]}],
		"backendRefs": [{"name": "bert-a100", "port": 80, "weight": 500}, {"name": "bert-t4", "port": 80, "weight": 500}]
	}}]`)
	s.patchFleet(t, addLong)
}

// ruleWeights returns the weights of a rule of the route: of a100 and of t4.
func (s *fleetScene) ruleWeights(t *testing.T, rule int) (weights [2]int64) {
	t.Helper()
	o, err := s.objects.Resource(httpRoutes).Namespace(s.namespace).Get(t.Context(), "bert", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	rules, _, _ := unstructured.NestedSlice(o.Object, "spec", "rules")
	refs, _, _ := unstructured.NestedSlice(rules[rule].(map[string]any), "backendRefs")
	for i := range weights {
		weights[i] = refs[i].(map[string]any)["weight"].(int64)
	}
	return weights
}

// fleetClasses: the requests of a class go where they are served, and the others where that is cheap. When the user takes the rule of the class away,
// the condition names it, and nothing is written until it is back. A pass of the controller writes the route first and the status after it, so the
// test waits for each of them.
func fleetClasses(t *testing.T, s *fleetScene) {
	s.arrives(43)
	s.measure("rate/"+s.namespace+"/long", 3)
	s.createWithClass(t)
	s.poll(t, "long requests go to a100, and others to t4 too", func() (bool, string) {
		replicas, _ := s.sizes(t, "bert")
		others, long := s.ruleWeights(t, 0), s.ruleWeights(t, 1)
		return long == [2]int64{1000, 0} && others[1] > 400 && replicas[1] >= 4,
			fmt.Sprintf("replicas %v, weights %v and %v, status %+v", replicas, others, long, s.fleet(t, "bert").Status)
	})
	s.patchRoute(t, "bert", types.JSONPatchType, `[{"op": "replace", "path": "/spec/rules/1/name", "value": "another"}, {"op": "replace", "path": "/spec/rules/1/backendRefs/0/weight", "value": 7}]`)
	s.awaitReason(t, "bert", v1alpha1.ConditionRouted, "RuleMissing")
	if long := s.ruleWeights(t, 1); long != [2]int64{7, 0} {
		t.Errorf("a rule that is of no class has the weights %v", long)
	}
	s.patchRoute(t, "bert", types.JSONPatchType, `[{"op": "replace", "path": "/spec/rules/1/name", "value": "long-prompts"}, {"op": "replace", "path": "/spec/rules/1/backendRefs/1/weight", "value": 7}]`)
	s.poll(t, "the class has its weights again", func() (bool, string) {
		long := s.ruleWeights(t, 1)
		return long == [2]int64{1000, 0}, fmt.Sprint(long)
	})
	s.poll(t, "the status has the class again", func() (bool, string) {
		classes := s.fleet(t, "bert").Status.Classes
		return len(classes) == 1 && classes[0].Rate == "3" && len(classes[0].Weights) == 1, fmt.Sprintf("%+v", classes)
	})
}

// classesRefused: the API server refuses classes that are not legal, and names the field.
func classesRefused(t *testing.T, s *fleetScene) {
	s.arrives(20)
	s.createWithClass(t)
	for patch, want := range map[string]string{
		`[{"op": "add", "path": "/spec/classes/-", "value": {"name": "long", "rule": "another"}}]`:                                                   "Duplicate value",
		`[{"op": "add", "path": "/spec/classes/-", "value": {"name": "l", "rule": "long-prompts"}}]`:                                                 "two classes name one rule",
		`[{"op": "add", "path": "/spec/classes/-", "value": {"name": "l", "rule": "l"}}]`:                                                            "a class is not among the classes of any variant",
		`[{"op": "replace", "path": "/spec/variants/0/classes/0/name", "value": "l"}]`:                                                               "a variant serves a class that spec.classes does not have",
		`[{"op": "remove", "path": "/spec/metrics/queries/classRate"}]`:                                                                              "classes need metrics.queries.classRate",
		`[{"op": "replace", "path": "/spec/objective", "value": "p99-optimal"}]`:                                                                     "with classes the objective must be proportional",
		`[{"op": "add", "path": "/spec/promise/perToken", "value": "50ms"}, {"op": "add", "path": "/spec/variants/0/replica/inFlight", "value": 4}]`: "each variant needs replica.inFlight",
		`[{"op": "replace", "path": "/spec/variants/0/classes/0/replica/rate", "value": "0"}]`:                                                       "rate must be a decimal above 0",
	} {
		_, err := s.objects.Resource(fleets).Namespace(s.namespace).Patch(t.Context(), "bert", types.JSONPatchType, []byte(patch), metav1.PatchOptions{})
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: the error is %v, and should say %q", patch, err, want)
		}
	}
}

// gatewayClassOfFleet: the fleet sends the requests of a class to the variant that serves them, although the user's rule divides them in halves, and
// divides the others over both variants.
func gatewayClassOfFleet(t *testing.T, s *gatewayScene) {
	pools := []pool{
		{name: "a100", hardware: inference.Hardware{GPU: "A100", Share: 1000}, replicas: 1, least: 1, most: 1, cost: 10, weight: 500},
		{name: "t4", hardware: inference.Hardware{GPU: "T4", Share: 1000}, replicas: 1, least: 1, most: 1, cost: 3, weight: 500},
	}
	s.serve(t, pools)
	s.patchRoute(t, "bert", types.JSONPatchType, `[
		{"op": "add", "path": "/spec/rules/0/name", "value": "batch"}, {"op": "replace", "path": "/spec/rules/0/backendRefs", "value": [
			{"name": "bert-a100", "port": 80, "weight": 500}, {"name": "bert-t4", "port": 80, "weight": 500}]}]`)
	s.control(t, "1s", pools)
	s.patchFleet(t, `[
		{"op": "add", "path": "/spec/classes", "value": [{"name": "batch", "rule": "batch"}]},
		{"op": "add", "path": "/spec/variants/0/classes", "value": [{"name": "batch", "replica": {"rate": "100", "time": "80ms"}}]},
		{"op": "add", "path": "/spec/metrics/queries", "value": {"classRate": "vector(10)"}}]`)
	end := s.begin(t, 100, 31)
	s.awaitFleet(t, "the class has its variant, and the others both", func(*v1alpha1.InferenceFleet, map[string]float64) bool {
		others := s.weights(t)
		return s.ruleWeights(t, 0) == [2]int64{1000, 0} && others["t4"] > .1 && others["t4"] < .4
	})
	s.poll(t, "the gateway sends the class to its variant alone", func() (bool, string) { // by its old weights, half of forty went to the other
		parts := inference.Parts(s.send(t, inference.Steady(20, 2, 33), "batch"))
		return len(parts) == 1 && parts["a100"] > .999, fmt.Sprint(parts)
	})
	of := s.send(t, inference.Steady(10, 25, 32), "batch")
	answers := end()
	parts := inference.Parts(of)
	t.Logf("of %d requests of the class a100 answered %.4f", len(of), parts["a100"])
	if len(of) < 200 || len(parts) != 1 || parts["a100"] < .999 {
		t.Errorf("the parts of %d requests of the class are %v, want all of them at a100", len(of), parts)
	}
	if inference.Parts(answers)["t4"] < .1 {
		t.Errorf("of the others the variants answered %v", inference.Parts(answers))
	}
	if failures := inference.Failures(of) + inference.Failures(answers); failures != "" {
		t.Error(failures)
	}
}
