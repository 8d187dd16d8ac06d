package deploy

import (
	"context"
	"fmt"
	"strings"
	"testing"

	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"

	"github.com/tandem-gpu/tandem/pkg/api/v1alpha1"
	"github.com/tandem-gpu/tandem/test/must"
)

func gpuNodes(t *testing.T, config *rest.Config) dynamic.ResourceInterface {
	t.Helper()
	c, err := dynamic.NewForConfig(config)
	must.OK(t, err)
	return c.Resource(v1alpha1.GPUNodes)
}

func unstruct(t *testing.T, node *v1alpha1.GPUNode) *unstructured.Unstructured {
	t.Helper()
	node.SetGroupVersionKind(v1alpha1.GroupVersion.WithKind("GPUNode"))
	object, err := runtime.DefaultUnstructuredConverter.ToUnstructured(node)
	must.OK(t, err)
	return &unstructured.Unstructured{Object: object}
}

func gpuNode(name string, devices ...v1alpha1.GPUDevice) *v1alpha1.GPUNode {
	return &v1alpha1.GPUNode{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Status:     v1alpha1.GPUNodeStatus{Devices: devices},
	}
}

func device(id string) v1alpha1.GPUDevice {
	return v1alpha1.GPUDevice{
		ID: id, Model: "NVIDIA-A100-SXM4-40GB", Memory: resource.MustParse("40Gi"), Slots: 10,
		ComputeCapability: "8.0", Health: v1alpha1.Healthy, Enforcement: v1alpha1.EnforcementCooperative,
	}
}

// createGPUNode stores a GPUNode without status as an administrator.
func createGPUNode(t *testing.T, name string) *unstructured.Unstructured {
	t.Helper()
	nodes := gpuNodes(t, cluster.Admin())
	stored, err := nodes.Create(t.Context(), unstruct(t, gpuNode(name)), metav1.CreateOptions{})
	must.OK(t, err)
	t.Cleanup(func() {
		if err := nodes.Delete(context.WithoutCancel(t.Context()), name, metav1.DeleteOptions{}); err != nil {
			t.Errorf("remove GPUNode: %v", err)
		}
	})
	return stored
}

func TestAgentWritesItsOwnGPUNode(t *testing.T) {
	nodes := gpuNodes(t, as(t.Context(), t, agent))
	stored, err := nodes.Create(t.Context(), unstruct(t, gpuNode("n1")), metav1.CreateOptions{})
	must.OK(t, err)
	t.Cleanup(func() {
		err := gpuNodes(t, cluster.Admin()).Delete(context.WithoutCancel(t.Context()), "n1", metav1.DeleteOptions{})
		if err != nil {
			t.Errorf("remove GPUNode: %v", err)
		}
	})
	stored.Object["status"] = unstruct(t, gpuNode("n1", device("GPU-1"))).Object["status"]
	if _, err := nodes.UpdateStatus(t.Context(), stored, metav1.UpdateOptions{}); err != nil {
		t.Errorf("update status: %v", err)
	}
	patch := []byte(`{"status":{"driverVersion":"570.00"}}`)
	if _, err := nodes.Patch(t.Context(), "n1", "application/merge-patch+json", patch, metav1.PatchOptions{}, "status"); err != nil {
		t.Errorf("patch status: %v", err)
	}
	got, err := nodes.Get(t.Context(), "n1", metav1.GetOptions{})
	must.OK(t, err)
	devices, _, _ := unstructured.NestedSlice(got.Object, "status", "devices")
	driver, _, _ := unstructured.NestedString(got.Object, "status", "driverVersion")
	if len(devices) != 1 || driver != "570.00" {
		t.Errorf("the GPUNode has %d devices and driver %q", len(devices), driver)
	}
}

