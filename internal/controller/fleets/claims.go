package fleets

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"
	autoscalinglisters "k8s.io/client-go/listers/autoscaling/v2"

	"github.com/tandem-gpu/tandem/pkg/api/v1alpha1"
)

// claims say which fleet has each scale target and each rule of a route. The oldest fleet has it; of fleets of one age the first by name.
type claims struct {
	owners map[string]string
	// ages are the places of the fleets, the oldest first.
	ages map[string]int
}

// claimsOf returns what fleets claim. It sorts them: the oldest first.
func claimsOf(fleets []*v1alpha1.InferenceFleet) *claims {
	slices.SortFunc(fleets, func(a, b *v1alpha1.InferenceFleet) int {
		return cmp.Or(a.CreationTimestamp.Compare(b.CreationTimestamp.Time), cmp.Compare(nameOf(a), nameOf(b)))
	})
	c := &claims{owners: map[string]string{}, ages: map[string]int{}}
	for age, f := range fleets {
		c.ages[nameOf(f)] = age
		c.claim(ownRuleKey(f), nameOf(f))
		for k := range f.Spec.Classes {
			c.claim(ruleKey(f, f.Spec.Classes[k].Rule), nameOf(f))
		}
		for i := range f.Spec.Variants {
			c.claim(targetKey(f, i), nameOf(f))
		}
	}
	return c
}

func (c *claims) claim(key, fleet string) {
	if _, taken := c.owners[key]; !taken {
		c.owners[key] = fleet
	}
}

// target says that another fleet has the scale target of a variant, nil where none has.
func (c *claims) target(f *v1alpha1.InferenceFleet, i int) *refusal {
	owner := c.owners[targetKey(f, i)]
	if owner == nameOf(f) {
		return nil
	}
	ref := &f.Spec.Variants[i].ScaleTargetRef
	return &refusal{reasonTargetTaken, fmt.Sprintf("the older InferenceFleet %s scales %s %s: give variant %s a scale target of its own", owner, ref.Kind, ref.Name, f.Spec.Variants[i].Name)}
}

// route says that another fleet has a rule of the route that a fleet names, nil where none has.
func (c *claims) route(f *v1alpha1.InferenceFleet) *refusal {
	r := &f.Spec.Route.HTTPRoute
	if owner := c.owners[ownRuleKey(f)]; owner != nameOf(f) {
		return &refusal{reasonRouteTaken, fmt.Sprintf("the older InferenceFleet %s writes the weights of rule %s of HTTPRoute %s: name another rule or route",
			owner, cmp.Or(r.RuleName, strconv.Itoa(int(r.Rule))), r.Name)}
	}
	for k := range f.Spec.Classes {
		if owner := c.owners[ruleKey(f, f.Spec.Classes[k].Rule)]; owner != nameOf(f) {
			return &refusal{reasonRouteTaken, fmt.Sprintf("the older InferenceFleet %s writes the weights of rule %s of HTTPRoute %s: name another rule for class %s", owner, f.Spec.Classes[k].Rule, r.Name, f.Spec.Classes[k].Name)}
		}
	}
	return nil
}

// rules says that an older fleet names a rule by its name that a fleet names by its index, or the other way round; nil where none does.
func (c *claims) rules(f *v1alpha1.InferenceFleet, r *route) *refusal {
	for k := range r.rules {
		for _, key := range []string{routeKey(f, r.rules[k].index), ruleKey(f, r.rules[k].name)} {
			if owner, claimed := c.owners[key]; claimed && c.ages[owner] < c.ages[nameOf(f)] {
				return &refusal{reasonRouteTaken, fmt.Sprintf("the older InferenceFleet %s writes the weights of rule %d of HTTPRoute %s: name another rule or route", owner, r.rules[k].index, r.name)}
			}
		}
	}
	return nil
}

func nameOf(f *v1alpha1.InferenceFleet) string { return f.Namespace + "/" + f.Name }

func targetKey(f *v1alpha1.InferenceFleet, i int) string {
	ref := &f.Spec.Variants[i].ScaleTargetRef
	return fmt.Sprintf("target %s/%s/%s", f.Namespace, groupKind(ref.APIVersion, ref.Kind), ref.Name)
}

// ownRuleKey is the key of the rule of a fleet, by its name where the fleet has one.
func ownRuleKey(f *v1alpha1.InferenceFleet) string {
	if r := &f.Spec.Route.HTTPRoute; r.RuleName != "" {
		return ruleKey(f, r.RuleName)
	}
	return routeKey(f, int(f.Spec.Route.HTTPRoute.Rule))
}

func routeKey(f *v1alpha1.InferenceFleet, rule int) string {
	return fmt.Sprintf("route %s/%s/%d", f.Namespace, f.Spec.Route.HTTPRoute.Name, rule)
}

// ruleKey is the key of a rule that a fleet or a class names. A rule without a name is of no class.
func ruleKey(f *v1alpha1.InferenceFleet, name string) string {
	return fmt.Sprintf("rule %s/%s/%s", f.Namespace, f.Spec.Route.HTTPRoute.Name, name)
}

func groupKind(apiVersion, kind string) schema.GroupKind {
	return schema.FromAPIVersionAndKind(apiVersion, kind).GroupKind()
}

// autoscaler says which autoscaler changes the number of a scale target, nil for none.
func autoscaler(all autoscalinglisters.HorizontalPodAutoscalerLister, namespace string, ref *v1alpha1.FleetScaleTarget) *refusal {
	list, err := all.HorizontalPodAutoscalers(namespace).List(labels.Everything())
	if err != nil {
		list = nil // the store of an informer has no errors
	}
	slices.SortFunc(list, func(a, b *hpa) int { return cmp.Compare(a.Name, b.Name) })
	for _, h := range list {
		of := &h.Spec.ScaleTargetRef
		if of.Name != ref.Name || groupKind(of.APIVersion, of.Kind) != groupKind(ref.APIVersion, ref.Kind) {
			continue
		}
		by := "HorizontalPodAutoscaler " + h.Name
		if owner := metav1.GetControllerOf(h); owner != nil { // KEDA makes one for its ScaledObject
			by += " of " + owner.Kind + " " + owner.Name
		}
		return &refusal{reasonAutoscaled, fmt.Sprintf("%s changes the number of %s %s: remove it, or the variant", by, ref.Kind, ref.Name)}
	}
	return nil
}
