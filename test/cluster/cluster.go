// Package cluster gives a control plane what a cluster with Tandem has: the objects of deploy/, and nodes with GPUs.
//
// Nothing runs on the nodes, and the programs that deploy/ would run in pods are left out: tests start them themselves, where they
// need them. For a cluster in memory see fakecluster.
package cluster

import (
	"context"
	"fmt"
	"path/filepath"
	"strings"
	"time"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"sigs.k8s.io/kustomize/api/krusty"
	"sigs.k8s.io/kustomize/api/resmap"
	"sigs.k8s.io/kustomize/kyaml/filesys"

	"github.com/tandem-gpu/tandem/internal/sandbox"
	"github.com/tandem-gpu/tandem/pkg/api/v1alpha1"
	"github.com/tandem-gpu/tandem/test/fakecluster"
)

// policyTimeout bounds the wait until policies are enforced. It takes a moment; only a hang takes so long.
const policyTimeout = 5 * time.Minute

// Render builds a folder as `kubectl apply -k` does. A relative folder is one of the repository.
func Render(folder string) (resmap.ResMap, error) {
	if !filepath.IsAbs(folder) {
		root, err := sandbox.Root()
		if err != nil {
			return nil, err
		}
		folder = filepath.Join(root, folder)
	}
	rendered, err := krusty.MakeKustomizer(krusty.MakeDefaultOptions()).Run(filesys.MakeFsOnDisk(), folder)
	if err != nil {
		return nil, fmt.Errorf("render %s: %w", folder, err)
	}
	return rendered, nil
}

// Apply applies a folder, without its Deployments and DaemonSets, and returns all that it holds.
func Apply(ctx context.Context, plane *sandbox.ControlPlane, folder string) (resmap.ResMap, error) {
	rendered, err := Render(folder)
	if err != nil {
		return nil, err
	}
	var manifests strings.Builder
	for _, r := range rendered.Resources() {
		if r.GetKind() != "Deployment" && r.GetKind() != "DaemonSet" {
			fmt.Fprintf(&manifests, "---\n%s\n", r.MustYaml())
		}
	}
	return rendered, plane.Apply(ctx, []byte(manifests.String()))
}

// AddNode creates a node that is ready for pods, with all of its resources free.
func AddNode(ctx context.Context, client kubernetes.Interface, name string, labels map[string]string, has v1.ResourceList) error {
	nodes := client.CoreV1().Nodes()
	n, err := nodes.Create(ctx, &v1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: labels}}, metav1.CreateOptions{})
	if err != nil {
		return fmt.Errorf("add node %s: %w", name, err)
	}
	n.Spec.Taints = nil // admission marks new nodes as not ready, and no controller runs that would take it back
	if n, err = nodes.Update(ctx, n, metav1.UpdateOptions{}); err != nil {
		return fmt.Errorf("add node %s: %w", name, err)
	}
	n.Status.Capacity, n.Status.Allocatable = has, has
	n.Status.Conditions = []v1.NodeCondition{{Type: v1.NodeReady, Status: v1.ConditionTrue}}
	if _, err := nodes.UpdateStatus(ctx, n, metav1.UpdateOptions{}); err != nil {
		return fmt.Errorf("add node %s: %w", name, err)
	}
	return nil
}

// AddGPUNode creates a GPUNode with its status, as the agent of its node does.
func AddGPUNode(ctx context.Context, client dynamic.Interface, g *v1alpha1.GPUNode) error {
	u, err := fakecluster.Unstructured(g)
	if err != nil {
		return fmt.Errorf("add GPUNode %s: %w", g.Name, err)
	}
	gpuNodes := client.Resource(v1alpha1.GPUNodes)
	created, err := gpuNodes.Create(ctx, u.DeepCopy(), metav1.CreateOptions{})
	if err != nil {
		return fmt.Errorf("add GPUNode %s: %w", g.Name, err)
	}
	u.SetResourceVersion(created.GetResourceVersion())
	if _, err := gpuNodes.UpdateStatus(ctx, u, metav1.UpdateOptions{}); err != nil {
		return fmt.Errorf("add GPUNode %s: %w", g.Name, err)
	}
	return nil
}

// AwaitPolicies waits until the API server enforces all policies that were applied by now. It compiles all that it knows of together, some
// time after they were applied: when it enforces one that came after the others, it enforces those too.
func AwaitPolicies(ctx context.Context, admin kubernetes.Interface) error {
	const name = "the-last-policy"
	policy := &admissionv1.ValidatingAdmissionPolicy{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: admissionv1.ValidatingAdmissionPolicySpec{
		MatchConstraints: &admissionv1.MatchResources{ResourceRules: []admissionv1.NamedRuleWithOperations{{RuleWithOperations: admissionv1.RuleWithOperations{
			Operations: []admissionv1.OperationType{admissionv1.Create},
			Rule:       admissionv1.Rule{APIGroups: []string{""}, APIVersions: []string{"v1"}, Resources: []string{"configmaps"}},
		}}}},
		Validations: []admissionv1.Validation{{Expression: "object.metadata.name != '" + name + "'"}},
	}}
	binding := &admissionv1.ValidatingAdmissionPolicyBinding{ObjectMeta: policy.ObjectMeta, Spec: admissionv1.ValidatingAdmissionPolicyBindingSpec{
		PolicyName: name, ValidationActions: []admissionv1.ValidationAction{admissionv1.Deny},
	}}
	policies, bindings := admin.AdmissionregistrationV1().ValidatingAdmissionPolicies(), admin.AdmissionregistrationV1().ValidatingAdmissionPolicyBindings()
	if _, err := policies.Create(ctx, policy, metav1.CreateOptions{}); err != nil {
		return err
	}
	if _, err := bindings.Create(ctx, binding, metav1.CreateOptions{}); err != nil {
		return err
	}
	refused := &v1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: name}}
	err := wait.PollUntilContextTimeout(ctx, 100*time.Millisecond, policyTimeout, true, func(ctx context.Context) (bool, error) {
		_, err := admin.CoreV1().ConfigMaps(metav1.NamespaceDefault).Create(ctx, refused, metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
		return err != nil && strings.Contains(err.Error(), "ValidatingAdmissionPolicy '"+name+"'"), nil
	})
	if err != nil {
		return fmt.Errorf("wait until the policies are enforced: %w", err)
	}
	if err := bindings.Delete(ctx, name, metav1.DeleteOptions{}); err != nil {
		return err
	}
	return policies.Delete(ctx, name, metav1.DeleteOptions{})
}
