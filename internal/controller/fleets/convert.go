package fleets

import (
	"errors"
	"fmt"
	"strconv"

	"github.com/tandem-gpu/tandem/pkg/api/v1alpha1"
	"github.com/tandem-gpu/tandem/pkg/traffic"
)

// refusal says why the controller leaves a fleet, or one of its variants, as it is: in one word, and in a sentence that says what helps.
type refusal struct{ reason, message string }

// Reasons of refusals.
const (
	reasonInvalid = "Invalid"
)

// defaultQuantile and defaultVariation are those of the CustomResourceDefinition, for objects that were made before it had them.
const (
	defaultQuantile  = "0.99"
	defaultVariation = "1"
)

// declared returns a fleet as its user declared it, without what there is of it now. Replicas in the order of the variants say how these serve.
// The error names the field and its legal values.
func declared(o *v1alpha1.InferenceFleet, replicas []description) (*traffic.Fleet, error) {
	f := &traffic.Fleet{
		Name: o.Namespace + "/" + o.Name, Objective: traffic.Objective(o.Spec.Objective),
		Promise: promiseOf(&o.Spec.Promise), Variants: make([]traffic.Variant, len(o.Spec.Variants)),
	}
	if f.Objective == "" {
		f.Objective = traffic.Proportional
	}
	var err error
	if f.Promise.Quantile, err = decimal("promise.quantile", o.Spec.Promise.Quantile, defaultQuantile); err != nil {
		return nil, err
	}
	for i := range f.Variants {
		if f.Variants[i], err = variantOf(&o.Spec.Variants[i], &replicas[i], &o.Spec.Promise, f.Promise.Quantile); err != nil {
			return nil, fmt.Errorf("variant %q: %w", o.Spec.Variants[i].Name, err)
		}
	}
	if f.Classes, err = classesOf(o, replicas, f.Promise.Quantile); err != nil {
		return nil, err
	}
	if err := f.Validate(); err != nil {
		return nil, err
	}
	return f, unlike(o.Spec.Variants)
}

// promiseOf returns a promise without its quantile.
func promiseOf(p *v1alpha1.FleetPromise) traffic.Promise {
	out := traffic.Promise{Within: p.Latency.Duration}
	if p.PerToken != nil {
		out.PerToken = p.PerToken.Duration
	}
	return out
}

func variantOf(v *v1alpha1.FleetVariant, replica *description, promise *v1alpha1.FleetPromise, quantile float64) (out traffic.Variant, err error) {
	out = traffic.Variant{Name: v.Name, Cost: v.Cost, Least: int(v.MinReplicas), Most: int(v.MaxReplicas), Load: v.LoadTime.Duration}
	if out.Cost == 0 {
		out.Cost = max(1, int64(v.Slots))
	}
	out.Replica, err = replicaOf(replica.FleetReplica, promise, quantile)
	return out, replica.inMessage(err)
}

func replicaOf(declared *v1alpha1.FleetReplica, promise *v1alpha1.FleetPromise, quantile float64) (out traffic.Replica, err error) {
	out.Time = declared.Time.Duration
	if declared.Gate != nil {
		out.Gate = declared.Gate.Duration
	}
	if out.Rate, err = decimal("replica.rate", declared.Rate, ""); err != nil {
		return out, err
	}
	if out.Variation, err = decimal("replica.variation", declared.Variation, defaultVariation); err != nil {
		return out, err
	}
	return out, generates(&out, declared, promise, quantile)
}

// generates sets how a replica keeps what is promised of tokens. The error names what is missing for that.
func generates(r *traffic.Replica, declared *v1alpha1.FleetReplica, promise *v1alpha1.FleetPromise, quantile float64) error {
	if promise.Of == v1alpha1.PromiseOfFirstToken {
		if declared.FirstToken == nil {
			return errors.New("replica.firstToken is missing: the promise is of FirstToken")
		}
		r.FirstToken = declared.FirstToken.Duration
	}
	if promise.PerToken != nil {
		if declared.InFlight < 1 || declared.InFlight > maxInFlight {
			return fmt.Errorf("replica.inFlight %d: the promise has perToken, and legal are numbers from 1 to %d", declared.InFlight, maxInFlight)
		}
		r.Ceiling = traffic.InFlight(int(declared.InFlight), declared.Time.Duration, quantile)
	}
	return nil
}

// maxInFlight is the bound of the CustomResourceDefinition.
const maxInFlight = 4096

// decimal reads a decimal, or the default in place of an empty text.
func decimal(field, text, otherwise string) (float64, error) {
	if text == "" {
		text = otherwise
	}
	x, err := strconv.ParseFloat(text, 64)
	if err != nil {
		return 0, fmt.Errorf("%s %q: legal are decimals such as 12.5", field, text)
	}
	return x, nil
}

// unlike says that two variants name one Service, one InferencePool or one scale target.
func unlike(variants []v1alpha1.FleetVariant) error {
	services, pools, targets := map[string]string{}, map[string]string{}, map[v1alpha1.FleetScaleTarget]string{}
	for i := range variants {
		v := &variants[i]
		if other, taken := services[v.Service.Name]; taken {
			return fmt.Errorf("variants %q and %q: both name the Service %s; each needs its own", other, v.Name, v.Service.Name)
		}
		if other, taken := pools[v.InferencePool]; taken && v.InferencePool != "" {
			return fmt.Errorf("variants %q and %q: both name the InferencePool %s; each needs its own", other, v.Name, v.InferencePool)
		}
		if other, taken := targets[v.ScaleTargetRef]; taken {
			return fmt.Errorf("variants %q and %q: both name %s %s as scale target; each needs its own", other, v.Name, v.ScaleTargetRef.Kind, v.ScaleTargetRef.Name)
		}
		services[v.Service.Name], pools[v.InferencePool], targets[v.ScaleTargetRef] = v.Name, v.Name, v.Name
	}
	return nil
}
