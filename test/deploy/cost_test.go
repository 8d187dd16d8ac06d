package deploy

import (
	"context"
	"slices"
	"testing"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/version"
	"k8s.io/apiserver/pkg/admission"
	"k8s.io/apiserver/pkg/admission/plugin/cel"
	"k8s.io/apiserver/pkg/admission/plugin/policy/validating"
	"k8s.io/apiserver/pkg/admission/plugin/webhook/matchconditions"
	celconfig "k8s.io/apiserver/pkg/apis/cel"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	"k8s.io/apiserver/pkg/cel/environment"
)

// compiled is a policy as the API server runs it.
type compiled struct {
	name                              string
	conditions, validations, messages cel.ConditionEvaluator
}

// languages are the releases in whose CEL every policy must be written: an API server takes new expressions in that of the
// release before its own.
var languages = []string{"1.33", "1.34", "1.35", "1.36", "1.37"}

// compile compiles a policy in the CEL of a release, and fails for every expression that the release does not know.
func compile(t *testing.T, policy *admissionv1.ValidatingAdmissionPolicy, release string) compiled {
	t.Helper()
	compiler, err := cel.NewCompositedCompiler(environment.MustBaseEnvSet(version.MustParseGeneric(release)))
	if err != nil {
		t.Fatal(err)
	}
	with := cel.OptionalVariableDeclarations{HasAuthorizer: true}
	for _, v := range policy.Spec.Variables {
		result := compiler.CompileAndStoreVariable(&validating.Variable{Name: v.Name, Expression: v.Expression}, with, environment.NewExpressions)
		if result.Error != nil {
			t.Errorf("%s: variable %s does not compile on %s: %v", policy.Name, v.Name, release, result.Error)
		}
	}
	var conditions, validations, messages []cel.ExpressionAccessor
	for i := range policy.Spec.MatchConditions {
		conditions = append(conditions, (*matchconditions.MatchCondition)(&policy.Spec.MatchConditions[i]))
	}
	for _, v := range policy.Spec.Validations {
		validations = append(validations, &validating.ValidationCondition{Expression: v.Expression})
		if v.MessageExpression != "" {
			messages = append(messages, &validating.MessageExpressionCondition{MessageExpression: v.MessageExpression})
		}
	}
	c := compiled{
		name:        policy.Name,
		conditions:  compiler.CompileCondition(conditions, with, environment.NewExpressions),
		validations: compiler.CompileCondition(validations, with, environment.NewExpressions),
		messages:    compiler.CompileCondition(messages, cel.OptionalVariableDeclarations{}, environment.NewExpressions),
	}
	for _, part := range []cel.ConditionEvaluator{c.conditions, c.validations, c.messages} {
		for _, err := range part.CompilationErrors() {
			t.Errorf("%s does not compile on %s: %v", policy.Name, release, err)
		}
	}
	return c
}

// allPolicies returns those of deploy/ and of its components.
func allPolicies(t *testing.T) []*admissionv1.ValidatingAdmissionPolicy {
	t.Helper()
	var policies []*admissionv1.ValidatingAdmissionPolicy
	for _, object := range overlay(t, "sane-requests") {
		if policy, ok := object.(*admissionv1.ValidatingAdmissionPolicy); ok {
			policies = append(policies, policy)
		}
	}
	return policies
}

func TestPoliciesCompileOnAllReleases(t *testing.T) {
	for _, release := range languages {
		for _, policy := range allPolicies(t) {
			compile(t, policy, release)
		}
	}
}

