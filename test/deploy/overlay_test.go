package deploy

import (
	"context"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/tandem-gpu/tandem/internal/sandbox"
	"github.com/tandem-gpu/tandem/pkg/api/v1alpha1"
	testcluster "github.com/tandem-gpu/tandem/test/cluster"
	"github.com/tandem-gpu/tandem/test/must"
)

// elsewhere is the namespace of an overlay.
const elsewhere = "gpu-system"

// overlays are what install.md tells administrators to write, each with another namespace.
func overlays(t *testing.T) map[string]string {
	t.Helper()
	root, err := sandbox.Root()
	must.OK(t, err)
	components, err := os.ReadDir(filepath.Join(root, "deploy", "components"))
	must.OK(t, err)
	all := map[string]string{"images": "images:\n- {name: tandem-scheduler, newName: registry.example.com/tandem-scheduler, newTag: v1}\n"}
	var every []string
	for _, c := range components {
		every = append(every, "DEPLOY/components/"+c.Name())
		all["component "+c.Name()] = "components: [DEPLOY/components/" + c.Name() + "]\n"
	}
	all["all components"] = "components: [" + strings.Join(every, ", ") + "]\n"
	for i, patch := range patches(t, filepath.Join(root, "docs", "guides")) {
		all["patch "+string(rune('1'+i))] = patch
	}
	return all
}

// patches returns the examples of the guides that start with "patches:".
func patches(t *testing.T, guides string) []string {
	t.Helper()
	var found []string
	for _, name := range []string{"install.md", "operating.md", "security.md"} {
		text, err := os.ReadFile(filepath.Join(guides, name))
		must.OK(t, err)
		for _, block := range regexp.MustCompile("(?s)```\n(patches:\n.*?)```").FindAllStringSubmatch(string(text), -1) {
			found = append(found, block[1])
		}
	}
	if len(found) < 6 {
		t.Fatalf("the guides have %d patches, want those of the driver, of SELinux, of requests, of flags, of host paths and of promises", len(found))
	}
	return found
}

// leaseFlags are the flags that say in which namespace a Deployment's lease is. The activator, whose replicas all work, has none.
var leaseFlags = map[string]string{"tandem-scheduler": "--leader-elect-resource-namespace", "tandem-controller": "--leader-elect-namespace", "tandem-activator": ""}

// Nothing of an overlay stays in the namespace that it left.
func TestOverlaysLeaveNothingBehind(t *testing.T) {
	for name, lines := range overlays(t) {
		for _, object := range decode(t, build(t, "namespace: "+elsewhere+"\n"+lines)) {
			m, err := meta.Accessor(object)
			must.OK(t, err)
			if n := m.GetNamespace(); n != "" && n != elsewhere {
				t.Errorf("%s: %T %s is in %s", name, object, m.GetName(), n)
			}
			if n, ok := object.(*corev1.Namespace); ok && n.Name != elsewhere {
				t.Errorf("%s: namespace %s", name, n.Name)
			}
			if b, ok := object.(*rbacv1.ClusterRoleBinding); ok && b.Subjects[0].Namespace != elsewhere {
				t.Errorf("%s: %s binds an account of %s", name, b.Name, b.Subjects[0].Namespace)
			}
			if d, ok := object.(*appsv1.Deployment); ok {
				if flag, known := leaseFlags[d.Name]; !known || flag != "" && !slices.Contains(d.Spec.Template.Spec.Containers[0].Args, flag+"=$(NAMESPACE)") {
					t.Errorf("%s: %s takes its lease in another namespace than its own", name, d.Name)
				}
			}
		}
	}
}

// Each overlay is applied to an API server, and the policies hold for the accounts where they are now.
func TestOverlaysHoldInAnotherNamespace(t *testing.T) {
	plane := sandbox.StartForTest(t, sandbox.Options{Authorization: "Node,RBAC", APIServerArgs: []string{"--enable-admission-plugins=NodeRestriction"}})
	modern := serves(t, clientFor(t, plane.Admin()).Discovery())
	for name, lines := range overlays(t) {
		if !modern && strings.Contains(lines, schedulerName) {
			continue // TestSchedulerName has such servers refuse it
		}
		if err := plane.Apply(t.Context(), build(t, "namespace: "+elsewhere+"\n"+lines)); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
	}
	must.OK(t, plane.Apply(t.Context(), build(t, "namespace: "+elsewhere+"\ncomponents: [DEPLOY/components/sane-requests]\n")))
	c := clientFor(t, plane.Admin())
	settle(t, c)
	t.Run("the scheduler binds", func(t *testing.T) { bindsElsewhere(t, plane, c) })
	t.Run("agents keep to their nodes", func(t *testing.T) { agentsElsewhere(t, plane) })
	t.Run("absurd requests", func(t *testing.T) { absurdRequests(t, c) })
}

