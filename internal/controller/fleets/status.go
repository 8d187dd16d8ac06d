package fleets

import (
	"cmp"
	"context"
	"fmt"
	"math"
	"time"

	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tandem-gpu/tandem/pkg/api/v1alpha1"
	"github.com/tandem-gpu/tandem/pkg/contest"
	"github.com/tandem-gpu/tandem/pkg/traffic"
)

// Reasons of the conditions Ready and PromiseKept.
const (
	reasonControlled = "Controlled"
	reasonKept       = "Kept"
	reasonBroken     = "Broken"
	reasonUnmeasured = "NotMeasured"
)

// numbersEvery bounds how often the status is written for numbers and messages alone.
const numbersEvery = time.Minute

// maxMessage bounds the messages of conditions, in bytes: the schema of the API allows no more.
const maxMessage = 32768

// condition is what a condition says. A nil problem is True.
type condition struct {
	kind    string
	status  metav1.ConditionStatus
	reason  string
	message string
}

// said makes a condition of a refusal, or of a reason and a message where there is none.
func said(kind string, problem *refusal, reason, message string) condition {
	if problem != nil {
		return condition{kind, metav1.ConditionFalse, problem.reason, problem.message}
	}
	return condition{kind, metav1.ConditionTrue, reason, message}
}

// undeclared returns the status of a fleet of which not all is declared as it must be: the last status stands, and the conditions say why
// nothing changes.
func (v *visit) undeclared(problem *refusal) *v1alpha1.InferenceFleetStatus {
	s := v.object.Status.DeepCopy()
	s.ObservedGeneration, s.Reason, s.Message = v.object.Generation, problem.reason, problem.message
	v.setConditions(s, said(v1alpha1.ConditionFleetReady, problem, "", ""))
	for i := range s.Variants {
		s.Variants[i].Later = nil // it does not grow
	}
	for _, kind := range []string{v1alpha1.ConditionMeasured, v1alpha1.ConditionPromiseKept, v1alpha1.ConditionRouted, v1alpha1.ConditionScaled, v1alpha1.ConditionPrioritized} {
		v.setConditions(s, condition{kind, metav1.ConditionUnknown, problem.reason, "the fleet cannot be sized as it is declared: see the condition Ready"})
	}
	return s
}

// status returns what to write about a fleet.
func (v *visit) status(o outcome, prioritized condition) *v1alpha1.InferenceFleetStatus {
	s := v.object.Status.DeepCopy()
	s.ObservedGeneration = v.object.Generation
	s.Reason, s.Message = string(v.plan.Reason), v.because()
	s.Demand, s.Capacity = "", ""
	if !math.IsNaN(v.measured.rate) {
		s.Demand, s.Capacity = short(v.plan.Demand), short(v.plan.Capacity)
	}
	if o.resized || s.Since == nil {
		s.Since = &metav1.Time{Time: v.now}
	}
	s.Variants = make([]v1alpha1.FleetVariantStatus, len(v.plan.Variants))
	for i := range s.Variants {
		s.Variants[i] = v.variantStatus(i, o)
	}
	s.Classes, s.WeightsLeftAloneUntil = v.classStatus(o), v.aloneUntil(&v.memory.weights.Number)
	ready := v.ready()
	reason, message := v.controlled()
	if ready != nil {
		s.Reason, s.Message = ready.reason, ready.message
	}
	v.setConditions(s,
		said(v1alpha1.ConditionFleetReady, ready, reason, message),
		said(v1alpha1.ConditionMeasured, v.measured.problem, reasonMeasured, "Prometheus says how many requests arrive"+v.silence()),
		v.promiseKept(),
		v.routed(o),
		said(v1alpha1.ConditionScaled, cmp.Or(v.firstRefused(), o.scaled, v.quotaExceeded(), v.loading()), reasonScaled, "all variants have their wanted replicas"),
		prioritized)
	return s
}

