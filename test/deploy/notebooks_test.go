package deploy

import (
	"os"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"sigs.k8s.io/yaml"

	"github.com/tandem-gpu/tandem/internal/cluster/parking"
)

// The example opts in with legal annotations, is reached through the activator, and lets the controller read the one Secret that it names.
func TestNotebookExample(t *testing.T) {
	text, err := os.ReadFile("../../examples/notebooks/notebook.yaml")
	if err != nil {
		t.Fatal(err)
	}
	var set appsv1.StatefulSet
	var role rbacv1.Role
	var binding rbacv1.RoleBinding
	for document := range strings.SplitSeq(string(text), "\n---\n") {
		for kind, into := range map[string]any{"\nkind: StatefulSet\n": &set, "\nkind: Role\n": &role, "\nkind: RoleBinding\n": &binding} {
			if !strings.Contains(document, kind) {
				continue
			}
			if err := yaml.UnmarshalStrict([]byte(document), into); err != nil {
				t.Error(err)
			}
		}
	}
	w := parking.OfStatefulSet(&set)
	d, err := parking.Read(set.Annotations)
	if err != nil || d == nil || w.Unfit() != "" {
		t.Fatalf("%v, %q", err, w.Unfit())
	}
	container := set.Spec.Template.Spec.Containers[0]
	if d.Path != "/"+set.Namespace+"/"+set.Name || !strings.Contains(strings.Join(container.Command, " "), "base_url="+d.Path) || d.Port != int(container.Ports[0].ContainerPort) {
		t.Errorf("%+v does not match %+v", d, container)
	}
	if env := container.Env[0].ValueFrom.SecretKeyRef; env.Name != d.Secret || env.Key != d.Key || role.Rules[0].ResourceNames[0] != d.Secret {
		t.Errorf("%+v names another Secret than %+v or %+v", d, env, role.Rules)
	}
	if binding.Subjects[0].Name != string(controller) || binding.RoleRef.Name != role.Name {
		t.Errorf("the binding is %+v", binding)
	}
}