// settle creates the nodes and the namespace of the users, and waits until the policies are enforced.
func settle(t *testing.T, c kubernetes.Interface) {
	t.Helper()
	for _, node := range []string{"n1", "n2"} {
		if _, err := c.CoreV1().Nodes().Create(t.Context(), &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: node}}, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: team}}
	if _, err := c.CoreV1().Namespaces().Create(t.Context(), namespace, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	must.OK(t, testcluster.AwaitPolicies(t.Context(), c))
}

// bindsElsewhere: the scheduler's account in the overlay's namespace brings assignments, one of the same name that a tenant made
// does not.
func bindsElsewhere(t *testing.T, plane *sandbox.ControlPlane, c kubernetes.Interface) {
	p, err := c.CoreV1().Pods(team).Create(t.Context(), pod("bound"), metav1.CreateOptions{})
	must.OK(t, err)
	account := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: string(scheduler)}}
	if _, err := c.CoreV1().ServiceAccounts(team).Create(t.Context(), account, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	role := &rbacv1.Role{ObjectMeta: metav1.ObjectMeta{Name: "all"}, Rules: []rbacv1.PolicyRule{{APIGroups: []string{"*"}, Resources: []string{"*"}, Verbs: []string{"*"}}}}
	if _, err := c.RbacV1().Roles(team).Create(t.Context(), role, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	granted := &rbacv1.RoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: "all"}, RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: "all"},
		Subjects: []rbacv1.Subject{{Kind: "ServiceAccount", Name: string(scheduler), Namespace: team}},
	}
	if _, err := c.RbacV1().RoleBindings(team).Create(t.Context(), granted, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	impostor := clientFor(t, accountOf(t, plane, team, string(scheduler), ""))
	await(t, "the impostor may bind", func(ctx context.Context) (bool, error) {
		err := impostor.CoreV1().Pods(team).Bind(ctx, binding(p, genuine), metav1.CreateOptions{})
		return err != nil && !strings.Contains(err.Error(), byRBAC), nil
	})
	wantRefusal(t, impostor.CoreV1().Pods(team).Bind(t.Context(), binding(p, genuine), metav1.CreateOptions{}), byBindingPolicy)
	err = clientFor(t, accountOf(t, plane, elsewhere, string(scheduler), "")).CoreV1().Pods(team).Bind(t.Context(), binding(p, genuine), metav1.CreateOptions{})
	if err != nil {
		t.Error(err)
	}
}

// agentsElsewhere: the agent's token of n1 writes the GPUNode n1 alone, and a token of no node none.
func agentsElsewhere(t *testing.T, plane *sandbox.ControlPlane) {
	create := func(node, name string) error {
		c, err := dynamic.NewForConfig(accountOf(t, plane, elsewhere, string(agent), node))
		must.OK(t, err)
		_, err = c.Resource(v1alpha1.GroupVersion.WithResource("gpunodes")).Create(t.Context(), unstruct(t, gpuNode(name)), metav1.CreateOptions{})
		return err
	}
	wantRefusal(t, create("n1", "n2"), "ValidatingAdmissionPolicy 'tandem-gpunodes'", "the agent of node n1")
	wantRefusal(t, create("", "n1"), "ValidatingAdmissionPolicy 'tandem-gpunodes'", "bound to no node")
	if err := create("n1", "n1"); err != nil {
		t.Error(err)
	}
}

// accountOf returns the configuration of a service account, bound to a node where one is named.
func accountOf(t *testing.T, plane *sandbox.ControlPlane, namespace, name, node string) *rest.Config {
	t.Helper()
	var path string
	var err error
	if node == "" {
		path, err = plane.ServiceAccount(t.Context(), namespace, name)
	} else {
		path, err = plane.ServiceAccountOnNode(t.Context(), namespace, name, node)
	}
	must.OK(t, err)
	config, err := clientcmd.BuildConfigFromFlags("", path)
	must.OK(t, err)
	return config
}

