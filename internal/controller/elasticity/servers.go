package elasticity

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"slices"

	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/tandem-gpu/tandem/internal/cluster/kube"
	"github.com/tandem-gpu/tandem/internal/cluster/membership"
	"github.com/tandem-gpu/tandem/internal/cluster/workloads"
	"github.com/tandem-gpu/tandem/pkg/api/v1alpha1"
	"github.com/tandem-gpu/tandem/pkg/elastic"
	"github.com/tandem-gpu/tandem/pkg/vgpu"
)

// tuning is what a gang that states a rate wants and gets, in one pass.
type tuning struct {
	membership.Wish
	// replicas is the number of servers that their object should have, ready how many are ready. Both are 0 for a gang
	// without servers.
	replicas, ready int
	// uid and generation are those of their object, and contested says that somebody else writes its number back, "" where nobody does.
	uid        types.UID
	generation int64
	contested  string
	// template is what one server is made from.
	template *v1.PodSpec
	// problem says why the rate cannot be considered, with the reason of the condition; "" for nothing.
	reason, problem string
	// changes says that the members want different rates. A user may be changing them one after the other.
	changes bool
	// choice is the chosen combination, nil before the choice and where there is a problem.
	choice *elastic.Choice
}

// Reasons of the condition RateReached.
const (
	reasonReached         = "Reached"
	reasonNotReached      = "NotReached"
	reasonUnknownRates    = "UnknownRates"
	reasonFewerMembers    = "FewerMembers"
	reasonInvalidRate     = "InvalidRate"
	reasonServersMissing  = "ServersMissing"
	reasonServersNotGiven = "ServersNotGiven"
	reasonServersScaled   = "AnotherControllerScalesTheServers"
)

// tuned reads what a gang wants, nil for one that states no rate.
func (l *listers) tuned(g *elasticGang) *tuning {
	wish, err := membership.WishOf(g.all[0].Annotations)
	switch {
	case err != nil:
		return &tuning{reason: reasonInvalidRate, problem: err.Error()}
	case wish == nil:
		return nil
	}
	t := &tuning{Wish: *wish}
	if s := t.Servers; s != nil {
		l.readServers(t, g)
		if h := l.autoscalerOf(g.Namespace, s.Kind, s.Name); t.problem == "" && h != "" {
			t.reason = reasonServersScaled
			t.problem = fmt.Sprintf("HorizontalPodAutoscaler %s scales %s %s: remove it, or the annotation %s", h, s.Kind, s.Name, v1alpha1.AnnotationElasticServers)
		}
	}
	if problem := unlikeRates(g.all); problem != "" {
		t.reason, t.problem, t.changes = reasonInvalidRate, problem, true
	}
	return t
}

// autoscalerOf returns the HorizontalPodAutoscaler of an object, "" for none.
func (l *listers) autoscalerOf(namespace, kind, name string) string {
	all, err := l.autoscalers.HorizontalPodAutoscalers(namespace).List(everything)
	if err != nil {
		return "" // the store of an informer has no errors
	}
	for _, h := range all {
		if scales(h, kind, name) {
			return h.Name
		}
	}
	return ""
}