func TestAgentWritesNoOtherGPUNode(t *testing.T) {
	ctx := t.Context()
	n2 := createGPUNode(t, "n2")
	tests := []struct {
		name   string
		config *rest.Config
		send   func(dynamic.ResourceInterface) error
		want   string
	}{
		{"create of another", as(ctx, t, agent), func(nodes dynamic.ResourceInterface) error {
			_, err := nodes.Create(ctx, unstruct(t, gpuNode("n3")), metav1.CreateOptions{})
			return err
		}, "the agent of node n1 writes the GPUNode of that name only, not n3"},
		{"create with a generated name", as(ctx, t, agent), func(nodes dynamic.ResourceInterface) error {
			node := gpuNode("")
			node.GenerateName = "n1"
			_, err := nodes.Create(ctx, unstruct(t, node), metav1.CreateOptions{})
			return err
		}, "ValidatingAdmissionPolicy 'tandem-gpunodes'"},
		{"status of another", as(ctx, t, agent), func(nodes dynamic.ResourceInterface) error {
			_, err := nodes.UpdateStatus(ctx, n2, metav1.UpdateOptions{})
			return err
		}, "the agent of node n1 writes the GPUNode of that name only, not n2"},
		{"status patch of another", as(ctx, t, agent), func(nodes dynamic.ResourceInterface) error {
			_, err := nodes.Patch(ctx, "n2", "application/merge-patch+json", []byte(`{"status":{}}`), metav1.PatchOptions{}, "status")
			return err
		}, "not n2"},
		{"token bound to no node", tokenConfig(ctx, t, string(agent), ""), func(nodes dynamic.ResourceInterface) error {
			_, err := nodes.Create(ctx, unstruct(t, gpuNode("n1")), metav1.CreateOptions{})
			return err
		}, "bound to no node"},
		{"metadata", as(ctx, t, agent), func(nodes dynamic.ResourceInterface) error {
			_, err := nodes.Update(ctx, n2, metav1.UpdateOptions{})
			return err
		}, byRBAC + "update"},
		{"another account of deploy", as(ctx, t, scheduler), func(nodes dynamic.ResourceInterface) error {
			_, err := nodes.UpdateStatus(ctx, n2, metav1.UpdateOptions{})
			return err
		}, byRBAC + "update"},
		{"the kubelet", as(ctx, t, kubelet), func(nodes dynamic.ResourceInterface) error {
			_, err := nodes.UpdateStatus(ctx, n2, metav1.UpdateOptions{})
			return err
		}, byRBAC + "update"},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			wantRefusal(t, test.send(gpuNodes(t, test.config)), test.want)
		})
	}
}

// A user who may update GPUNodes, as kubectl tandem cordon needs it, is no agent, although no token of theirs is bound to a node.
func TestOperatorsCordonDevices(t *testing.T) {
	ctx := t.Context()
	n2 := createGPUNode(t, "n2")
	roles := client(ctx, t, admin).RbacV1()
	role := &rbacv1.ClusterRole{
		ObjectMeta: metav1.ObjectMeta{Name: "gpu-operator"},
		Rules:      []rbacv1.PolicyRule{{APIGroups: []string{v1alpha1.GroupVersion.Group}, Resources: []string{"gpunodes"}, Verbs: []string{"get", "update"}}},
	}
	if _, err := roles.ClusterRoles().Create(ctx, role, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	binding := &rbacv1.ClusterRoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: role.Name},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: role.Name},
		Subjects:   []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: "User", Name: "olga"}},
	}
	if _, err := roles.ClusterRoleBindings().Create(ctx, binding, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		ctx := context.WithoutCancel(ctx)
		if err := roles.ClusterRoleBindings().Delete(ctx, role.Name, metav1.DeleteOptions{}); err != nil {
			t.Errorf("remove the binding: %v", err)
		}
		if err := roles.ClusterRoles().Delete(ctx, role.Name, metav1.DeleteOptions{}); err != nil {
			t.Errorf("remove the role: %v", err)
		}
	})
	const olga account = "olga"
	await(t, "the account may update GPUNodes", func(context.Context) (bool, error) { return may(t, olga, "update gpunodes"), nil })

	cordoned := n2.DeepCopy()
	list := []any{map[string]any{"id": "GPU-1", "reason": "fan, ticket 123"}}
	must.OK(t, unstructured.SetNestedSlice(cordoned.Object, list, "spec", "cordonedDevices"))
	n2, err := gpuNodes(t, as(ctx, t, olga)).Update(ctx, cordoned, metav1.UpdateOptions{})
	if err != nil {
		t.Fatalf("cordon a device: %v", err)
	}
	if stored, _, err := unstructured.NestedSlice(n2.Object, "spec", "cordonedDevices"); err != nil || len(stored) != 1 {
		t.Errorf("the GPUNode has the cordoned devices %v, %v", stored, err)
	}
	_, err = gpuNodes(t, as(ctx, t, olga)).UpdateStatus(ctx, n2, metav1.UpdateOptions{})
	wantRefusal(t, err, byRBAC+"update")
	_, err = gpuNodes(t, as(ctx, t, agent)).UpdateStatus(ctx, n2, metav1.UpdateOptions{})
	wantRefusal(t, err, "the agent of node n1 writes the GPUNode of that name only, not n2")
	_, err = gpuNodes(t, as(ctx, t, agent)).Update(ctx, n2, metav1.UpdateOptions{})
	wantRefusal(t, err, byRBAC+"update")
}

