package fleets

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"

	v1 "k8s.io/api/core/v1"

	"github.com/tandem-gpu/tandem/pkg/api/v1alpha1"
)

// slack is by how many thousandths a weight may differ from the wanted one. Every change of a route makes the gateway load it anew: with 0
// the noise of measurements would do so in each pass. A larger slack leaves variants with more than their part.
const slack = 10

// outcome is what came of a plan in this pass.
type outcome struct {
	// routed and scaled say why something is not as it should be, nil where all is.
	routed, scaled *refusal
	// resized says that a scale target was written.
	resized bool
}

// apply writes what differs from the plan: larger sizes first, then the weights, then smaller sizes as far as the route lets replicas go.
// For a fleet that is paused it writes nothing.
// The error is of requests; a write that others were faster with is none, since the next pass reads anew.
func (v *visit) apply(ctx context.Context) (outcome, error) {
	var o outcome
	if v.fleet.Paused {
		o.routed = v.routeRefused
		return o, nil
	}
	errs := []error{v.resize(ctx, &o, func(i int) bool { return v.plan.Variants[i].Replicas > v.targets[i].replicas })}
	errs = append(errs, v.writeWeights(ctx, &o))
	errs = append(errs, v.resize(ctx, &o, func(i int) bool {
		return v.plan.Variants[i].Replicas < v.targets[i].replicas && !v.capped(i) && v.mayLeave(i, &o)
	}))
	return o, errors.Join(errs...)
}

// resize writes the sizes of the variants that due names.
func (v *visit) resize(ctx context.Context, o *outcome, due func(i int) bool) error {
	var errs []error
	for i, t := range v.targets {
		if t == nil || v.fleet.Variants[i].Fixed != "" || !due(i) {
			continue
		}
		before, to := t.replicas, v.plan.Variants[i].Replicas
		err := t.write(ctx, to)
		v.metrics.patched("scale", err)
		if err != nil {
			o.scaled = &refusal{reasonScaleRefused, fmt.Sprintf("the API server did not change %s %s from %d to %d replicas: %.300s; the controller tries again", t.ref.Kind, t.ref.Name, before, to, err)}
			if !isStale(err) {
				errs = append(errs, fmt.Errorf("scale variant %s: %w", v.fleet.Variants[i].Name, err))
			}
			continue
		}
		t.replicas, o.resized = to, true
		v.memory.written(v.fleet.Variants[i].Name).Wrote(before, to, v.now)
		reason := string(v.reasonFor(i, before, to))
		v.options.Recorder.Eventf(v.reference(), nil, v1.EventTypeNormal, reason, resizing(v.fleet.Variants[i].Name, before, to), "%s", v.changed(i, before, to))
	}
	return errors.Join(errs...)
}

// resizing names a change for its event. Events of one object with the same names become a series, which has the text of the first one.
func resizing(variant string, from, to int) string {
	return fmt.Sprintf("Resize %s %d to %d", variant, from, to)
}

// reference returns the fleet as the object of events.
func (v *visit) reference() *v1.ObjectReference {
	return &v1.ObjectReference{
		APIVersion: v1alpha1.GroupVersion.String(), Kind: "InferenceFleet", Namespace: v.object.Namespace, Name: v.object.Name,
		UID: v.object.UID, ResourceVersion: v.object.ResourceVersion,
	}
}

// writeWeights writes the weights where they differ. Without a ready replica they stay: some weights are needed, and none is better.
func (v *visit) writeWeights(ctx context.Context, o *outcome) error {
	switch {
	case v.route == nil:
		o.routed = v.routeRefused
		return nil
	case v.weightsRefused != nil:
		o.routed = v.weightsRefused
		return nil
	case !v.hasWeights():
		o.routed = &refusal{reasonNoReplicas, "no replica is ready that answers without errors: the weights stay as they are"}
		return nil
	}
	o.routed = v.unserved()
	if !v.differ(v.weights) {
		return nil
	}
	err := v.route.write(ctx, v.weights)
	v.metrics.patched("route", err)
	switch {
	case err == nil:
		v.memory.weights.wrote(v.weights, v.object.Generation, v.now)
		return nil
	case isStale(err):
		o.routed = &refusal{reasonRouteChanged, fmt.Sprintf("the API server did not take the weights, as it does when HTTPRoute %s has changed since it was read: %.300s; the controller tries again", v.route.name, err)}
		return nil
	}
	o.routed = &refusal{reasonWriteFailed, fmt.Sprintf("the weights could not be written into HTTPRoute %s: %.300s; the controller tries again", v.route.name, err)}
	return fmt.Errorf("write the weights: %w", err)
}