func (v *visit) variantStatus(i int, o outcome) v1alpha1.FleetVariantStatus {
	p, f := &v.plan.Variants[i], &v.fleet.Variants[i]
	weight := int(math.Round(f.Part * totalWeight))
	switch written := o.routed == nil && v.differ(v.weights); {
	case written && len(v.fleet.Classes) > 0:
		weight = int(math.Round(p.Part * totalWeight))
	case written && v.weights[0] != nil:
		weight = v.weights[0][i]
	}
	return v1alpha1.FleetVariantStatus{
		Name: f.Name, Replicas: int32(p.Replicas), Ready: int32(f.Ready), Selector: v.selector(i), LeftAloneUntil: v.aloneUntil(v.memory.written(f.Name)),
		Weight:   int32(weight),
		Capacity: short(p.Capacity), Slowdown: short(p.Slowdown), Later: v.later(i),
	}
}

// aloneUntil returns until when a number is left alone, nil where it is not.
func (v *visit) aloneUntil(n *contest.Number) *metav1.Time {
	until := n.Undone().Until
	if !v.now.Before(until) {
		return nil
	}
	return &metav1.Time{Time: until.Truncate(time.Second)}
}

// maxSelector bounds the selector in a status, in bytes. Users choose it, and each pass of the elastic controller parses it.
const maxSelector = 1024

// selector returns what matches the pods of a variant, "" where that is unknown or too long.
func (v *visit) selector(i int) string {
	if t := v.targets[i]; t != nil && t.selector != nil {
		return t.selector.String()
	}
	return ""
}

// later returns when a variant needs more replicas than it should have now.
func (v *visit) later(i int) (needs []v1alpha1.FleetNeed) {
	most := v.plan.Variants[i].Replicas
	for _, need := range v.plan.Later {
		if n := need.Replicas[i]; n > most {
			most = n
			needs = append(needs, v1alpha1.FleetNeed{From: metav1.NewTime(v.now.Add(need.In).Truncate(time.Minute)), Replicas: int32(n)})
		}
	}
	return needs
}

// ready says why the controller cannot size the fleet and divide its requests, nil where it can.
func (v *visit) ready() *refusal {
	return cmp.Or(v.paused(), v.routeRefused, v.weightsRefused, v.firstRefused())
}

// routed says whether the route has the wanted weights.
func (v *visit) routed(o outcome) condition {
	if v.fleet.Paused {
		return said(v1alpha1.ConditionRouted, o.routed, reasonPaused, "the fleet is paused: the weights of the HTTPRoute stay as they are")
	}
	return said(v1alpha1.ConditionRouted, o.routed, reasonRouted, "the HTTPRoute has the wanted weights")
}

// firstRefused says which variant keeps its size and why, nil where all may change.
func (v *visit) firstRefused() *refusal {
	for i, r := range v.refused {
		if r != nil {
			return &refusal{r.reason, fmt.Sprintf("variant %s: %s", v.fleet.Variants[i].Name, r.message)}
		}
	}
	return nil
}

// loading says which variant waits for replicas, nil where all are ready.
func (v *visit) loading() *refusal {
	for i := range v.fleet.Variants {
		if f, want := &v.fleet.Variants[i], v.plan.Variants[i].Replicas; f.Ready != want {
			return &refusal{reasonLoading, fmt.Sprintf("variant %s has %d ready replicas of %d", f.Name, f.Ready, want)}
		}
	}
	return nil
}