// The token of n2 writes n2: the policy compares the token's node, not one name for all.
func TestAgentOfAnotherNode(t *testing.T) {
	nodes := gpuNodes(t, tokenConfig(t.Context(), t, string(agent), "n2"))
	if _, err := nodes.Create(t.Context(), unstruct(t, gpuNode("n2")), dryRun); err != nil {
		t.Error(err)
	}
	_, err := nodes.Create(t.Context(), unstruct(t, gpuNode("n1")), dryRun)
	wantRefusal(t, err, "the agent of node n2 writes the GPUNode of that name only, not n1")
}

// A GPUNode may belong to its Node, so that the garbage collector removes both, and to nothing else. The API server puts
// the UID of the node into what it says of the token, so the agent can learn it without reading nodes.
func TestOwnerOfGPUNode(t *testing.T) {
	config := as(t.Context(), t, agent)
	me, err := clientFor(t, config).AuthenticationV1().SelfSubjectReviews().
		Create(t.Context(), &authenticationv1.SelfSubjectReview{}, metav1.CreateOptions{})
	must.OK(t, err)
	n1, err := client(t.Context(), t, admin).CoreV1().Nodes().Get(t.Context(), "n1", metav1.GetOptions{})
	must.OK(t, err)
	told := me.Status.UserInfo.Extra["authentication.kubernetes.io/node-uid"]
	if len(told) != 1 || told[0] != string(n1.UID) {
		t.Fatalf("the agent is told the node's UID %v, want %s", told, n1.UID)
	}
	owner := metav1.OwnerReference{APIVersion: "v1", Kind: "Node", Name: "n1", UID: n1.UID}
	change := func(f func(*metav1.OwnerReference)) metav1.OwnerReference {
		o := owner
		f(&o)
		return o
	}
	tests := []struct {
		name   string
		owners []metav1.OwnerReference
		legal  bool
	}{
		{name: "nothing", legal: true},
		{name: "its node", owners: []metav1.OwnerReference{owner}, legal: true},
		{name: "a node that was there before", owners: []metav1.OwnerReference{change(func(o *metav1.OwnerReference) { o.UID = "x" })}},
		{name: "another node", owners: []metav1.OwnerReference{change(func(o *metav1.OwnerReference) { o.Name = "n2" })}},
		{name: "another kind", owners: []metav1.OwnerReference{change(func(o *metav1.OwnerReference) { o.Kind = "Pod" })}},
		{name: "another API", owners: []metav1.OwnerReference{change(func(o *metav1.OwnerReference) { o.APIVersion = "apps/v1" })}},
		{name: "its node and another", owners: []metav1.OwnerReference{owner, change(func(o *metav1.OwnerReference) { o.Name, o.UID = "n2", "x" })}},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			node := gpuNode("n1")
			node.OwnerReferences = test.owners
			_, err := gpuNodes(t, config).Create(t.Context(), unstruct(t, node), dryRun)
			if !test.legal {
				wantRefusal(t, err, "ValidatingAdmissionPolicy 'tandem-gpunodes'", "metadata.ownerReferences")
			} else if err != nil {
				t.Error(err)
			}
		})
	}
	t.Run("an owner that an administrator set is no concern of the agent's", func(t *testing.T) {
		node := gpuNode("n1")
		node.OwnerReferences = []metav1.OwnerReference{{APIVersion: "v1", Kind: "ConfigMap", Name: "x", UID: "x"}}
		all := gpuNodes(t, cluster.Admin())
		stored, err := all.Create(t.Context(), unstruct(t, node), metav1.CreateOptions{})
		must.OK(t, err)
		t.Cleanup(func() { _ = all.Delete(context.WithoutCancel(t.Context()), "n1", metav1.DeleteOptions{}) })
		stored.Object["status"] = unstruct(t, gpuNode("n1", device("GPU-1"))).Object["status"]
		if _, err := gpuNodes(t, config).UpdateStatus(t.Context(), stored, metav1.UpdateOptions{}); err != nil {
			t.Error(err)
		}
	})
}

