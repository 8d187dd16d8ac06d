package deploy

import (
	"slices"
	"testing"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apiserver/pkg/admission/plugin/policy/validating"
	"k8s.io/apiserver/pkg/cel/openapi/resolver"
	"k8s.io/client-go/discovery/cached/memory"
	"k8s.io/client-go/restmapper"
)

// Every policy of deploy/ is bound, denies, and fails closed.
func TestPoliciesFailClosed(t *testing.T) {
	var policies, bound []string
	for _, object := range manifests(t) {
		switch o := object.(type) {
		case *admissionv1.ValidatingAdmissionPolicy:
			policies = append(policies, o.Name)
			if o.Spec.FailurePolicy == nil || *o.Spec.FailurePolicy != admissionv1.Fail {
				t.Errorf("%s: failurePolicy %v", o.Name, o.Spec.FailurePolicy)
			}
		case *admissionv1.ValidatingAdmissionPolicyBinding:
			bound = append(bound, o.Spec.PolicyName)
			if !slices.Equal(o.Spec.ValidationActions, []admissionv1.ValidationAction{admissionv1.Deny}) {
				t.Errorf("%s: validationActions %v", o.Name, o.Spec.ValidationActions)
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
// every pod would be refused. This checks them against the types that the API server serves.
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
		for _, warning := range checker.Check(&policies.Items[i]) {
			t.Errorf("%s: %s: %s", policies.Items[i].Name, warning.FieldRef, warning.Warning)
		}
	}
}
