package fleets

import (
	"errors"
	"strings"
	"testing"
	"time"

	autoscalingv2 "k8s.io/api/autoscaling/v2"
	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/tandem-gpu/tandem/pkg/api/v1alpha1"
	"github.com/tandem-gpu/tandem/test/must"
)

// An object that the controller must not write keeps its size, and a condition says why. The fleet needs more replicas in all
// cases.
func TestRefusals(t *testing.T) {
	deployments := schema.GroupResource{Group: "apps", Resource: "deployments"}
	autoscaled := func(apiVersion, kind, name string) *autoscalingv2.HorizontalPodAutoscaler {
		h := &autoscalingv2.HorizontalPodAutoscaler{ObjectMeta: metav1.ObjectMeta{Name: "h"}}
		h.Spec.ScaleTargetRef = autoscalingv2.CrossVersionObjectReference{APIVersion: apiVersion, Kind: kind, Name: name}
		return h
	}
	for _, test := range []struct {
		name    string
		spoil   func(*testing.T, *world)
		kind    string
		want    string
		message string
		// others says that the other variant, t4, grows in place of this one.
		others bool
	}{
		{"a HorizontalPodAutoscaler", func(_ *testing.T, w *world) { w.autoscaler(autoscaled("apps/v1", "Deployment", "bert-a100")) }, v1alpha1.ConditionScaled, "False AnotherAutoscaler",
			"variant a100: HorizontalPodAutoscaler h changes the number of Deployment bert-a100: remove it, or the variant", true},
		{"KEDA", func(_ *testing.T, w *world) {
			h := autoscaled("apps/v1", "Deployment", "bert-a100")
			h.OwnerReferences = []metav1.OwnerReference{{Kind: "ScaledObject", Name: "k", Controller: new(true)}}
			w.autoscaler(h)
		}, v1alpha1.ConditionScaled, "False AnotherAutoscaler", "variant a100: HorizontalPodAutoscaler h of ScaledObject k changes the number of Deployment bert-a100: remove it, or the variant", true},
		{"an autoscaler of another object", func(_ *testing.T, w *world) {
			w.autoscaler(autoscaled("apps/v1", "StatefulSet", "bert-a100"))
		}, v1alpha1.ConditionFleetReady, "True Controlled", "the controller chooses the sizes and the weights", false},
		{"no scale target", func(_ *testing.T, w *world) { delete(w.replicas, "bert-a100") }, v1alpha1.ConditionScaled, "False ScaleTargetMissing",
			"variant a100: Deployment bert-a100 does not exist, or its kind has no subresource /scale: create it, or correct scaleTargetRef", true},
		{"a scale target with a controller", func(_ *testing.T, w *world) { w.owners["bert-a100"] = "bert" }, v1alpha1.ConditionScaled, "False ScaleTargetOwned",
			"variant a100: Deployment bert-a100 belongs to InferenceService bert, whose controller may write the old replicas back: name an object without a controller", true},
		{"an unknown kind", func(_ *testing.T, w *world) {
			w.change(func(s *v1alpha1.InferenceFleetSpec) { s.Variants[0].ScaleTargetRef.Kind = "Crew" })
		}, v1alpha1.ConditionScaled, "False UnknownKind", "variant a100: the API server does not serve Crew of apps/v1: correct scaleTargetRef, or install the kind", true},
		{"a kind without /scale", func(_ *testing.T, w *world) {
			w.scaleErr["bert-a100"] = apierrors.NewGenericServerResponse(404, "get", schema.GroupResource{}, "", "", 0, false)
		}, v1alpha1.ConditionScaled, "False NoScale", "variant a100: Deployment of apps/v1 has no subresource /scale: name an object that has, such as a Deployment", true},
		{"no right", func(_ *testing.T, w *world) {
			w.scaleErr["bert-a100"] = apierrors.NewForbidden(deployments, "bert-a100", errors.New("no role"))
		}, v1alpha1.ConditionScaled, "False NotAllowed", "", true},
		{"no Service", func(t *testing.T, w *world) {
			must.OK(t, w.kube.Core().V1().Services().Informer().GetIndexer().Delete(&v1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "bert-a100"}}))
		}, v1alpha1.ConditionScaled, "False ServiceMissing", "variant a100: Service bert-a100 does not exist: create it, or correct service", true},
		{"no route", func(_ *testing.T, w *world) { w.route = nil }, v1alpha1.ConditionRouted, "False RouteMissing", "", false},
		{"no rule", func(_ *testing.T, w *world) {
			w.change(func(s *v1alpha1.InferenceFleetSpec) { s.Route.HTTPRoute.Rule = 2 })
		}, v1alpha1.ConditionRouted, "False RuleMissing", "HTTPRoute bert has 2 rules, and rule 2 is not among them: rules are counted from 0", false},
		{"a rule of others", func(_ *testing.T, w *world) {
			w.change(func(s *v1alpha1.InferenceFleetSpec) { s.Route.HTTPRoute.Rule = 0 })
		}, v1alpha1.ConditionRouted, "False ForeignBackends", "rule 0 of HTTPRoute bert has the backend Service other, which is no Service or InferencePool of a variant, or stands there twice: a rule for the fleet alone is needed", false},
		{"another port", func(_ *testing.T, w *world) {
			w.change(func(s *v1alpha1.InferenceFleetSpec) { s.Variants[0].Service.Port = 81 })
		}, v1alpha1.ConditionRouted, "False ForeignBackends", "", false},
		{"a variant without a backend", func(_ *testing.T, w *world) {
			w.change(func(s *v1alpha1.InferenceFleetSpec) {
				third := s.Variants[1]
				third.Name, third.Service.Name, third.ScaleTargetRef.Name = "l4", "bert-l4", "bert-l4"
				s.Variants = append(s.Variants, third)
			})
		}, v1alpha1.ConditionRouted, "False BackendMissing", "rule 1 of HTTPRoute bert has no backend for Service bert-l4 with port 80 of variant l4: add it, with weight 0", false},
		{"a backend of another kind", func(_ *testing.T, w *world) {
			w.change(func(s *v1alpha1.InferenceFleetSpec) { s.Variants[0].InferencePool = "bert-a100" })
		}, v1alpha1.ConditionRouted, "False ForeignBackends", "", false},
		{"a variant without its InferencePool", func(_ *testing.T, w *world) {
			w.change(func(s *v1alpha1.InferenceFleetSpec) {
				third := s.Variants[1]
				third.Name, third.Service.Name, third.ScaleTargetRef.Name, third.InferencePool = "l4", "bert-l4", "bert-l4", "l4"
				s.Variants = append(s.Variants, third)
			})
		}, v1alpha1.ConditionRouted, "False BackendMissing", "rule 1 of HTTPRoute bert has no backend for InferencePool l4 of variant l4: add it, with weight 0", false},
		{"a route with a controller", func(_ *testing.T, w *world) {
			w.route.SetOwnerReferences([]metav1.OwnerReference{{APIVersion: "serving.kserve.io/v1beta1", Kind: "InferenceService", Name: "bert", UID: "u", Controller: new(true)}})
		}, v1alpha1.ConditionRouted, "False RouteOwned", "HTTPRoute bert belongs to InferenceService bert, whose controller may write the old weights back: name a route without a controller", false},
	} {
		t.Run(test.name, func(t *testing.T) {
			w := newWorld(t)
			w.setWeights(300, 700)
			w.arrive("60")
			test.spoil(t, w)
			w.pass()
			if got := w.condition(test.kind); got != test.want {
				t.Errorf("%s: %s, want %s", test.kind, got, test.want)
			}
			if got := w.message(test.kind); test.message != "" && got != test.message {
				t.Errorf("message: %s", got)
			}
			refused := !strings.HasPrefix(test.want, "True")
			if n, has := w.replicas["bert-a100"]; has && (n == 1) != refused {
				t.Errorf("%d a100", n)
			}
			if refused && (w.replicas["bert-t4"] > 0) != test.others {
				t.Errorf("%d t4", w.replicas["bert-t4"])
			}
			if ready := w.condition(v1alpha1.ConditionFleetReady); strings.HasPrefix(ready, "True") == refused {
				t.Errorf("Ready: %s", ready)
			}
			if test.kind == v1alpha1.ConditionRouted && w.route != nil && w.weights() != "bert-t4:300 bert-a100:700" {
				t.Errorf("weights: %s", w.weights())
			}
			w.settle(5 * time.Minute)
			if again := w.condition(test.kind); refused && again != test.want {
				t.Errorf("five minutes later: %s", again)
			}
		})
	}
}