// absurdRequests: the component refuses amounts that no node has in any pod, wherever they stand and however they are written.
func absurdRequests(t *testing.T, c kubernetes.Interface) {
	list := func(name corev1.ResourceName, amount string) corev1.ResourceList {
		return corev1.ResourceList{name: resource.MustParse(amount)}
	}
	both := func(name corev1.ResourceName, amount string) corev1.ResourceRequirements {
		return corev1.ResourceRequirements{Requests: list(name, amount), Limits: list(name, amount)}
	}
	for name, test := range map[string]struct {
		change func(*corev1.PodSpec)
		want   string // "" where it is legal
	}{
		"2^63 bytes":        {func(s *corev1.PodSpec) { s.Containers[0].Resources.Requests = list("memory", "9223372036854775808") }, "spec.containers[0].resources.requests.memory"},
		"8Ei":               {func(s *corev1.PodSpec) { s.Containers[0].Resources.Limits = list("memory", "8Ei") }, "spec.containers[0].resources.limits.memory"},
		"a huge exponent":   {func(s *corev1.PodSpec) { s.Containers[0].Resources.Requests = list("cpu", "1e3000000") }, "spec.containers[0].resources.requests.cpu 1e3000000"},
		"many digits":       {func(s *corev1.PodSpec) { s.Containers[0].Resources.Requests = list("cpu", strings.Repeat("9", 1000)) }, "requests.cpu of 1000 characters"},
		"CPU in thousands":  {func(s *corev1.PodSpec) { s.Containers[0].Resources.Requests = list("cpu", "11k") }, "requests.cpu 11k"},
		"storage":           {func(s *corev1.PodSpec) { s.Containers[0].Resources.Requests = list("ephemeral-storage", "2Pi") }, "requests.ephemeral-storage"},
		"an init container": {func(s *corev1.PodSpec) { s.InitContainers = []corev1.Container{container("init", "memory", "65Ti")} }, "spec.initContainers[0].resources.limits.memory"},
		"the whole pod":     {func(s *corev1.PodSpec) { s.Resources = &corev1.ResourceRequirements{Requests: list("memory", "1Ei")} }, "spec.resources.requests.memory"},
		"another resource":  {func(s *corev1.PodSpec) { s.Containers[0].Resources = both("example.com/x", "1e3000000") }, "spec.containers[0].resources.limits.example.com/x 1e3000000"},
		"2^63 of another":   {func(s *corev1.PodSpec) { s.Containers[0].Resources = both("example.com/x", "9223372036854775808") }, "requests.example.com/x"},
		"hugepages": {func(s *corev1.PodSpec) {
			s.Containers[0].Resources = both("hugepages-2Mi", "1e3000000")
			s.Containers[0].Resources.Requests[corev1.ResourceCPU] = resource.MustParse("1")
		}, "spec.containers[0].resources.limits.hugepages-2Mi"},
		"a resource of many digits": {func(s *corev1.PodSpec) { s.Containers[0].Resources = both("example.com/x", strings.Repeat("9", 1000)) }, "limits.example.com/x of 1000 characters"},
		"too many resources": {func(s *corev1.PodSpec) {
			s.Containers = withContainers(20, func(_ int, c *corev1.Container) { c.Resources = others(26, "1") }).Spec.Containers
		}, "512 requests and limits in all"},
		"large and legal": {func(s *corev1.PodSpec) {
			s.Containers[0].Resources.Requests = corev1.ResourceList{"cpu": resource.MustParse("1920"), "memory": resource.MustParse("24Ti"), "ephemeral-storage": resource.MustParse("200Ti")}
		}, ""},
		"small":       {func(s *corev1.PodSpec) { s.Containers[0].Resources.Requests = list("cpu", "100m") }, ""},
		"fractions":   {func(s *corev1.PodSpec) { s.Containers[0].Resources.Requests = list("memory", "1.5Gi") }, ""},
		"an exponent": {func(s *corev1.PodSpec) { s.Containers[0].Resources.Requests = list("memory", "1e9") }, ""},
		"others":      {func(s *corev1.PodSpec) { s.Containers[0].Resources.Limits = list("example.com/x", "1P") }, ""},
		"huge pages": {func(s *corev1.PodSpec) {
			s.Containers[0].Resources = both("hugepages-2Mi", "2Gi")
			s.Containers[0].Resources.Requests[corev1.ResourceCPU] = resource.MustParse("1")
		}, ""},
	} {
		for _, node := range []string{"", "n1"} {
			p := plainPod()
			p.Spec.NodeName = node
			test.change(&p.Spec)
			_, err := c.CoreV1().Pods(team).Create(t.Context(), p, dryRun)
			if test.want != "" {
				wantRefusal(t, err, "ValidatingAdmissionPolicy 'tandem-sane-requests'", test.want)
			} else if err != nil {
				t.Errorf("%s: %v", name, err)
			}
		}
	}
}
