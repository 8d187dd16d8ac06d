package fleets

import (
	"context"
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/tandem-gpu/tandem/pkg/api/v1alpha1"
	"github.com/tandem-gpu/tandem/pkg/traffic"
)

// In a fleet with classes, the requests that are of none of them are a class of their own, the first one, without a name: the rule of the fleet
// takes them, and the variants serve them as their replica says.

// classesOf returns the classes of a fleet as its user declared them, and none where the user declared none. The replicas are in the order of the
// variants: they say how a variant serves requests that belong to no class. The error names the field and its legal values.
func classesOf(o *v1alpha1.InferenceFleet, replicas []description, quantile float64) ([]traffic.Class, error) {
	if len(o.Spec.Classes) == 0 {
		return nil, nil
	}
	n, rules := len(o.Spec.Variants), map[string]string{}
	classes := []traffic.Class{{Replicas: make([]traffic.Replica, n), Parts: make([]float64, n)}}
	for k := range o.Spec.Classes {
		c := &o.Spec.Classes[k]
		if other, taken := rules[c.Rule]; taken {
			return nil, fmt.Errorf("classes %q and %q: both name the rule %s; each needs its own", other, c.Name, c.Rule)
		}
		rules[c.Rule] = c.Name
		classes = append(classes, traffic.Class{Name: c.Name, Replicas: make([]traffic.Replica, n), Parts: make([]float64, n)})
	}
	for i := range o.Spec.Variants {
		v := &o.Spec.Variants[i]
		var err error
		if classes[0].Replicas[i], err = replicaOf(replicas[i].FleetReplica, &o.Spec.Promise, quantile); err != nil {
			return nil, fmt.Errorf("variant %q: %w", v.Name, replicas[i].inMessage(err))
		}
		for j := range v.Classes {
			of := &v.Classes[j]
			k := slices.IndexFunc(classes, func(c traffic.Class) bool { return c.Name == of.Name })
			if k < 1 {
				return nil, fmt.Errorf("variant %q: it serves class %q, which spec.classes does not have", v.Name, of.Name)
			}
			if classes[k].Replicas[i], err = replicaOf(&of.Replica, &o.Spec.Promise, quantile); err != nil {
				return nil, fmt.Errorf("variant %q, class %q: %w", v.Name, of.Name, err)
			}
		}
	}
	return classes, nil
}

// serves reports whether a variant serves a class.
func serves(v *v1alpha1.FleetVariant, class string) bool {
	return slices.ContainsFunc(v.Classes, func(c v1alpha1.FleetVariantClass) bool { return c.Name == class })
}

// findClasses finds the rules of the classes of a fleet by their names.
func (r *route) findClasses(rules []any, f *v1alpha1.InferenceFleet) *refusal {
	for k := range f.Spec.Classes {
		c, found := &f.Spec.Classes[k], []int(nil)
		for i := range rules {
			if of, _ := rules[i].(map[string]any); word(of, "name", "") == c.Rule {
				found = append(found, i)
			}
		}
		switch {
		case len(found) != 1:
			return &refusal{reasonRuleMissing, fmt.Sprintf("HTTPRoute %s has %d rules with the name %s, which class %s names: one is needed, with matches for the class", r.name, len(found), c.Rule, c.Name)}
		case found[0] == r.rules[0].index:
			return &refusal{reasonRuleMissing, fmt.Sprintf("rule %s of HTTPRoute %s is that of class %s, and rule %d, for all other requests, is the same one: name another one in route", c.Rule, r.name, c.Name, found[0])}
		}
		r.rules = append(r.rules, rule{index: found[0]})
	}
	return nil
}

// readParts takes in the parts that the rules give the variants.
func (v *visit) readParts() {
	v.parts = make([][]float64, 1+len(v.object.Spec.Classes))
	for k := range v.parts {
		if v.parts[k] = make([]float64, len(v.fleet.Variants)); v.route != nil {
			v.parts[k] = v.route.rules[k].parts()
		}
	}
	for i := range v.fleet.Variants {
		for k := range v.parts {
			v.fleet.Variants[i].Part = max(v.fleet.Variants[i].Part, v.parts[k][i])
		}
	}
}

// class measures one class. One that is not counted makes the mix unknown, but for one of which no request was ever counted: Prometheus has no sample
// of it then.
func (m *measurement) class(ctx context.Context, q *querier, k int, name, query string) {
	rate, problem := q.ask(ctx, "classRate", strings.ReplaceAll(query, "$(class)", name))
	switch {
	case problem == nil:
		m.classes[k] = rate
	case problem.reason == reasonNoSample:
		m.silent = append(m.silent, name)
	default:
		m.rate, m.problem = math.NaN(), &refusal{problem.reason, fmt.Sprintf("class %s: %s", name, problem.message)}
	}
}

// silence names the classes of which no request was counted.
func (v *visit) silence() string {
	if len(v.measured.silent) == 0 {
		return ""
	}
	return fmt.Sprintf("; it has counted none of class %s: see whether classRate finds its requests", strings.Join(v.measured.silent, ", "))
}

// readClasses takes in what arrives of each class, and which part of all requests each variant gets of that.
func (v *visit) readClasses() {
	if len(v.fleet.Classes) == 0 {
		return
	}
	rest := v.measured.rate
	for k := range v.fleet.Classes {
		c := &v.fleet.Classes[k]
		if c.Parts = v.parts[k]; k > 0 {
			c.Rate = v.measured.classes[k-1]
			rest -= c.Rate
		}
	}
	v.fleet.Classes[0].Rate = max(0, rest) // counts of two queries may differ by a little
	if !(v.measured.rate > 0) {
		return
	}
	for i := range v.fleet.Variants {
		v.fleet.Variants[i].Part = 0
		for k := range v.fleet.Classes {
			v.fleet.Variants[i].Part += v.fleet.Classes[k].Rate * v.parts[k][i] / max(v.measured.rate, v.measured.rate-rest)
		}
	}
}

// unserved says which class has no ready replica that serves it, nil for none.
func (v *visit) unserved() *refusal {
	for k, weights := range v.weights {
		if weights != nil {
			continue
		}
		of := "requests of no class"
		if k > 0 {
			of = "class " + v.fleet.Classes[k].Name
		}
		return &refusal{reasonNoReplicas, fmt.Sprintf("no replica is ready that serves %s without errors: the weights of that rule stay as they are", of)}
	}
	return nil
}

// classStatus returns what arrives of the classes, and who gets it.
func (v *visit) classStatus(o outcome) (list []v1alpha1.FleetClassStatus) {
	for k := range v.object.Spec.Classes {
		of, c := v1alpha1.FleetClassStatus{Name: v.object.Spec.Classes[k].Name}, &v.fleet.Classes[k+1]
		if !math.IsNaN(v.measured.rate) {
			of.Rate = short(c.Rate)
		}
		for i, p := range c.Parts {
			weight := int(math.Round(p * totalWeight))
			if (o.routed == nil || o.routed.reason == reasonNoReplicas) && !v.fleet.Paused && v.weights[k+1] != nil && v.differ(v.weights) {
				weight = v.weights[k+1][i]
			}
			if weight > 0 {
				of.Weights = append(of.Weights, v1alpha1.FleetClassWeight{Variant: v.fleet.Variants[i].Name, Weight: int32(weight)})
			}
		}
		list = append(list, of)
	}
	return list
}