// readServers reads the object that runs the servers. The object must name the gang: otherwise whoever may create pods in a
// namespace could have any object there scaled.
func (l *listers) readServers(t *tuning, g *elasticGang) {
	var replicas *int32
	var ready int32
	var object metav1.ObjectMeta
	var template *v1.PodTemplateSpec
	var of string
	if t.Servers.Kind == "StatefulSet" {
		if set, err := l.statefulSets.StatefulSets(g.Namespace).Get(t.Servers.Name); err == nil {
			replicas, ready, template, of = set.Spec.Replicas, set.Status.ReadyReplicas, &set.Spec.Template, set.Labels[v1alpha1.LabelGang]
			object = set.ObjectMeta
		}
	} else if d, err := l.deployments.Deployments(g.Namespace).Get(t.Servers.Name); err == nil {
		replicas, ready, template, of = d.Spec.Replicas, d.Status.ReadyReplicas, &d.Spec.Template, d.Labels[v1alpha1.LabelGang]
		object = d.ObjectMeta
	}
	switch {
	case template == nil:
		t.reason = reasonServersMissing
		t.problem = fmt.Sprintf("%s %s, which %s names, does not exist, or the controller has not read it yet", t.Servers.Kind, t.Servers.Name, v1alpha1.AnnotationElasticServers)
		return
	case of != g.Name:
		t.reason = reasonServersNotGiven
		t.problem = fmt.Sprintf("%s %s does not have the label %s: %s, by which its owner lets the controller scale it for this gang", t.Servers.Kind, t.Servers.Name, v1alpha1.LabelGang, g.Name)
	}
	t.replicas, t.ready, t.template, t.uid, t.generation = 1, int(ready), &template.Spec, object.UID, object.Generation
	if replicas != nil {
		t.replicas = int(*replicas)
	}
}

// servers returns the number of parameter servers with which the gang works now, 0 without, and false while that changes.
func (g *elasticGang) servers() (count int, settled bool) {
	if g.tuning == nil || g.tuning.Servers == nil {
		return 0, true
	}
	t := g.tuning
	return t.replicas, t.replicas == t.ready && t.replicas > 0 && t.replicas <= elastic.MaxServers
}

// tune chooses the combination of members and servers for a gang that states a rate, and narrows the sizes of its job to
// the chosen one: where GPUs are short the job gets fewer members. A gang of which no combination is known to reach the rate
// may have any size, and so learns further rates.
func (p *pass) tune(g *elasticGang, j *elastic.Job, profile *workloads.Workload) error {
	t := g.tuning
	if t == nil {
		return nil
	}
	if t.problem != "" {
		g.holdSize(j)
		return nil
	}
	m := p.memory[g.Ref]
	request := g.rates(&m.learner, profile, j.Curve.Points)
	request.Workers, request.Rate, request.Cost, request.Horizon = j.Sizes, t.Rate, j.Cost, p.config.Horizon
	request.Worker = priceOf(&g.all[0].Spec)
	if request.Servers = []int{1}; t.Servers != nil {
		request.Servers, request.Server = t.Servers.Sizes, priceOf(t.template)
	}
	if t.contested != "" { // the members go with the servers that somebody else wants
		request.Servers = []int{min(max(1, t.replicas), elastic.MaxServers)}
	}
	if len(g.running) > 0 {
		request.Now = elastic.Combination{Workers: g.workers(), Servers: max(1, t.replicas)}
	}
	choice, err := elastic.Choose(request)
	if err != nil {
		return err
	}
	t.choice = &choice
	if t.Servers != nil && len(request.Rates) > 0 {
		j.Curve.Points = pointsAt(request.Rates, choice.Servers)
	}
	if choice.Refused == nil && g.resizable.yes {
		j.Sizes = slices.DeleteFunc(slices.Clone(j.Sizes), func(n int) bool { return n > choice.Workers })
	}
	return nil
}

// holdSize keeps a gang that runs from growing while its members want unlike rates, as they do while a user changes the rate of one after the
// other: without this it would grow as if it wanted no rate.
func (g *elasticGang) holdSize(j *elastic.Job) {
	if now := g.workers(); g.tuning.changes && g.target != nil && len(g.running) > 0 && slices.Contains(j.Sizes, now) {
		j.Sizes = slices.DeleteFunc(slices.Clone(j.Sizes), func(n int) bool { return n > now })
	}
}