// The controller changes conditions of any GPUNode, for agents that are gone, and nothing else of it.
func TestControllerJudgesAgents(t *testing.T) {
	createGPUNode(t, "judged")
	nodes := gpuNodes(t, as(t.Context(), t, controller))
	patch := func(status string) error {
		_, err := nodes.Patch(t.Context(), "judged", "application/merge-patch+json", []byte(`{"status":`+status+`}`), metav1.PatchOptions{}, "status")
		return err
	}
	must.OK(t, patch(`{"conditions":[{"type":"Ready","status":"Unknown","reason":"AgentLost","message":"gone","lastTransitionTime":"2026-01-01T00:00:00Z"}]}`))
	for _, status := range []string{`{"slotCount":3}`, `{"models":"T4"}`, `{"driverVersion":"1"}`, `{"deviceCount":9}`, `{"healthyCount":9}`} {
		wantRefusal(t, patch(status), "ValidatingAdmissionPolicy 'tandem-gpunodes'", "changes conditions of GPUNodes, and nothing else")
	}
}

// The accounts of deploy/ may not make these requests, however they ask.
func TestAccountsAreLimited(t *testing.T) {
	refused := map[account][]string{
		agent: {
			"get pods", "list pods", "update pods", "patch pods", "patch pods/status", "create pods/binding", "create bindings",
			"delete pods", "get nodes", "list nodes", "patch nodes", "patch nodes/status", "get secrets", "get configmaps",
			"list gpunodes", "update gpunodes", "delete gpunodes/status", "patch gpunodes", "delete gpunodes", "create serviceaccounts/token",
		},
		scheduler: {
			"create pods", "update pods", "patch pods", "create bindings", "patch pods/ephemeralcontainers", "patch pods/resize",
			"patch nodes", "patch nodes/status", "delete nodes", "get secrets", "get configmaps",
			"create gpunodes", "update gpunodes", "patch gpunodes/status", "delete gpunodes", "create serviceaccounts/token",
			"update leases kube-scheduler", "create pods/exec", "update deviceclasses", "resize vgpus", "wake vgpus",
			"create elastictargets", "update elastictargets", "patch elastictargets", "delete elastictargets",
		},
		controller: {
			"create pods/binding", "create bindings", "create pods", "update pods", "delete pods", "deletecollection pods", "update pods/status", "patch pods/status",
			"patch pods/ephemeralcontainers", "patch pods/resize", "create pods/exec", "get pods/log", "patch nodes", "patch nodes/status", "delete nodes",
			"get secrets", "get configmaps", "list secrets", "create serviceaccounts/token", "schedule vgpus", "wake vgpus",
			"create workloadprofiles", "update workloadprofiles", "patch workloadprofiles", "delete workloadprofiles", "update workloadprofiles/status", "patch workloadprofiles/status",
			"create gpunodes", "update gpunodes", "update gpunodes/status", "delete gpunodes", "deletecollection elastictargets",
			"update jobs.batch", "delete jobs.batch", "create jobs.batch", "patch jobs.batch/status", "patch cronjobs.batch", "patch statefulsets.apps", "patch replicasets.apps",
			"patch deployments.apps", "update statefulsets.apps/scale", "list daemonsets.apps", "update jobsets.jobset.x-k8s.io", "delete jobsets.jobset.x-k8s.io",
			"create pytorchjobs.kubeflow.org", "patch rayjobs.ray.io", "list rayclusters.ray.io",
			"patch podgroups.scheduling.k8s.io", "patch podgroups.scheduling.k8s.io/status", "patch podgroups.scheduling.x-k8s.io", "patch podgroups.scheduling.x-k8s.io/status",
			"create inferencefleets", "update inferencefleets", "patch inferencefleets", "delete inferencefleets",
			"list httproutes.gateway.networking.k8s.io", "update httproutes.gateway.networking.k8s.io", "patch httproutes.gateway.networking.k8s.io/status",
			"patch services", "patch endpointslices.discovery.k8s.io", "patch gateways.gateway.networking.k8s.io",
			"update leases tandem-controller", "update leases tandem-scheduler", "update validatingadmissionpolicies.admissionregistration.k8s.io",
		},
		activator: {
			"create pods", "update pods", "patch pods", "delete pods", "create pods/eviction", "create pods/binding", "create pods/exec", "get pods/log", "patch pods/status",
			"get secrets", "list secrets", "get configmaps", "list nodes", "list services", "patch endpointslices.discovery.k8s.io", "create serviceaccounts/token",
			"create statefulsets.apps", "update statefulsets.apps", "patch statefulsets.apps", "patch deployments.apps", "delete deployments.apps",
			"update statefulsets.apps/scale", "patch replicasets.apps/scale", "list horizontalpodautoscalers.autoscaling", "list jobs.batch",
			"patch gpunodes", "list gpunodes", "list elastictargets", "patch elastictargets", "list inferencefleets", "schedule vgpus", "resize vgpus",
			"update leases tandem-controller", "update leases tandem-scheduler",
		},
	}
	allowed := map[account][]string{
		agent: {"create gpunodes", "get gpunodes", "update gpunodes/status", "patch gpunodes/status"},
		scheduler: {
			"list pods", "watch nodes", "watch gpunodes", "create pods/binding", "patch pods/status", "delete pods",
			"create events", "update persistentvolumeclaims", "schedule vgpus", "watch elastictargets", "patch elastictargets/status",
		},
		controller: {
			"list pods", "watch pods", "list nodes", "watch nodes", "list gpunodes", "watch gpunodes", "patch gpunodes/status", "judge vgpus", "list workloadprofiles", "watch workloadprofiles",
			"list podgroups.scheduling.k8s.io", "watch podgroups.scheduling.k8s.io", "list podgroups.scheduling.x-k8s.io", "watch podgroups.scheduling.x-k8s.io",
			"list jobs.batch", "watch jobs.batch", "list replicasets.apps", "watch replicasets.apps",
			"list horizontalpodautoscalers.autoscaling", "watch horizontalpodautoscalers.autoscaling",
			"list elastictargets", "watch elastictargets", "create elastictargets", "update elastictargets", "patch elastictargets", "delete elastictargets",
			"update elastictargets/status", "patch elastictargets/status", "patch pods", "create pods/eviction", "resize vgpus",
			"create events", "patch events", "create events.events.k8s.io", "patch events.events.k8s.io",
			"patch jobs.batch", "list statefulsets.apps", "get statefulsets.apps", "watch statefulsets.apps", "watch deployments.apps", "patch statefulsets.apps/scale", "patch deployments.apps/scale", "patch replicasets.apps/scale",
			"get jobsets.jobset.x-k8s.io", "patch jobsets.jobset.x-k8s.io", "patch trainjobs.trainer.kubeflow.org", "patch pytorchjobs.kubeflow.org",
			"patch mpijobs.kubeflow.org", "patch tfjobs.kubeflow.org", "patch rayclusters.ray.io",
			"list inferencefleets", "watch inferencefleets", "patch inferencefleets/status", "watch services", "watch endpointslices.discovery.k8s.io",
			"get httproutes.gateway.networking.k8s.io", "patch httproutes.gateway.networking.k8s.io", "get deployments.apps/scale", "get statefulsets.apps/scale", "get deployments.apps", "get replicasets.apps",
		},
		activator: {
			"list pods", "watch pods", "list statefulsets.apps", "watch statefulsets.apps", "list deployments.apps", "watch deployments.apps",
			"patch statefulsets.apps/scale", "patch deployments.apps/scale", "create events.events.k8s.io", "create events", "patch events", "wake vgpus",
		},
	}
	for who, requests := range refused {
		for _, request := range requests {
			t.Run(fmt.Sprintf("%s cannot %s", who, request), func(t *testing.T) {
				if may(t, who, request) {
					t.Error("allowed")
				}
			})
		}
	}
	for who, requests := range allowed {
		for _, request := range requests {
			t.Run(fmt.Sprintf("%s can %s", who, request), func(t *testing.T) {
				if !may(t, who, request) {
					t.Error("refused")
				}
			})
		}
	}
}

