package fleets

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"

	"github.com/tandem-gpu/tandem/pkg/api/v1alpha1"
)

// HTTPRoutes is the resource of the Gateway API whose weights the controller writes.
var HTTPRoutes = schema.GroupVersionResource{Group: "gateway.networking.k8s.io", Version: "v1", Resource: "httproutes"}

// Reasons of the condition Routed.
const (
	reasonRouted       = "Routed"
	reasonNoReplicas   = "NoReplicas"
	reasonRouteMissing = "RouteMissing"
	reasonRuleMissing  = "RuleMissing"
	reasonRouteOwned   = "RouteOwned"
	reasonRouteTaken   = "RouteTaken"
	reasonForeign      = "ForeignBackends"
	reasonNoBackend    = "BackendMissing"
	reasonWriteFailed  = "WriteFailed"
	reasonRouteChanged = "RouteChanged"
	reasonAmbiguous    = "RuleAmbiguous"
)

// totalWeight is the sum of the weights that the controller writes. More would divide requests finer than anybody can measure; the Gateway API
// allows a million.
const totalWeight = 1000

// backend is a reference of a rule to the Service or the InferencePool of a variant, as it was read.
type backend struct {
	// index is its place in the rule.
	index int
	ref   map[string]any
	// weight is 1 where the reference says none, as the Gateway API has it.
	weight int
}

// route is an HTTPRoute as it was read: the rule of a fleet, then those of its classes.
type route struct {
	client dynamic.ResourceInterface
	name   string
	rules  []rule
}

// rule is a rule of a route, with a backend for each variant. One for a class may lack the backends of variants that do not serve it: they have no
// ref.
type rule struct {
	index    int
	name     string
	backends []backend
}

// readRoute reads the rules of a fleet. A refusal says why the controller does not write it; an error is of the request.
func readRoute(ctx context.Context, client dynamic.Interface, f *v1alpha1.InferenceFleet) (*route, *refusal, error) {
	named := &f.Spec.Route.HTTPRoute
	r := &route{client: client.Resource(HTTPRoutes).Namespace(f.Namespace), name: named.Name, rules: []rule{{index: int(named.Rule)}}}
	o, err := r.client.Get(ctx, r.name, metav1.GetOptions{})
	switch {
	case apierrors.IsNotFound(err):
		return nil, &refusal{reasonRouteMissing, fmt.Sprintf("HTTPRoute %s does not exist, or the API server does not serve HTTPRoutes of %s: create it, or correct route", r.name, HTTPRoutes.GroupVersion())}, nil
	case apierrors.IsForbidden(err):
		return nil, notAllowed(HTTPRoutes.GroupResource().String(), err), nil
	case err != nil:
		return nil, nil, fmt.Errorf("read HTTPRoute %s: %w", r.name, err)
	}
	if owner := metav1.GetControllerOf(o); owner != nil {
		return nil, &refusal{reasonRouteOwned, fmt.Sprintf("HTTPRoute %s belongs to %s %s, whose controller may write the old weights back: name a route without a controller", r.name, owner.Kind, owner.Name)}, nil
	}
	rules, _, _ := unstructured.NestedSlice(o.Object, "spec", "rules")
	if refused := r.findRule(rules, named.RuleName); refused != nil {
		return nil, refused, nil
	}
	if refused := r.findClasses(rules, f); refused != nil {
		return nil, refused, nil
	}
	for k := range r.rules {
		rule, _ := rules[r.rules[k].index].(map[string]any)
		r.rules[k].name = word(rule, "name", "")
		refs, _, _ := unstructured.NestedSlice(rule, "backendRefs")
		if refused := r.match(k, refs, f); refused != nil {
			return nil, refused, nil
		}
	}
	if named.RuleName == "" {
		if refused := r.another(rules, f); refused != nil {
			return nil, refused, nil
		}
	}
	return r, nil, nil
}

// findRule finds the rule of a fleet: by its name, where the fleet has one, else by its place.
func (r *route) findRule(rules []any, name string) *refusal {
	if name == "" {
		if r.rules[0].index >= len(rules) {
			return &refusal{reasonRuleMissing, fmt.Sprintf("HTTPRoute %s has %d rules, and rule %d is not among them: rules are counted from 0", r.name, len(rules), r.rules[0].index)}
		}
		return nil
	}
	found := []int(nil)
	for i := range rules {
		if of, _ := rules[i].(map[string]any); word(of, "name", "") == name {
			found = append(found, i)
		}
	}
	if len(found) != 1 {
		return &refusal{reasonRuleMissing, fmt.Sprintf("HTTPRoute %s has %d rules with the name %s, which route names: one is needed", r.name, len(found), name)}
	}
	r.rules[0].index = found[0]
	return nil
}

