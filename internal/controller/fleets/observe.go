package fleets

import (
	"cmp"
	"context"
	"fmt"
	"math"
	"time"

	v1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/utils/ptr"

	"github.com/tandem-gpu/tandem/pkg/api/v1alpha1"
	"github.com/tandem-gpu/tandem/pkg/traffic"
)

const (
	// coldPart is what a replica counts for when it has just become ready, and warmAfter the time until it counts in full. Caches fill and
	// kernels are compiled with the first requests. A larger part overloads new replicas; a smaller one lets the old ones wait for help.
	coldPart  = .2
	warmAfter = 30 * time.Second
	// failsFor is how long a variant that answered errors gets no requests. Afterwards it is tried again. A longer time leaves a variant that
	// works again idle; a shorter one has more requests answered with errors.
	failsFor = 5 * time.Minute
	// reportedWindow is about how long the rates that pods report are of. A longer time takes a rise of them for a steeper one.
	reportedWindow = 15 * time.Second
)

// visit is one fleet in one pass.
type visit struct {
	*pass
	object *v1alpha1.InferenceFleet
	memory *memory
	// fleet is what the user declared, with what there is of it now; nil for a fleet that is not legal.
	fleet *traffic.Fleet
	// targets in the order of the variants, nil for those that refused says something of.
	targets []*target
	refused []*refusal
	// route is nil where routeRefused says why.
	route        *route
	routeRefused *refusal
	// weightsRefused says that somebody else writes the weights of the route, nil where nobody does.
	weightsRefused *refusal
	// heldUp says which variants have their size by those weights, nil without another writer.
	heldUp   []bool
	measured measurement
	// endpoints are the ready ones that are pods, by the name in memory.readySince.
	endpoints map[string]placed
	plan      *traffic.Plan
	// parts are those of the variants in the rule of the fleet and in those of its classes, as they were read.
	parts [][]float64
	// weights are the wanted ones of the same rules, nil where no replica is ready that serves them.
	weights [][]int
	// checked counts the requirements of selectors that were compared with pods.
	checked int
}

// observe reads what there is of a fleet. An error is of a request: then nothing is decided in this pass.
func (v *visit) observe(ctx context.Context) error {
	var err error
	if v.routeRefused = v.claims.route(v.object); v.routeRefused == nil {
		if v.route, v.routeRefused, err = readRoute(ctx, v.options.Dynamic, v.object); err != nil {
			return err
		}
	}
	if v.route != nil {
		if v.routeRefused = v.claims.rules(v.object, v.route); v.routeRefused != nil {
			v.route = nil
		}
	}
	v.readParts()
	v.weightsRefused = v.contestedWeights()
	v.targets, v.refused = make([]*target, len(v.fleet.Variants)), make([]*refusal, len(v.fleet.Variants))
	present := map[string]bool{}
	v.endpoints = map[string]placed{}
	for i := range v.fleet.Variants {
		if err := v.observeVariant(ctx, i, present); err != nil {
			return fmt.Errorf("variant %s: %w", v.fleet.Variants[i].Name, err)
		}
	}
	v.memory.keep(present)
	v.sumRates()
	v.readClasses()
	return nil
}

// sumRates makes the rate of a fleet that has no query for it. A variant without a sample has no requests where the route gives it none, or
// where its replicas have not been ready for long enough to be scraped; else the rate is unknown. So it is where no variant has a sample:
// requests that no replica is there to count are not none.
func (v *visit) sumRates() {
	m := &v.measured
	if m.summed && m.problem == nil {
		sum, known, unknown := 0.0, false, (*refusal)(nil)
		for i := range m.variants {
			of, f := &m.variants[i], &v.fleet.Variants[i]
			if of.problem == nil {
				sum, known = sum+of.rate, true
				continue
			}
			counts := f.Part > 0 && v.memory.settled(f.Name, v.now.Add(-2*window(v.object)))
			if unknown == nil || counts {
				unknown = &refusal{of.problem.reason, fmt.Sprintf("variant %s: %s", f.Name, of.problem.message)}
			}
			if counts || of.problem.reason != reasonNoSample {
				known = false
				break
			}
		}
		switch m.rate = sum; {
		case !known:
			m.rate, m.problem = math.NaN(), unknown
		case !(sum <= traffic.MaxRate):
			m.rate, m.problem = math.NaN(), &refusal{reasonNotANumber, fmt.Sprintf("the rates of the variants are %g together: a number from 0 to %g is needed", sum, float64(traffic.MaxRate))}
		}
	}
	if !(m.rate >= m.least) { // a quantile of so few requests is just the slowest one
		m.latency, m.perToken = 0, 0
	}
}

// observeVariant reads the number of a variant and its ready replicas.
func (v *visit) observeVariant(ctx context.Context, i int, present map[string]bool) error {
	declared, out := &v.object.Spec.Variants[i], &v.fleet.Variants[i]
	if err := v.countReady(declared, out, present); err != nil {
		return err
	}
	out.Wanted = out.Ready
	if v.refused[i] = v.claims.target(v.object, i); v.refused[i] == nil {
		t, refused, err := v.scales.read(ctx, v.object.Namespace, &declared.ScaleTargetRef)
		if err != nil {
			return err
		}
		if v.refused[i] = refused; t != nil {
			v.targets[i], out.Wanted = t, t.replicas
			if v.refused[i], err = v.others(ctx, out, t); err != nil {
				return err
			}
		}
	}
	if v.refused[i] == nil {
		v.refused[i] = autoscaler(v.autoscalers, v.object.Namespace, &declared.ScaleTargetRef)
	}
	if _, err := v.services.Services(v.object.Namespace).Get(declared.Service.Name); apierrors.IsNotFound(err) && v.refused[i] == nil {
		v.refused[i] = &refusal{reasonServiceMissing, fmt.Sprintf("Service %s does not exist: create it, or correct service", declared.Service.Name)}
	}
	switch {
	case v.refused[i] != nil:
		out.Fixed = v.refused[i].message
	case v.routeRefused != nil: // without the route no replica can leave it first
		out.Fixed = v.routeRefused.message
	}
	if v.isReported() {
		v.sumReports(i)
	}
	v.readMeasured(i)
	return nil
}