// A scale target is read for its owner when it has changed, and a kind of which the controller may only read scales counts as one without an owner. An owner that goes
// leaves the target to the fleet.
func TestOwnedScaleTarget(t *testing.T) {
	w := newWorld(t)
	w.arrive("20")
	w.settle(2 * time.Minute)
	if w.gets != 2 {
		t.Errorf("eight passes read the two scale targets %d times", w.gets)
	}
	w.owners["bert-a100"] = "bert"
	w.arrive("80")
	w.settle(time.Minute)
	if got := w.condition(v1alpha1.ConditionScaled); got != "False ScaleTargetOwned" || w.replicas["bert-a100"] != 1 {
		t.Errorf("%s, %v", got, w.replicas)
	}
	w.owners["bert-a100"] = ""
	w.settle(time.Hour)
	if got := w.condition(v1alpha1.ConditionScaled); got != "True Scaled" || w.replicas["bert-a100"] != 2 {
		t.Errorf("without its owner: %s, %v", got, w.replicas)
	}
	w = newWorld(t)
	w.getErr = apierrors.NewForbidden(schema.GroupResource{Group: "apps", Resource: "deployments"}, "bert-a100", errors.New("no role"))
	w.arrive("80")
	w.settle(time.Minute)
	if got := w.condition(v1alpha1.ConditionFleetReady); got != "True Controlled" || w.replicas["bert-a100"] == 1 {
		t.Errorf("without the right to read it: %s, %v", got, w.replicas)
	}
}