// rates returns a request with the rates that are known: the declared ones, else the learned ones. Those of a gang without
// servers are its points, as if it had one server that costs nothing.
func (g *elasticGang) rates(l *elastic.Learner, profile *workloads.Workload, points []elastic.Point) (t elastic.Tuning) {
	switch {
	case g.tuning.Servers == nil:
		for _, p := range points {
			t.Rates = append(t.Rates, elastic.CombinationRate{Combination: elastic.Combination{Workers: p.Workers, Servers: 1}, Rate: p.Rate})
		}
		t.Rates = elastic.LeastRates(t.Rates)
	case profile != nil && profile.Scaling().Combinations != nil:
		t.Rates = profile.Scaling().Combinations
	default:
		t.Rates = l.Combinations()
	}
	return t
}

// pointsAt returns the points of the curve at a number of servers.
func pointsAt(rates []elastic.CombinationRate, servers int) (points []elastic.Point) {
	for _, r := range rates {
		if r.Servers == servers {
			points = append(points, elastic.Point{Workers: r.Workers, Rate: r.Rate})
		}
	}
	return points
}

// priceOf returns what a pod takes by its requests. GPUs count by the slots of a device, ten of which are a whole one in
// most clusters: only the order of prices matters here.
func priceOf(spec *v1.PodSpec) (p elastic.Price) {
	for i := range spec.Containers {
		r := &spec.Containers[i].Resources
		slots := r.Limits[v1alpha1.ResourceVGPU]
		p.GPU += vgpu.MilliGPU(min(slots.Value(), maxSlots) * 100)
		p.CPU += min(r.Requests.Cpu().MilliValue(), maxMilliCPU)
		p.Memory += vgpu.Bytes(min(r.Requests.Memory().Value(), maxBytes))
	}
	return p
}

// Bounds of what one container counts for, so that sums stay far from overflow.
const (
	maxSlots    = 1 << 20
	maxMilliCPU = 1 << 30
	maxBytes    = 1 << 44
)

// settle completes a decision by what was chosen for the rate that the gang states, and reports whether it did.
func (d *decision) settle() bool {
	t := d.tuning
	if t == nil || t.choice == nil || t.choice.Refused != nil || len(d.running) == 0 || d.workers != t.choice.Workers {
		return false // GPUs are short, or more members would not be worth a change: the reason says which
	}
	d.reason, d.message = reasonRate, t.because()
	return true
}

// reasonRate is the reason of a target that is the chosen number of members for the rate that the gang states.
const reasonRate = "Rate"

// because says what was chosen and why, as the second half of a sentence.
func (t *tuning) because() string {
	c := t.choice
	if c.Refused != nil {
		return c.Refused.String()
	}
	known := "expected"
	if c.Measured {
		known = "known"
	}
	what := fmt.Sprintf("%d members", c.Workers)
	if t.Servers != nil {
		what = fmt.Sprintf("%d members with %d servers", c.Workers, c.Servers)
	}
	said := fmt.Sprintf("the rate %.4g is wanted, and %s have the %s rate %.4g", t.Rate, what, known, c.Rate)
	if c.Why == elastic.Kept {
		return said + "; another combination would not repay the change"
	}
	return said + " at the lowest cost"
}

// scaleServers gives the object of the servers its chosen number of replicas. The patch is refused where somebody else has
// changed the number since it was read.
func (p *pass) scaleServers(ctx context.Context, d *decision) error {
	t, written := d.tuning, &p.memory[d.Ref].servers
	if t == nil || t.Servers == nil || written.isUnseen(t) || t.contested != "" || t.choice == nil || t.choice.Why == elastic.Unknown || t.choice.Servers == t.replicas || len(d.running) == 0 {
		return nil
	}
	from, to := t.replicas, t.choice.Servers
	patch, err := json.Marshal([]map[string]any{
		{"op": "test", "path": "/spec/replicas", "value": from}, {"op": "replace", "path": "/spec/replicas", "value": to},
	})
	if err != nil {
		return err
	}
	apps := p.options.Kube.AppsV1()
	if t.Servers.Kind == "StatefulSet" {
		_, err = apps.StatefulSets(d.Namespace).Patch(ctx, t.Servers.Name, types.JSONPatchType, patch, metav1.PatchOptions{}, "scale")
	} else {
		_, err = apps.Deployments(d.Namespace).Patch(ctx, t.Servers.Name, types.JSONPatchType, patch, metav1.PatchOptions{}, "scale")
	}
	p.metrics.scaled(err)
	if stale(err) {
		return nil // the next pass decides anew
	}
	if err != nil {
		return fmt.Errorf("scale %s %s: %w", t.Servers.Kind, t.Servers.Name, err)
	}
	written.wrote(t, to, p.now)
	reason, verb := "ElasticServersGrow", "grow"
	if to < from {
		reason, verb = "ElasticServersShrink", "shrink"
	}
	p.options.Recorder.Eventf(d.about(), nil, v1.EventTypeNormal, reason, resizing(from, to), "%s",
		fmt.Sprintf("the servers of %s %s %s from %d to %d: %s", t.Servers.Kind, t.Servers.Name, verb, from, to, t.because()))
	return nil
}

