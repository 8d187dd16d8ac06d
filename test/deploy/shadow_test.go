package deploy

import (
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
)

// TestShadowOnlyReads: the account of shadow mode may read, and ask who asks it for a report; no role gives it another right. Its pod is
// confined, and deploy/ itself does not run it.
func TestShadowOnlyReads(t *testing.T) {
	raw, err := render("deploy/shadow")
	if err != nil {
		t.Fatal(err)
	}
	questions := [][]string{{"tokenreviews"}, {"subjectaccessreviews"}}
	var asked [][]string
	bound, confined := []string{}, false
	for _, object := range decode(t, raw) {
		switch o := object.(type) {
		case *rbacv1.ClusterRole:
			for _, rule := range o.Rules {
				if slices.Equal(rule.Verbs, []string{"create"}) {
					asked = append(asked, rule.Resources)
					continue
				}
				for _, verb := range rule.Verbs {
					if !slices.Contains([]string{"get", "list", "watch"}, verb) {
						t.Errorf("%s may %s %v", o.Name, verb, rule.Resources)
					}
				}
			}
		case *rbacv1.ClusterRoleBinding:
			bound = append(bound, o.RoleRef.Name)
		case *rbacv1.Role, *rbacv1.RoleBinding:
			t.Errorf("%T gives rights in a namespace", o)
		case *appsv1.Deployment:
			c := o.Spec.Template.Spec.Containers[0]
			s, p := c.SecurityContext, o.Spec.Template.Spec.SecurityContext
			confined = *s.ReadOnlyRootFilesystem && !*s.AllowPrivilegeEscalation && slices.Equal(s.Capabilities.Drop, []corev1.Capability{"ALL"}) &&
				*p.RunAsNonRoot && p.SeccompProfile.Type == corev1.SeccompProfileTypeRuntimeDefault && c.LivenessProbe != nil && c.ReadinessProbe != nil
		}
	}
	if diff := cmp.Diff(questions, asked); diff != "" {
		t.Errorf("what it may create (-want +got):\n%s", diff)
	}
	if !slices.Equal(bound, []string{"tandem-shadow"}) || !confined {
		t.Errorf("roles %v are bound, the container is confined: %v", bound, confined)
	}
}