// another refuses a route in which a rule that is not the fleet's has a backend for each variant too. A user who puts a rule before that of the fleet
// moves it to another place, and its weights would go into the wrong one.
func (r *route) another(rules []any, f *v1alpha1.InferenceFleet) *refusal {
	for i := range rules {
		if slices.ContainsFunc(r.rules, func(known rule) bool { return known.index == i }) {
			continue
		}
		of, _ := rules[i].(map[string]any)
		refs, _, _ := unstructured.NestedSlice(of, "backendRefs")
		it := &route{name: r.name, rules: []rule{{index: i}}}
		if it.match(0, refs, f) == nil {
			return &refusal{reasonAmbiguous, fmt.Sprintf("rules %d and %d of HTTPRoute %s both have all backends of the fleet, and its place does not tell which is its own: "+
				"give the rule a name, and the same one to route.httpRoute.ruleName", r.rules[0].index, i, r.name)}
		}
	}
	return nil
}

// match finds the backend of each variant in a rule. It refuses a rule that has others: their weights are not the fleet's to write, and without them the
// parts of the variants are not what was decided.
func (r *route) match(k int, refs []any, f *v1alpha1.InferenceFleet) *refusal {
	rule := &r.rules[k]
	rule.backends = make([]backend, len(f.Spec.Variants))
	found := make([]bool, len(f.Spec.Variants))
	for index := range refs {
		ref, _ := refs[index].(map[string]any)
		i := slices.IndexFunc(f.Spec.Variants, func(v v1alpha1.FleetVariant) bool { return refersTo(ref, f.Namespace, &v) })
		if i < 0 || found[i] {
			return &refusal{reasonForeign, fmt.Sprintf("rule %d of HTTPRoute %s has the backend %v %v, which is no Service or InferencePool of a variant, or stands there twice: a rule for the fleet alone is needed",
				rule.index, r.name, word(ref, "kind", "Service"), word(ref, "name", ""))}
		}
		found[i] = true
		rule.backends[i] = backend{index: index, ref: ref, weight: int(number(ref, "weight", 1))}
	}
	for i := range found {
		if v := &f.Spec.Variants[i]; !found[i] && (k == 0 || serves(v, f.Spec.Classes[k-1].Name)) {
			return &refusal{reasonNoBackend, fmt.Sprintf("rule %d of HTTPRoute %s has no backend for %s of variant %s: add it, with weight 0", rule.index, r.name, backendOf(v), v.Name)}
		}
	}
	return nil
}

// inferencePools is the group of InferencePools.
const inferencePools = "inference.networking.k8s.io"

// refersTo reports whether a reference is to the backend of a variant: to its InferencePool, or to its Service and the port of that.
func refersTo(ref map[string]any, namespace string, v *v1alpha1.FleetVariant) bool {
	group, kind, name := word(ref, "group", ""), word(ref, "kind", "Service"), word(ref, "name", "")
	switch {
	case word(ref, "namespace", namespace) != namespace:
		return false
	case v.InferencePool != "":
		return group == inferencePools && kind == "InferencePool" && name == v.InferencePool
	}
	return group == "" && kind == "Service" && name == v.Service.Name && number(ref, "port", 0) == int64(v.Service.Port)
}

// backendOf names the backend of a variant.
func backendOf(v *v1alpha1.FleetVariant) string {
	if v.InferencePool != "" {
		return "InferencePool " + v.InferencePool
	}
	return fmt.Sprintf("Service %s with port %d", v.Service.Name, v.Service.Port)
}

func word(o map[string]any, field, otherwise string) string {
	if s, ok := o[field].(string); ok {
		return s
	}
	return otherwise
}

func number(o map[string]any, field string, otherwise int64) int64 {
	if n, ok := o[field].(int64); ok {
		return n
	}
	return otherwise
}

// parts returns the part of the requests of a rule that each variant gets, all 0 where all weights are.
func (r *rule) parts() []float64 {
	sum := 0
	for i := range r.backends {
		sum += r.backends[i].weight
	}
	parts := make([]float64, len(r.backends))
	for i := range parts {
		if sum > 0 {
			parts[i] = float64(r.backends[i].weight) / float64(sum)
		}
	}
	return parts
}

// write writes the weights of the rules, if the backends are still those that were read: each with its name and its weight. A rule of a class must
// still have its name. One without weights stays as it is.
func (r *route) write(ctx context.Context, weights [][]int) error {
	var tests, changes []operation
	for k := range weights {
		rule := &r.rules[k]
		if k > 0 && weights[k] != nil {
			tests = append(tests, operation{"test", fmt.Sprintf("/spec/rules/%d/name", rule.index), rule.name})
		}
		for i, w := range weights[k] {
			b := &rule.backends[i]
			if b.ref == nil {
				continue
			}
			at := fmt.Sprintf("/spec/rules/%d/backendRefs/%d", rule.index, b.index)
			if _, said := b.ref["weight"]; said {
				tests = append(tests, operation{"test", at + "/name", b.ref["name"]}, operation{"test", at + "/weight", b.weight})
			} else { // no test says that a field is missing
				tests = append(tests, operation{"test", at, b.ref})
			}
			changes = append(changes, operation{"add", at + "/weight", w}) // add replaces what is there
		}
	}
	raw, err := json.Marshal(append(tests, changes...))
	if err != nil {
		return err
	}
	_, err = r.client.Patch(ctx, r.name, types.JSONPatchType, raw, metav1.PatchOptions{FieldManager: fieldManager})
	return err
}