// If two fleets have one scale target, or one rule, the older one has it. The other one leaves it as it is.
func TestTwoFleetsWithOneTarget(t *testing.T) {
	for _, test := range []struct {
		name string
		edit func(*v1alpha1.InferenceFleet)
		kind string
		want string
	}{
		{"a rule", func(f *v1alpha1.InferenceFleet) {
			f.Spec.Variants[0].ScaleTargetRef.Name, f.Spec.Variants[1].ScaleTargetRef.Name = "x-a100", "x-t4"
		}, v1alpha1.ConditionRouted, "False RouteTaken the older InferenceFleet ns/bert writes the weights of rule 1 of HTTPRoute bert: name another rule or route"},
		{"a scale target of another version", func(f *v1alpha1.InferenceFleet) {
			f.Spec.Route.HTTPRoute.Name, f.Spec.Variants[0].ScaleTargetRef.APIVersion = "other", "apps/v1beta1"
		}, v1alpha1.ConditionScaled, "False ScaleTargetTaken variant a100: the older InferenceFleet ns/bert scales Deployment bert-a100: give variant a100 a scale target of its own"},
	} {
		t.Run(test.name, func(t *testing.T) {
			other := read[v1alpha1.InferenceFleet](t, bert)
			other.Name, other.UID, other.CreationTimestamp = "a-newer", "uid-newer", metav1.NewTime(noon.Add(-time.Hour))
			test.edit(other)
			w := newWorld(t, other)
			w.replicas["x-a100"], w.replicas["x-t4"] = 1, 1
			w.arrive("60")
			wantWrites(t, "both fleets", w.pass(), "scale bert-a100 1→2")
			if got := w.condition(v1alpha1.ConditionFleetReady); got != "True Controlled" {
				t.Errorf("the older one: %s", got)
			}
			c := meta.FindStatusCondition(w.fleet("a-newer").Status.Conditions, test.kind)
			if got := string(c.Status) + " " + c.Reason + " " + c.Message; got != test.want {
				t.Errorf("the newer one: %s", got)
			}
			if w.replicas["x-a100"] != 1 || w.replicas["bert-t4"] != 0 {
				t.Errorf("the newer one changed sizes: %v", w.replicas)
			}
		})
	}
}

func TestNewerFleetLeavesTheTarget(t *testing.T) {
	w := newWorld(t)
	f := w.fleet("bert")
	older := f.DeepCopy()
	older.Name, older.UID = "a-bert", "uid-older"
	c := claimsOf([]*v1alpha1.InferenceFleet{f, older})
	if r := c.target(f, 1); r == nil || r.message != "the older InferenceFleet ns/a-bert scales Deployment bert-t4: give variant t4 a scale target of its own" {
		t.Errorf("the second by name of two of one age: %+v", r)
	}
	if r := c.target(older, 1); r != nil {
		t.Errorf("the first: %+v", r)
	}
	older.Namespace = "other"
	if c := claimsOf([]*v1alpha1.InferenceFleet{f, older}); c.target(f, 1) != nil || c.route(f) != nil {
		t.Error("fleets of two namespaces have the same names for unlike objects")
	}
}