// stale reports whether an object is gone, or is not as the controller has read it.
func stale(err error) bool {
	return apierrors.IsNotFound(err) || apierrors.IsConflict(err) || apierrors.IsInvalid(err)
}

// tuningStatus writes what was chosen for a rate into a status.
func (d *decision) tuningStatus(s *v1alpha1.ElasticTargetStatus, now metav1.Time) {
	t := d.tuning
	if t == nil {
		s.Conditions = slices.DeleteFunc(s.Conditions, func(c metav1.Condition) bool { return c.Type == v1alpha1.ConditionRateReached })
		return
	}
	if t.Rate > 0 {
		s.Tuning = &v1alpha1.ElasticTuning{}
		if q := rateQuantity(t.Rate); q != nil {
			s.Tuning.Wanted = *q
		}
	}
	if t.choice == nil {
		if t.problem == "" && meta.FindStatusCondition(s.Conditions, v1alpha1.ConditionRateReached) != nil {
			return // the gang has a problem that is not of the rate: the last word on that stands
		}
		reason := cmp.Or(t.reason, reasonInvalidRate)
		setCondition(s, v1alpha1.ConditionRateReached, false, reason, cmp.Or(t.problem, d.problem, "the gang has a problem"), now)
		return
	}
	if t.choice.Rate > 0 {
		s.Tuning.Workers, s.Tuning.Expected = int32(t.choice.Workers), rateQuantity(roundTo3(t.choice.Rate))
	}
	if t.Servers != nil && t.choice.Rate > 0 {
		s.Tuning.Servers, s.Tuning.ServersReady = new(int32(t.choice.Servers)), new(int32(t.ready))
	}
	reason, message := reasonReached, t.because()
	switch {
	case t.choice.Why == elastic.Unknown:
		reason = reasonUnknownRates
	case t.choice.Refused != nil:
		reason = reasonNotReached
	case len(d.running) == 0:
		reason, message = reasonFewerMembers, "no member has a node yet"
	case d.workers < t.choice.Workers:
		reason, message = reasonFewerMembers, fmt.Sprintf("%s; the target is %d members: %s", message, d.workers, d.message)
	}
	reached := reason == reasonReached
	if t.contested != "" {
		reason, message = reasonOtherWriter, t.contested
	}
	setCondition(s, v1alpha1.ConditionRateReached, reached, reason, message, now)
}

// unlikeRates says that members differ in the rate or the servers that they name, "" where they do not.
func unlikeRates(members []*v1.Pod) string {
	for _, key := range []string{v1alpha1.AnnotationElasticRate, v1alpha1.AnnotationElasticServers} {
		first := members[0].Annotations[key]
		for _, pod := range members {
			if pod.Annotations[key] != first {
				return fmt.Sprintf("the annotation %s of pod %s is %s, and of pod %s %s: it must be the same on all members", key, members[0].Name,
					kube.Shown(first), pod.Name, kube.Shown(pod.Annotations[key]))
			}
		}
	}
	return ""
}