// differ reports whether the route, as it was read, has other weights than these.
func (v *visit) differ(weights [][]int) bool {
	for k := range weights {
		for i, want := range weights[k] {
			have := v.parts[k][i] * totalWeight
			if have > float64(want)+slack || have < float64(want)-slack || (have == 0) != (want == 0) {
				return true
			}
		}
	}
	return false
}

// hasWeights reports whether some replica is ready.
func (v *visit) hasWeights() bool {
	return slices.ContainsFunc(v.weights, func(w []int) bool { return w != nil })
}

// mayLeave reports whether replicas of a variant may leave: the route, as it was read at the begin of the pass, gives the variant no more
// than those that stay should get, and nothing where none stays. The weights that this pass writes into the route do not count, since
// another writer or a crash may undo them. Beside another writer keepServing has kept what its weights need.
func (v *visit) mayLeave(i int, o *outcome) bool {
	if v.weightsRefused != nil {
		return true
	}
	leaves := o.routed == nil || o.routed.reason == reasonNoReplicas
	for k := range v.parts {
		leaves = leaves && v.mayLeaveRule(i, k)
	}
	if !leaves && o.scaled == nil {
		o.scaled = &refusal{reasonWaitsForRoute, fmt.Sprintf("variant %s shrinks to %d replicas when the route gives it less", v.fleet.Variants[i].Name, v.plan.Variants[i].Replicas)}
	}
	return leaves
}

// keepServing has the variants serve what the weights of another writer give them: the plan is for other weights. They grow for the demand of
// now, and keep what the highest one within the patience took. No variant gets more replicas than it may have.
//
// Example: a variant gets half of 22 requests a second, and a replica serves 5.15. It needs 3 replicas, however few the plan has.
func (v *visit) keepServing() {
	highest := v.plan.Demand
	for _, d := range v.memory.decided.Demands {
		highest = max(highest, d.Rate)
	}
	v.heldUp = make([]bool, len(v.plan.Variants))
	for i := range v.plan.Variants {
		p, of, needs, keeps := &v.plan.Variants[i], &v.fleet.Variants[i], 0, 0
		for k := range v.parts {
			switch {
			case v.parts[k][i] == 0 || v.allLeave(k):
			case p.Capacity > 0:
				needs = max(1, int(math.Ceil(min(of.Part*v.plan.Demand/p.Capacity, float64(of.Most)))))
				keeps = max(1, int(math.Ceil(min(of.Part*highest/p.Capacity, float64(of.Wanted)))))
			default: // nobody knows how many serve them
				keeps = of.Wanted
			}
		}
		if n := min(max(needs, keeps), of.Most); n > p.Replicas {
			p.Replicas, v.heldUp[i] = n, true
		}
	}
}

// mayLeaveRule reports whether replicas of a variant may leave as far as one rule goes.
func (v *visit) mayLeaveRule(i, rule int) bool {
	have := v.parts[rule][i] * totalWeight
	switch {
	case v.allLeave(rule):
		return true
	case v.weights[rule] == nil:
		return rule > 0 && have == 0
	case v.plan.Variants[i].Replicas == 0:
		return have == 0
	}
	return have <= float64(v.weights[rule][i])+slack
}

// allLeave reports whether the plan leaves no replica that serves the requests of a rule: then no other variant could take them.
func (v *visit) allLeave(rule int) bool {
	for i := range v.plan.Variants {
		if v.plan.Variants[i].Replicas > 0 && (rule == 0 || v.fleet.Classes[rule].Replicas[i].Rate > 0) {
			return false
		}
	}
	return true
}