// may asks the API server whether an account may do "verb resource[.group][/subresource] [name]" in all namespaces. The groups of
// some resources are known.
func may(t *testing.T, who account, request string) bool {
	t.Helper()
	groups := map[string]string{
		"gpunodes": v1alpha1.Domain, "workloadprofiles": v1alpha1.Domain, "elastictargets": v1alpha1.Domain, "inferencefleets": v1alpha1.Domain, "vgpus": v1alpha1.Domain,
		"leases": "coordination.k8s.io", "deviceclasses": "resource.k8s.io",
	}
	words := append(strings.Fields(request), "")
	name, subresource, _ := strings.Cut(words[1], "/")
	name, group, named := strings.Cut(name, ".")
	if !named {
		group = groups[name]
	}
	review := &authorizationv1.SelfSubjectAccessReview{Spec: authorizationv1.SelfSubjectAccessReviewSpec{
		ResourceAttributes: &authorizationv1.ResourceAttributes{
			Verb: words[0], Group: group, Resource: name, Subresource: subresource, Name: words[2],
		},
	}}
	got, err := client(t.Context(), t, who).AuthorizationV1().SelfSubjectAccessReviews().
		Create(t.Context(), review, metav1.CreateOptions{})
	must.OK(t, err)
	return got.Status.Allowed
}
