package deploy

import (
	"slices"
	"strings"
	"testing"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apiserver/pkg/admission/plugin/policy/validating"
	"k8s.io/apiserver/pkg/cel/openapi/resolver"
	"k8s.io/client-go/discovery/cached/memory"
	"k8s.io/client-go/restmapper"

	"github.com/tandem-gpu/tandem/pkg/api/v1alpha1"
)

// Every policy of deploy/ is bound, denies, and fails closed, but the one that only warns: it fails open.
func TestPoliciesFailClosed(t *testing.T) {
	warns := []string{"tandem-bare-keys"}
	var policies, bound []string
	for _, object := range manifests(t) {
		switch o := object.(type) {
		case *admissionv1.ValidatingAdmissionPolicy:
			policies = append(policies, o.Name)
			want := admissionv1.Fail
			if slices.Contains(warns, o.Name) {
				want = admissionv1.Ignore
			}
			if o.Spec.FailurePolicy == nil || *o.Spec.FailurePolicy != want {
				t.Errorf("%s: failurePolicy %v, want %s", o.Name, o.Spec.FailurePolicy, want)
			}
		case *admissionv1.ValidatingAdmissionPolicyBinding:
			bound = append(bound, o.Spec.PolicyName)
			want := []admissionv1.ValidationAction{admissionv1.Deny}
			if slices.Contains(warns, o.Spec.PolicyName) {
				want = []admissionv1.ValidationAction{admissionv1.Warn}
			}
			if !slices.Equal(o.Spec.ValidationActions, want) {
				t.Errorf("%s: validationActions %v, want %v", o.Name, o.Spec.ValidationActions, want)
			}
		}
	}
	slices.Sort(policies)
	slices.Sort(bound)
	if len(policies) < 7 || !slices.Equal(policies, bound) {
		t.Errorf("policies %v, bound %v", policies, bound)
	}
}

// The API server compiles expressions against no type, so that a misspelt field would only show when it is read: then
// every pod would be refused, or none. This checks them against the types that the API server serves. Containers
// are dynamic in the expressions, and the checker has no type for amounts of resources, on which the matchConditions
// depend: those are left to the attacks.
func TestPoliciesFitTheTypes(t *testing.T) {
	c := client(t.Context(), t, admin)
	checker := validating.TypeChecker{
		SchemaResolver: &resolver.ClientDiscoveryResolver{Discovery: c.Discovery()},
		RestMapper:     restmapper.NewDeferredDiscoveryRESTMapper(memory.NewMemCacheClient(c.Discovery())),
	}
	policies, err := c.AdmissionregistrationV1().ValidatingAdmissionPolicies().List(t.Context(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	for i := range policies.Items {
		policy := &policies.Items[i]
		pinTypes(policy)
		for _, warning := range checker.Check(policy) {
			t.Errorf("%s: %s: %s", policy.Name, warning.FieldRef, warning.Warning)
		}
		// Check looks at validations alone, in which a variable that fits no type is one of any type.
		types := checker.CreateContext(policy)
		for _, v := range policy.Spec.Variables {
			if found := checker.CheckExpression(types, v.Expression); len(found) > 0 {
				t.Errorf("%s: variable %s: %v", policy.Name, v.Name, found)
			}
		}
		// A field that no type has must be found, else nothing was checked.
		policy.Spec.Validations = []admissionv1.Validation{{Expression: "object.metadata.nosuchfield == ''"}}
		if len(checker.Check(policy)) == 0 {
			t.Errorf("%s: no type is known for what it matches", policy.Name)
		}
	}
}

// pinTypes names one version and no subresource, since the checker passes over all rules with wildcards and
// subresources.
func pinTypes(policy *admissionv1.ValidatingAdmissionPolicy) {
	for i := range policy.Spec.MatchConstraints.ResourceRules {
		rule := &policy.Spec.MatchConstraints.ResourceRules[i]
		rule.APIVersions = []string{"v1"}
		if rule.APIGroups[0] == v1alpha1.Domain {
			rule.APIVersions = []string{v1alpha1.GroupVersion.Version}
		}
		for j, resource := range rule.Resources {
			if resource == "pods/binding" {
				resource = "bindings"
			}
			rule.Resources[j], _, _ = strings.Cut(resource, "/")
		}
	}
}
