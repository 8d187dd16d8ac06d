package checks

import (
	"fmt"
	"slices"

	admission "k8s.io/api/admissionregistration/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/tandem-gpu/tandem/pkg/api/v1alpha1"
)

// policyNames are the policies of deploy/policies. bareKeys guards nothing: it warns, and fails open.
var policyNames = []string{
	"tandem-account-evictions", "tandem-account-pods", "tandem-account-scale", "tandem-account-status", "tandem-account-workloads",
	"tandem-assignment-bindings", "tandem-assignment-pods", bareKeys, "tandem-checkpoint", "tandem-deviceclasses",
	"tandem-elastic-rate", "tandem-elastictargets", "tandem-gpunodes", "tandem-inferencefleets", "tandem-keys", "tandem-latency",
	"tandem-leaving", "tandem-notebooks", "tandem-pods", "tandem-pods-annotations", hostPolicy, "tandem-progress", "tandem-slowdown",
	"tandem-workloadprofiles",
}

const (
	bareKeys   = "tandem-bare-keys"
	hostPolicy = "tandem-pods-host"
	// hostAccess is the label of namespaces that hostPolicy leaves out, where its value is allowed.
	hostAccess, allowed = v1alpha1.Domain + "/host-access", "allowed"
	// applyPolicies puts the policies back as they were.
	applyPolicies = "kubectl apply --server-side --force-conflicts -k deploy/policies in a clone of the release, or your overlay of it"
)

// notExempt is what the binding of hostPolicy selects.
var notExempt = metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{{Key: hostAccess, Operator: metav1.LabelSelectorOpNotIn, Values: []string{allowed}}}}

func (f *Facts) policy(name string) *admission.ValidatingAdmissionPolicy {
	for i := range f.Policies {
		if f.Policies[i].Name == name {
			return &f.Policies[i]
		}
	}
	return nil
}

// bindings returns the bindings of a policy.
func (f *Facts) bindings(policy string) []*admission.ValidatingAdmissionPolicyBinding {
	var all []*admission.ValidatingAdmissionPolicyBinding
	for i := range f.Bindings {
		if f.Bindings[i].Spec.PolicyName == policy {
			all = append(all, &f.Bindings[i])
		}
	}
	return all
}

func policyMissing(f *Facts) []hit {
	var hits []hit
	for _, name := range policyNames {
		if f.policy(name) == nil {
			hits = append(hits, hit{"ValidatingAdmissionPolicy/" + name, "the policy " + name + " does not exist", applyPolicies})
		}
	}
	if len(hits) == len(policyNames) {
		return []hit{{"ValidatingAdmissionPolicy/*", fmt.Sprintf("none of the %d policies of deploy/policies exists", len(policyNames)), applyPolicies}}
	}
	return hits
}

// action returns what the binding of a policy in deploy/policies does.
func action(policy string) admission.ValidationAction {
	if policy == bareKeys {
		return admission.Warn
	}
	return admission.Deny
}

// enforcing returns the bindings by which a policy does what it does in deploy/policies.
func (f *Facts) enforcing(policy string) []*admission.ValidatingAdmissionPolicyBinding {
	return slices.DeleteFunc(f.bindings(policy), func(b *admission.ValidatingAdmissionPolicyBinding) bool {
		return !slices.Contains(b.Spec.ValidationActions, action(policy))
	})
}

func policyNotEnforced(f *Facts) []hit {
	hits := make([]hit, 0, 1)
	for _, name := range policyNames {
		p := f.policy(name)
		if p != nil && len(p.Spec.Validations) == 0 {
			hits = append(hits, hit{"ValidatingAdmissionPolicy/" + name, "the policy has no validations", applyPolicies})
			continue
		}
		if p == nil || len(f.enforcing(name)) > 0 {
			continue
		}
		what := "the policy has no binding"
		if bound := f.bindings(name); len(bound) > 0 {
			what = fmt.Sprintf("its binding %s has the actions %v, which do not include %s", bound[0].Name, bound[0].Spec.ValidationActions, action(name))
		}
		hits = append(hits, hit{"ValidatingAdmissionPolicy/" + name, what, applyPolicies})
	}
	return hits
}

// narrow reports whether a binding leaves out requests that the one of deploy/policies looks at.
func narrow(b *admission.ValidatingAdmissionPolicyBinding) bool {
	m := b.Spec.MatchResources
	if m == nil {
		return false
	}
	if b.Spec.PolicyName == hostPolicy && m.NamespaceSelector != nil && equality.Semantic.DeepEqual(*m.NamespaceSelector, notExempt) {
		m = m.DeepCopy()
		m.NamespaceSelector = nil
	}
	selects := func(s *metav1.LabelSelector) bool { return s != nil && len(s.MatchLabels)+len(s.MatchExpressions) > 0 }
	return selects(m.NamespaceSelector) || selects(m.ObjectSelector) || len(m.ResourceRules)+len(m.ExcludeResourceRules) > 0
}

func policyNarrowed(f *Facts) []hit {
	hits := make([]hit, 0, 1)
	for _, name := range policyNames {
		bound := f.enforcing(name)
		if f.policy(name) == nil || len(bound) == 0 || slices.ContainsFunc(bound, func(b *admission.ValidatingAdmissionPolicyBinding) bool { return !narrow(b) }) {
			continue
		}
		hits = append(hits, hit{"ValidatingAdmissionPolicyBinding/" + bound[0].Name, "its matchResources leave out requests that the policy is for", "remove spec.matchResources of the binding, or " + applyPolicies})
	}
	return hits
}

func policyFailsOpen(f *Facts) []hit {
	var hits []hit
	for _, name := range policyNames {
		p := f.policy(name)
		if p != nil && name != bareKeys && p.Spec.FailurePolicy != nil && *p.Spec.FailurePolicy == admission.Ignore {
			hits = append(hits, hit{"ValidatingAdmissionPolicy/" + name, "its failurePolicy is Ignore", "set spec.failurePolicy to Fail, or " + applyPolicies})
		}
	}
	return hits
}

func namespaceExempt(f *Facts) []hit {
	var hits []hit
	for i := range f.Namespaces {
		if n := &f.Namespaces[i]; n.Labels[hostAccess] == allowed {
			hits = append(hits, hit{"Namespace/" + n.Name, fmt.Sprintf("pods with vGPUs in the namespace %s may reach the host", n.Name), fmt.Sprintf("where nobody needs it: kubectl label namespace %s %s-", n.Name, hostAccess)})
		}
	}
	return hits
}