// An illegal spec, as an API server without the rules of the CustomResourceDefinition would let through, changes nothing.
func TestDeclaredRefusesBadInput(t *testing.T) {
	for _, test := range []struct {
		name string
		edit func(*v1alpha1.InferenceFleetSpec)
		want string
	}{
		{"no variants", func(s *v1alpha1.InferenceFleetSpec) { s.Variants = nil }, "variants: there must be at least one"},
		{"a quantile of 1", func(s *v1alpha1.InferenceFleetSpec) { s.Promise.Quantile = "1" }, "promise: quantile 1: legal are numbers from .5 to below 1"},
		{"a quantile in words", func(s *v1alpha1.InferenceFleetSpec) { s.Promise.Quantile = "p99" }, `promise.quantile "p99": legal are decimals such as 12.5`},
		{"no latency", func(s *v1alpha1.InferenceFleetSpec) { s.Promise.Latency.Duration = 0 }, "promise: latency 0s: legal are times above 0 and up to 24h0m0s"},
		{"an unknown objective", func(s *v1alpha1.InferenceFleetSpec) { s.Objective = "fair" }, `objective "fair": legal are ["proportional" "mean-optimal" "p99-optimal"]`},
		{"a rate of 0", func(s *v1alpha1.InferenceFleetSpec) { s.Variants[0].Replica.Rate = "0" }, `variant "a100": rate 0: legal are numbers above 0 and up to 1e+09 requests a second`},
		{"a rate of NaN", func(s *v1alpha1.InferenceFleetSpec) { s.Variants[0].Replica.Rate = "NaN" }, `variant "a100": rate NaN: legal are numbers above 0 and up to 1e+09 requests a second`},
		{"no rate", func(s *v1alpha1.InferenceFleetSpec) { s.Variants[0].Replica.Rate = "" }, `variant "a100": replica.rate "": legal are decimals such as 12.5`},
		{"a variation below 0", func(s *v1alpha1.InferenceFleetSpec) { s.Variants[1].Replica.Variation = "-1" }, `variant "t4": variation -1: legal are numbers from 0 to 10000`},
		{"a load time of days", func(s *v1alpha1.InferenceFleetSpec) { s.Variants[1].LoadTime.Duration = 48 * time.Hour }, `variant "t4": load time 48h0m0s: legal are times from 0 to 24h0m0s`},
		{"bounds that cross", func(s *v1alpha1.InferenceFleetSpec) { s.Variants[1].MinReplicas = 21 }, `variant "t4": `},
		{"no time of the first token", func(s *v1alpha1.InferenceFleetSpec) { llm(s); s.Variants[0].Replica.FirstToken = nil }, `variant "a100": replica.firstToken is missing: the promise is of FirstToken`},
		{"a first token after the answer", func(s *v1alpha1.InferenceFleetSpec) {
			llm(s)
			s.Variants[0].Replica.FirstToken.Duration = 5 * time.Second
		}, `variant "a100": first token 5s: legal are times from 0 to the time of the whole answer, 4s`},
		{"no answers in flight", func(s *v1alpha1.InferenceFleetSpec) { llm(s); s.Variants[1].Replica.InFlight = 0 }, `variant "t4": replica.inFlight 0: the promise has perToken, and legal are numbers from 1 to 4096`},
		{"two variants of one name", func(s *v1alpha1.InferenceFleetSpec) { s.Variants[1].Name = "a100" }, `variant "a100": two variants have this name`},
		{"two variants of one Service", func(s *v1alpha1.InferenceFleetSpec) { s.Variants[1].Service = s.Variants[0].Service }, `variants "a100" and "t4": both name the Service bert-a100; each needs its own`},
		{"two variants of one InferencePool", func(s *v1alpha1.InferenceFleetSpec) {
			s.Variants[0].InferencePool, s.Variants[1].InferencePool = "pool", "pool"
		}, `variants "a100" and "t4": both name the InferencePool pool; each needs its own`},
		{"two variants of one target", func(s *v1alpha1.InferenceFleetSpec) {
			s.Variants[1].ScaleTargetRef = s.Variants[0].ScaleTargetRef
		}, `variants "a100" and "t4": both name Deployment bert-a100 as scale target; each needs its own`},
	} {
		t.Run(test.name, func(t *testing.T) {
			w := newWorld(t)
			w.arrive("60")
			w.change(test.edit)
			wantWrites(t, "an illegal fleet", w.pass())
			if got := w.condition(v1alpha1.ConditionFleetReady); got != "False Invalid" {
				t.Errorf("Ready: %s", got)
			}
			if got := w.message(v1alpha1.ConditionFleetReady); !strings.HasPrefix(got, test.want) {
				t.Errorf("message: %s", got)
			}
		})
	}
}

// The defaults are those of the CustomResourceDefinition, also for objects without them.
func TestDeclaredDefaults(t *testing.T) {
	o := read[v1alpha1.InferenceFleet](t, bert)
	o.Spec.Promise.Quantile, o.Spec.Objective = "", ""
	o.Spec.Variants[0].Cost, o.Spec.Variants[0].Slots = 0, 7
	o.Spec.Variants[1].Cost = 0
	o.Spec.Variants[1].Replica.Gate = &metav1.Duration{Duration: time.Second}
	f, err := declared(o, ownReplicas(o))
	must.OK(t, err)
	a, b := f.Variants[0], f.Variants[1]
	if f.Promise.Quantile != .99 || f.Objective != "proportional" || a.Cost != 7 || b.Cost != 1 || a.Replica.Variation != 1 || a.Replica.Gate != 0 ||
		b.Replica.Gate != time.Second || a.Least != 1 || a.Most != 20 || a.Load != time.Minute || a.Replica.Rate != 50 || a.Replica.Time != 20*time.Millisecond {
		t.Errorf("%+v", f)
	}
}
