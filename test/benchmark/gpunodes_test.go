//go:build bench

package benchmark

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apiextensions "k8s.io/apiextensions-apiserver/pkg/client/clientset/clientset"
	"k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"
	"k8s.io/kubernetes/pkg/scheduler"
	perf "k8s.io/kubernetes/test/integration/scheduler_perf"
	"k8s.io/kubernetes/test/utils/client-go/ktesting"
	"sigs.k8s.io/yaml"

	"github.com/tandem-gpu/tandem/internal/sandbox"
	"github.com/tandem-gpu/tandem/pkg/api/v1alpha1"
)

const (
	devicesPerNode = 8
	writers        = 16
	crdTimeout     = time.Minute
)

// installCRD creates the CRD of GPUNode and waits until it is served.
func installCRD(ctx context.Context, config *rest.Config) error {
	root, err := sandbox.Root()
	if err != nil {
		return err
	}
	raw, err := os.ReadFile(filepath.Join(root, "deploy", "crds", "tandem-gpu.io_gpunodes.yaml"))
	if err != nil {
		return err
	}
	crd := &apiextensionsv1.CustomResourceDefinition{}
	if err := yaml.Unmarshal(raw, crd); err != nil {
		return err
	}
	client, err := apiextensions.NewForConfig(config)
	if err != nil {
		return err
	}
	crds := client.ApiextensionsV1().CustomResourceDefinitions()
	if _, err := crds.Create(ctx, crd, metav1.CreateOptions{}); err != nil && !errors.IsAlreadyExists(err) {
		return err
	}
	return wait.PollUntilContextTimeout(ctx, 50*time.Millisecond, crdTimeout, true, func(ctx context.Context) (bool, error) {
		stored, err := crds.Get(ctx, crd.Name, metav1.GetOptions{})
		if err != nil {
			return false, err
		}
		return slices.ContainsFunc(stored.Status.Conditions, func(c apiextensionsv1.CustomResourceDefinitionCondition) bool {
			return c.Type == apiextensionsv1.Established && c.Status == apiextensionsv1.ConditionTrue
		}), nil
	})
}

// addGPUNodes gives every node its GPUNode, beside the stock scheduler too: the API server runs in the same process, and
// its work for the objects is no cost of a scheduler.
func addGPUNodes(tCtx ktesting.TContext, _ *scheduler.Scheduler, _ *perf.Workload, nodes *corev1.NodeList) error {
	if err := installCRD(tCtx, tCtx.RESTConfig()); err != nil {
		return err
	}
	client, err := dynamic.NewForConfig(tCtx.RESTConfig())
	if err != nil {
		return err
	}
	gpuNodes := client.Resource(v1alpha1.GPUNodes)
	names := make(chan string)
	errs := make(chan error, writers)
	var group sync.WaitGroup
	for range writers {
		group.Go(func() {
			for name := range names {
				if err := addGPUNode(tCtx, gpuNodes, name); err != nil {
					errs <- fmt.Errorf("add GPUNode %s: %w", name, err)
					break
				}
			}
			for range names { // let the sender end
			}
		})
	}
	for i := range nodes.Items {
		names <- nodes.Items[i].Name
	}
	close(names)
	group.Wait()
	close(errs)
	return <-errs
}

func addGPUNode(ctx context.Context, gpuNodes dynamic.ResourceInterface, name string) error {
	object, err := runtime.DefaultUnstructuredConverter.ToUnstructured(gpuNode(name))
	if err != nil {
		return err
	}
	status := object["status"]
	stored, err := gpuNodes.Create(ctx, &unstructured.Unstructured{Object: object}, metav1.CreateOptions{})
	if err != nil {
		return err
	}
	stored.Object["status"] = status
	_, err = gpuNodes.UpdateStatus(ctx, stored, metav1.UpdateOptions{})
	return err
}

// gpuNode is a node like a DGX A100: eight devices of ten slots, all linked with each other.
func gpuNode(name string) *v1alpha1.GPUNode {
	node := &v1alpha1.GPUNode{
		TypeMeta:   metav1.TypeMeta{APIVersion: v1alpha1.GroupVersion.String(), Kind: "GPUNode"},
		ObjectMeta: metav1.ObjectMeta{Name: name},
	}
	id := func(i int) string { return fmt.Sprintf("GPU-%s-%d", name, i) }
	for i := range devicesPerNode {
		d := v1alpha1.GPUDevice{
			ID: id(i), Index: int32(i), Model: "NVIDIA-A100-SXM4-40GB", Memory: resource.MustParse("40Gi"), Slots: 10,
			Contexts: 48, ComputeCapability: "8.0", Health: v1alpha1.Healthy, Enforcement: v1alpha1.EnforcementCooperative,
		}
		for j := range devicesPerNode {
			if j != i {
				d.Links = append(d.Links, v1alpha1.GPULink{Peer: id(j), Type: v1alpha1.LinkNVLink, Lanes: 12})
			}
		}
		node.Status.Devices = append(node.Status.Devices, d)
	}
	node.Status.DeviceCount, node.Status.HealthyCount, node.Status.SlotCount = devicesPerNode, devicesPerNode, 10*devicesPerNode
	node.Status.Conditions = []metav1.Condition{{
		Type: v1alpha1.ConditionReady, Status: metav1.ConditionTrue, Reason: "Serving", LastTransitionTime: metav1.Now(),
	}}
	return node
}
