// Package capacity writes into Node objects how much memory the devices of each node have, as the resource vgpu-memory.
//
// No kubelet reports that resource: the agent tells the kubelet slots alone. A program that compares pods with nodes by resources alone,
// above all an autoscaler, takes a pod that asks for device memory for one that no node can run. Karpenter also waits for ever for the
// resource on a new node. The numbers are for such programs: Tandem's scheduler counts memory by device and does not read them.
//
// The number is the memory of all devices of the GPUNode, sick ones too: pods that run on a sick device still count for the kubelet.
package capacity

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	corelisters "k8s.io/client-go/listers/core/v1"
	"k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tandem-gpu/tandem/internal/cluster/kube"
	"github.com/tandem-gpu/tandem/internal/controller/passes"
	"github.com/tandem-gpu/tandem/pkg/api/v1alpha1"
)

// every is the time between two passes. A longer one delays Karpenter's view of a new node, a shorter one only walks over the nodes.
const every = 5 * time.Second

// Options are what a Controller works with.
type Options struct {
	// Informers read Nodes; the caller starts them.
	Informers informers.SharedInformerFactory
	// Kube writes the status of Nodes, GPUNodes reads GPUNodes.
	Kube     kubernetes.Interface
	GPUNodes client.Reader
}

// Controller writes the memory of devices into Nodes.
type Controller struct {
	passes.Loop
	kube     kubernetes.Interface
	gpuNodes client.Reader
	nodes    corelisters.NodeLister
}

// New returns a controller that has not read anything.
func New(o Options) *Controller {
	nodes := o.Informers.Core().V1().Nodes()
	c := &Controller{kube: o.Kube, gpuNodes: o.GPUNodes, nodes: nodes.Lister()}
	c.Loop = passes.Loop{Over: "nodes", Every: every, Make: c.Pass, CountFailure: func() {}, Synced: []cache.InformerSynced{nodes.Informer().HasSynced}}
	return c
}

// Collectors returns no collectors: the log says which nodes could not be written.
func (c *Controller) Collectors() []prometheus.Collector { return nil }

// Pass writes the Nodes that do not say what their GPUNodes do. A Node whose GPUNode is gone loses the resource, and one whose GPUNode
// cannot be read stays as it is.
func (c *Controller) Pass(ctx context.Context) error {
	var known v1alpha1.GPUNodeList
	if err := c.gpuNodes.List(ctx, &known); err != nil {
		return fmt.Errorf("read the GPUNodes: %w", err)
	}
	nodes, err := c.nodes.List(labels.Everything())
	if err != nil {
		return fmt.Errorf("read the Nodes: %w", err)
	}
	want, unread := map[string]int64{}, map[string]bool{}
	var errs []error
	for i := range known.Items {
		g := &known.Items[i]
		devices, err := kube.Devices(g)
		if err != nil {
			errs = append(errs, err)
			unread[g.Name] = true
		}
		for _, d := range devices {
			want[g.Name] += int64(d.Memory)
		}
	}
	for _, n := range nodes {
		if unread[n.Name] {
			continue // its devices are there, and pods may use them
		}
		if err := c.write(ctx, n, want[n.Name]); err != nil {
			errs = append(errs, err)
		}
	}
	return errors.Join(errs...)
}

// write has a Node say so many bytes, 0 for none.
func (c *Controller) write(ctx context.Context, n *v1.Node, bytes int64) error {
	now, there := n.Status.Allocatable[v1alpha1.ResourceMemory]
	if bytes == now.Value() && there == (bytes > 0) {
		return nil
	}
	var value any // null removes the resource
	if bytes > 0 {
		value = resource.NewQuantity(bytes, resource.BinarySI).String()
	}
	amount := map[string]any{v1alpha1.ResourceMemory: value}
	patch, err := json.Marshal(map[string]any{"status": map[string]any{"capacity": amount, "allocatable": amount}})
	if err != nil {
		return fmt.Errorf("write the memory of Node %s: %w", n.Name, err)
	}
	_, err = c.kube.CoreV1().Nodes().Patch(ctx, n.Name, types.MergePatchType, patch, metav1.PatchOptions{FieldManager: "tandem-controller"}, "status")
	if err != nil && !apierrors.IsNotFound(err) {
		return fmt.Errorf("write the memory of Node %s: %w", n.Name, err)
	}
	return nil
}
