package deploy

import (
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	rbacv1 "k8s.io/api/rbac/v1"

	"github.com/tandem-gpu/tandem/internal/controller/sizefield"
)

// resizeRoles returns the roles that the table of kinds names.
func resizeRoles() (names []string) {
	for _, k := range sizefield.Kinds() {
		names = append(names, k.Role)
	}
	slices.Sort(names)
	return slices.Compact(names)
}

// Each kind that the controller resizes by its fields has its rights in the role that the condition names, and no role has more.
func TestRolesOfKinds(t *testing.T) {
	want := map[string][]string{}
	for _, k := range sizefield.Kinds() {
		own := k.Resource + "." + k.Group
		rights := []string{"get " + own, "patch " + own}
		if k.Scale {
			rights[1] = "patch " + own + "/scale"
		}
		want[k.Role] = append(want[k.Role], rights...)
	}
	got := map[string][]string{}
	for _, object := range manifests(t) {
		role, ok := object.(*rbacv1.ClusterRole)
		if !ok || want[role.Name] == nil {
			continue
		}
		for _, rule := range role.Rules {
			for _, verb := range rule.Verbs {
				for _, resource := range rule.Resources {
					got[role.Name] = append(got[role.Name], verb+" "+qualified(rule.APIGroups[0], resource))
				}
			}
		}
	}
	for _, rights := range []map[string][]string{want, got} {
		for _, list := range rights {
			slices.Sort(list)
		}
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("rights of the roles (-the table of kinds +deploy/controller/rbac.yaml):\n%s", diff)
	}
}