// cost returns what the API server counts for a policy in a request. More than the API server grants fails.
func (c compiled) cost(t *testing.T, s *sent) (cost int64) {
	t.Helper()
	request := cel.CreateAdmissionRequest(s.Attributes, metav1.GroupVersionResource(s.GetResource()), metav1.GroupVersionKind(s.GetKind()))
	inputs := cel.OptionalVariableBindings{Authorizer: nobody{}}
	run := func(part cel.ConditionEvaluator, budget int64) []cel.EvaluationResult {
		results, left, err := part.ForInput(t.Context(), &s.VersionedAttributes, request, inputs, s.namespace(), budget)
		if err != nil {
			t.Fatalf("%s: %v", c.name, err)
		}
		for _, r := range results {
			if r.Error != nil {
				t.Errorf("%s: %v", c.name, r.Error)
			}
		}
		cost += budget - left
		return results
	}
	for _, r := range run(c.conditions, celconfig.RuntimeCELCostBudgetMatchConditions) {
		if r.EvalResult == nil || r.EvalResult.Value() != true {
			return cost
		}
	}
	run(c.validations, celconfig.RuntimeCELCostBudget)
	run(c.messages, celconfig.RuntimeCELCostBudget)
	return cost
}

// nobody may do anything.
type nobody struct{}

func (nobody) Authorize(context.Context, authorizer.Attributes) (authorizer.Decision, string, error) {
	return authorizer.DecisionNoOpinion, "", nil
}

// sent is a request as the API server shows it to policies.
type sent struct{ admission.VersionedAttributes }

// namespace is that of every request.
func (s *sent) namespace() *corev1.Namespace {
	return &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: team}}
}

// send returns the request that creates an object, or changes it where old is given.
func send(object, old runtime.Object, kind schema.GroupVersionKind, resource, subresource string) *sent {
	operation := admission.Create
	if old != nil {
		operation = admission.Update
	}
	who := &user.DefaultInfo{Name: string(jane)}
	attributes := admission.NewAttributesRecord(object, old, kind, team, "name", kind.GroupVersion().WithResource(resource), subresource,
		operation, nil, false, who)
	s := &sent{admission.VersionedAttributes{Attributes: attributes, VersionedKind: kind, VersionedObject: admission.NewLazyObject(object)}}
	if old != nil {
		s.VersionedOldObject = admission.NewLazyObject(old)
	}
	return s
}

// mostCost bounds what a policy may cost in the API server's units, of which it grants 10,000,000 to a policy and takes about a
// second for: 50 ms are 500,000. Requests at the policies' own bounds cost the most. Beyond them the cost may not grow with the
// object: the work that the API server does not count, the bookkeeping of CEL itself, grows with the square of what is looked
// through.
const mostCost = 500_000

// concerns reports whether the constraints of a policy match a request.
func concerns(policy *admissionv1.ValidatingAdmissionPolicy, s *sent) bool {
	name := s.GetResource().Resource
	if s.GetSubresource() != "" {
		name += "/" + s.GetSubresource()
	}
	return slices.ContainsFunc(policy.Spec.MatchConstraints.ResourceRules, func(r admissionv1.NamedRuleWithOperations) bool {
		return slices.Contains(r.APIGroups, s.GetResource().Group) && slices.Contains(r.Resources, name) &&
			slices.Contains(r.Operations, admissionv1.OperationType(s.GetOperation()))
	})
}

// The cost of a policy has a bound that no request exceeds, by the API server's own count. The test looks at each shape from a
// small size to the largest, and around the policies' own bounds.
func TestCostOfPoliciesIsBounded(t *testing.T) {
	for _, policy := range allPolicies(t) {
		c := compile(t, policy, "1.37")
		for _, shape := range shapes() {
			sizes := []int{1, 128, 256, 512, 1000, 1024, 4096, shape.most}
			worst, at := int64(0), 0
			for _, n := range sizes {
				s := shape.of(min(n, shape.most))
				if !concerns(policy, s) {
					continue
				}
				if cost := c.cost(t, s); cost > worst {
					worst, at = cost, n
				}
			}
			if worst > mostCost {
				t.Errorf("%s, %s: cost %d at %d, want at most %d", policy.Name, shape.name, worst, at, mostCost)
			}
		}
	}
}