// others says that somebody else has a scale target or writes its number, nil where nobody does, and takes in what a quota lets the variant have.
func (v *visit) others(ctx context.Context, out *traffic.Variant, t *target) (*refusal, error) {
	if err := v.bound(ctx, out, t); err != nil {
		return nil, err
	}
	owned, err := v.owned(ctx, out.Name, t)
	return cmp.Or(owned, v.contested(out.Name, t)), err
}

// owned says that another object has made a scale target, nil where none has. A Scale does not tell: the target is read once it has changed.
func (v *visit) owned(ctx context.Context, variant string, t *target) (*refusal, error) {
	seen := v.memory.owners[variant]
	if t.version == "" || seen.version != t.version {
		owner, err := t.controller(ctx)
		if err != nil {
			return nil, err
		}
		seen = ownerSeen{t.version, owner}
		v.memory.owners[variant] = seen
	}
	if seen.owner == "" {
		return nil, nil
	}
	return &refusal{reasonTargetOwned, fmt.Sprintf("%s %s belongs to %s, whose controller may write the old replicas back: name an object without a controller", t.ref.Kind, t.ref.Name, seen.owner)}, nil
}

// contested says that somebody else writes the number of a scale target, nil where nobody does. An event tells the begin.
func (v *visit) contested(variant string, t *target) *refusal {
	n := v.memory.written(variant)
	if !n.Read(t.replicas, v.object.Generation, v.now) {
		return nil
	}
	refused := &refusal{reasonContested, n.Undone().Says(t.ref.Kind+" "+t.ref.Name, "replicas", "spec.replicas") + ", or once the fleet changes"}
	if n.Began(v.now) {
		v.metrics.contests.Inc()
		v.options.Recorder.Eventf(v.reference(), nil, v1.EventTypeWarning, reasonContested, "Resize "+variant, "leaves variant %s alone: %s", variant, refused.message)
	}
	return refused
}

// contestedWeights says that somebody else writes the weights of the route, nil where nobody does. An event tells the begin.
func (v *visit) contestedWeights() *refusal {
	if v.route == nil {
		return nil
	}
	m, number := &v.memory.weights, 1
	if m.generation == v.object.Generation && v.differ(m.to) {
		number = 0
	}
	if !m.Read(number, v.object.Generation, v.now) {
		return nil
	}
	refused := &refusal{reasonContested, m.Undone().SaysOf("HTTPRoute "+v.route.name+" got other weights", "spec.rules") + ", or once the fleet changes"}
	if m.Began(v.now) {
		v.metrics.contests.Inc()
		v.options.Recorder.Eventf(v.reference(), nil, v1.EventTypeWarning, reasonContested, "Route", "leaves the weights alone: %s", refused.message)
	}
	return refused
}

// countReady counts the ready endpoints of a variant's Service, those that have just become ready in part.
func (v *visit) countReady(declared *v1alpha1.FleetVariant, out *traffic.Variant, present map[string]bool) error {
	slices, err := v.slices.EndpointSlices(v.object.Namespace).List(labels.SelectorFromSet(labels.Set{discoveryv1.LabelServiceName: declared.Service.Name}))
	if err != nil {
		return err
	}
	for _, s := range slices {
		for k := range s.Endpoints {
			e := &s.Endpoints[k]
			key := declared.Name + "/" + endpointName(e)
			if ready := e.Conditions.Ready; ready != nil && !*ready || present[key] { // a Service of two IP families has two slices
				continue
			}
			present[key] = true
			if e.TargetRef != nil {
				v.endpoints[key] = placed{ptr.Deref(e.NodeName, ""), e.TargetRef.UID}
			}
			out.Ready++
			out.Warm += v.memory.warmth(key, v.now)
		}
	}
	return nil
}

// endpointName returns what an endpoint is called in all slices of its Service.
func endpointName(e *discoveryv1.Endpoint) string {
	if e.TargetRef != nil {
		return string(e.TargetRef.UID) + e.TargetRef.Name
	}
	if len(e.Addresses) > 0 {
		return e.Addresses[0]
	}
	return ""
}

// readMeasured takes in what Prometheus said of a variant.
func (v *visit) readMeasured(i int) {
	out, m := &v.fleet.Variants[i], &v.measured.variants[i]
	if m.fails {
		v.memory.failsUntil[out.Name] = v.now.Add(failsFor)
	}
	out.Fails = v.now.Before(v.memory.failsUntil[out.Name])
	out.Measured = traffic.Measured{Arrivals: math.NaN(), Quantile: v.fleet.Promise.Quantile}
	if out.Ready > 0 {
		out.Measured.Arrivals, out.Measured.Latency = m.rate/float64(out.Ready), m.latency
	}
}

// seen returns what arrived at the fleet.
func (v *visit) seen() traffic.Seen {
	span := window(v.object)
	if v.isReported() {
		span = reportedWindow
	}
	return traffic.Seen{At: v.now, Window: span, Rate: v.measured.rate, Latency: v.measured.latency, PerToken: v.measured.perToken}
}