// promiseKept compares the measured latency with the promise.
func (v *visit) promiseKept() condition {
	c := condition{kind: v1alpha1.ConditionPromiseKept, status: metav1.ConditionTrue, reason: reasonKept}
	within, latency := v.fleet.Promise.Within, v.measured.latency
	each, token := v.fleet.Promise.PerToken, v.measured.perToken
	c.message = fmt.Sprintf("%s of the requests %s within %v, and the promise is %v", quantileOf(v), v.verb(), rounded(latency), within)
	if each > 0 && token > 0 {
		c.message += fmt.Sprintf("; as many of the tokens followed within %v, and the promise is %v", rounded(token), each)
	}
	if v.plan.Reason == traffic.PromiseTooShort {
		c.status, c.reason, c.message = metav1.ConditionFalse, string(traffic.PromiseTooShort), v.because()
		return c
	}
	switch c.status = v.kept(); c.status {
	case metav1.ConditionFalse:
		c.reason = reasonBroken
	case metav1.ConditionUnknown:
		c.reason = reasonUnmeasured
		c.message = "the latency is unknown: too few requests arrive to tell, there is no query for it, or its result is no number"
		switch {
		case v.measured.problem != nil:
			c.message = "the latency is unknown, since it is unknown how many requests arrive: see the condition Measured"
		case latency == 0 && endsBelow(v.object) && v.object.Spec.Promise.Of != v1alpha1.PromiseOfFirstToken && queriesOf(v.object).Latency == "":
			c.message = fmt.Sprintf("the latency is unknown: the histogram of the preset kserve ends at %v, and the promise is %v: set latency and variantLatency in metrics.queries to those of a histogram that goes further", kserveEnds, within)
		case latency > 0:
			c.message = "the time for each token is unknown: there is no query for it, or its result is no number"
		}
	}
	return c
}

// kept says whether what was measured is within the promise: false as soon as one part of it is broken, unknown where a part was not measured.
func (v *visit) kept() metav1.ConditionStatus {
	p, m := &v.fleet.Promise, &v.measured
	switch {
	case m.latency > p.Within || p.PerToken > 0 && m.perToken > p.PerToken:
		return metav1.ConditionFalse
	case m.latency == 0 || p.PerToken > 0 && m.perToken == 0:
		return metav1.ConditionUnknown
	}
	return metav1.ConditionTrue
}

// verb says what is promised to happen to requests within the latency.
func (v *visit) verb() string {
	if v.object.Spec.Promise.Of == v1alpha1.PromiseOfFirstToken {
		return "had their first token"
	}
	return "were answered"
}

func (v *visit) setConditions(s *v1alpha1.InferenceFleetStatus, conditions ...condition) {
	for _, c := range conditions {
		meta.SetStatusCondition(&s.Conditions, metav1.Condition{
			Type: c.kind, Status: c.status, Reason: c.reason, Message: c.message[:min(len(c.message), maxMessage)],
			ObservedGeneration: v.object.Generation, LastTransitionTime: metav1.NewTime(v.now),
		})
	}
}

// writeStatus writes a status that has changed: at once where a word, a size or a weight has, else after a while.
func (v *visit) writeStatus(ctx context.Context, now *v1alpha1.InferenceFleetStatus) error {
	before := &v.object.Status
	if equality.Semantic.DeepEqual(before, now) ||
		equality.Semantic.DeepEqual(withoutNumbers(before), withoutNumbers(now)) && v.now.Sub(v.memory.numbersAt) < numbersEvery {
		return nil
	}
	changed := v.object.DeepCopy()
	changed.Status = *now
	if err := v.options.Client.Status().Patch(ctx, changed, client.MergeFrom(v.object)); client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("write the status: %w", err)
	}
	v.memory.numbersAt = v.now
	return nil
}

// withoutNumbers returns a status without what moves with each measurement.
func withoutNumbers(s *v1alpha1.InferenceFleetStatus) *v1alpha1.InferenceFleetStatus {
	out := s.DeepCopy()
	out.Demand, out.Capacity, out.Message = "", "", ""
	for k := range out.Classes {
		out.Classes[k].Rate = ""
	}
	for i := range out.Variants {
		out.Variants[i].Capacity, out.Variants[i].Slowdown, out.Variants[i].Later = "", "", nil
	}
	for i := range out.Conditions {
		out.Conditions[i].Message = ""
	}
	return out
}
