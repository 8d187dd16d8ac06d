package deploy

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/utils/ptr"

	"github.com/tandem-gpu/tandem/internal/sandbox"
	"github.com/tandem-gpu/tandem/test/must"
)

// overlay renders deploy/ with a component, as the overlay of an administrator does.
func overlay(t *testing.T, component string) []runtime.Object {
	t.Helper()
	return decode(t, build(t, "components: [DEPLOY/components/"+component+"]\n"))
}

// build renders an overlay of deploy/ with these lines in its kustomization, in which DEPLOY stands for that folder.
func build(t *testing.T, lines string) []byte {
	t.Helper()
	root, err := sandbox.Root()
	must.OK(t, err)
	folder, err := filepath.EvalSymlinks(t.TempDir())
	must.OK(t, err)
	deploy, err := filepath.Rel(folder, filepath.Join(root, "deploy"))
	must.OK(t, err)
	kustomization := strings.ReplaceAll("resources: [DEPLOY]\n"+lines, "DEPLOY", deploy)
	must.OK(t, os.WriteFile(filepath.Join(folder, "kustomization.yaml"), []byte(kustomization), 0o600))
	raw, err := render(folder)
	must.OK(t, err)
	return raw
}

// The component that lets agents read pods from the API server adds that permission and nothing else.
func TestPodsFromAPIServerComponent(t *testing.T) {
	plain, changed := manifests(t), overlay(t, "pods-from-apiserver")
	if len(changed) != len(plain)+2 {
		t.Fatalf("%d objects became %d, want 2 more", len(plain), len(changed))
	}
	var rules []rbacv1.PolicyRule
	var subjects []rbacv1.Subject
	for _, o := range changed {
		switch o := o.(type) {
		case *rbacv1.ClusterRole:
			if o.Name == "tandem-agent-pods" {
				rules = o.Rules
			}
		case *rbacv1.ClusterRoleBinding:
			if o.Name == "tandem-agent-pods" && o.RoleRef.Name == o.Name {
				subjects = o.Subjects
			}
		}
	}
	if diff := cmp.Diff([]rbacv1.PolicyRule{{APIGroups: []string{""}, Resources: []string{"pods"}, Verbs: []string{"list", "watch"}}}, rules); diff != "" {
		t.Errorf("rules (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff([]rbacv1.Subject{{Kind: "ServiceAccount", Name: "tandem-agent", Namespace: "tandem-system"}}, subjects); diff != "" {
		t.Errorf("subjects (-want +got):\n%s", diff)
	}
}

// A component changes what it says and nothing else, and the API server takes the result.
func TestComponents(t *testing.T) {
	gpuAdmin := func(c *corev1.Container, _ *corev1.PodSpec) {
		c.SecurityContext.Capabilities.Add = []corev1.Capability{"SYS_ADMIN"}
		c.Env = append(c.Env, corev1.EnvVar{Name: "NVIDIA_MIG_MONITOR_DEVICES", Value: "all"})
	}
	deviceMounts := func(c *corev1.Container, s *corev1.PodSpec) {
		for i := range c.Env {
			if c.Env[i].Name == "NVIDIA_VISIBLE_DEVICES" {
				c.Env[i].Value = "/var/run/nvidia-container-devices"
			}
		}
		c.VolumeMounts = append(c.VolumeMounts, corev1.VolumeMount{Name: "all-devices", MountPath: "/var/run/nvidia-container-devices/all"})
		null := corev1.Volume{Name: "all-devices"}
		null.HostPath = &corev1.HostPathVolumeSource{Path: "/dev/null", Type: ptr.To(corev1.HostPathCharDev)}
		s.Volumes = append(s.Volumes, null)
	}
	tests := map[string]struct {
		sets   []string
		change func(*corev1.Container, *corev1.PodSpec)
	}{
		"gpu-admin": {[]string{"tandem-agent"}, gpuAdmin},
		"shm-sweep": {[]string{"tandem-agent"}, func(c *corev1.Container, _ *corev1.PodSpec) {
			c.SecurityContext.Capabilities.Add = []corev1.Capability{"DAC_OVERRIDE", "LEASE"}
		}},
		"gpu-admin, DEPLOY/components/shm-sweep": {[]string{"tandem-agent"}, func(c *corev1.Container, s *corev1.PodSpec) {
			gpuAdmin(c, s)
			c.SecurityContext.Capabilities.Add = append(c.SecurityContext.Capabilities.Add, "DAC_OVERRIDE", "LEASE")
		}},
		"device-mounts": {[]string{"tandem-agent", "tandem-mps"}, deviceMounts},
	}
	// The order of a list that is merged by name is kustomize's.
	byName := cmp.Options{
		cmpopts.SortSlices(func(a, b corev1.Volume) bool { return a.Name < b.Name }),
		cmpopts.SortSlices(func(a, b corev1.EnvVar) bool { return a.Name < b.Name }),
	}
	for component, test := range tests {
		t.Run(component, func(t *testing.T) {
			plain, changed := manifests(t), overlay(t, component)
			if len(plain) != len(changed) {
				t.Fatalf("%d objects became %d", len(plain), len(changed))
			}
			for i := range plain {
				if set, ok := plain[i].(*appsv1.DaemonSet); ok && slices.Contains(test.sets, set.Name) {
					test.change(&set.Spec.Template.Spec.Containers[0], &set.Spec.Template.Spec)
					_, err := client(t.Context(), t, admin).AppsV1().DaemonSets(systemNamespace).
						Update(t.Context(), changed[i].(*appsv1.DaemonSet), metav1.UpdateOptions{DryRun: []string{metav1.DryRunAll}})
					if err != nil {
						t.Error(err)
					}
				}
				if diff := cmp.Diff(plain[i], changed[i], byName); diff != "" {
					t.Errorf("want (-), have (+):\n%s", diff)
				}
			}
		})
	}
}

// The component for Kueue adds the feature and its role, and lets the controller write nothing but the answers.
func TestPlaceableComponent(t *testing.T) {
	plain, changed := manifests(t), overlay(t, "placeable")
	if len(changed) != len(plain)+2 {
		t.Fatalf("%d objects became %d, want 2 more", len(plain), len(changed))
	}
	writes, features := []string{}, []string{}
	for _, o := range changed {
		switch o := o.(type) {
		case *rbacv1.ClusterRole:
			for _, rule := range o.Rules {
				if o.Name == "tandem-controller-placeable" && !slices.Contains(rule.Verbs, "list") {
					writes = append(writes, rule.Resources...)
				}
			}
		case *appsv1.Deployment:
			for _, arg := range o.Spec.Template.Spec.Containers[0].Args {
				if name, is := strings.CutPrefix(arg, "--features="); is && o.Name == "tandem-controller" {
					features = append(features, name)
				}
			}
		}
	}
	if diff := cmp.Diff([]string{"workloads/status", "admissionchecks/status"}, writes); diff != "" {
		t.Errorf("resources that it writes (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff([]string{"elastic,inference,notebooks", "placeable"}, features); diff != "" {
		t.Errorf("features (-want +got):\n%s", diff)
	}
}

// The component that has the controller write the memory of devices into Nodes adds that right, its binding and the flag, and nothing else.
func TestNodeMemoryComponent(t *testing.T) {
	plain, changed := manifests(t), overlay(t, "node-memory")
	if len(changed) != len(plain)+2 {
		t.Fatalf("%d objects became %d, want 2 more", len(plain), len(changed))
	}
	var rules []rbacv1.PolicyRule
	var subjects []rbacv1.Subject
	var args []string
	for _, o := range changed {
		switch o := o.(type) {
		case *rbacv1.ClusterRole:
			if o.Name == "tandem-controller-node-memory" {
				rules = o.Rules
			}
		case *rbacv1.ClusterRoleBinding:
			if o.Name == "tandem-controller-node-memory" && o.RoleRef.Name == o.Name {
				subjects = o.Subjects
			}
		case *appsv1.Deployment:
			if o.Name == "tandem-controller" {
				args = o.Spec.Template.Spec.Containers[0].Args
			}
		}
	}
	if diff := cmp.Diff([]rbacv1.PolicyRule{{APIGroups: []string{""}, Resources: []string{"nodes/status"}, Verbs: []string{"patch"}}}, rules); diff != "" {
		t.Errorf("rules (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff([]rbacv1.Subject{{Kind: "ServiceAccount", Name: "tandem-controller", Namespace: "tandem-system"}}, subjects); diff != "" {
		t.Errorf("subjects (-want +got):\n%s", diff)
	}
	if !slices.Contains(args, "--features=elastic,inference,notebooks") || args[len(args)-1] != "--features=node-memory" {
		t.Errorf("the arguments of the controller are %q", args)
	}
}
