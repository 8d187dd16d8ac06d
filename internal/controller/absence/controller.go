// Package absence marks the GPUNodes of nodes whose agent is gone.
//
// An agent that was killed, and one whose node is lost, cannot write that into its GPUNode: the condition Ready would stay True for ever.
// The kubelet knows better, since it is connected to the agent, and its Node says so: with a status that is unknown, or with no slots. So no
// program sends a heartbeat of its own (docs/decisions/0052-agents-that-are-gone.md). The package writes Unknown in place of True, and
// takes that back. It leaves all else that agents write as it is.
package absence

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/informers"
	corelisters "k8s.io/client-go/listers/core/v1"
	"k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tandem-gpu/tandem/internal/controller/passes"
	"github.com/tandem-gpu/tandem/pkg/api/v1alpha1"
)

const (
	// every is the time between two passes.
	every = 5 * time.Second
	// patience is how long a node must offer no slots before its agent counts as gone. A shorter one marks nodes whose agent is replaced, or
	// has written its GPUNode and registers in a moment. With a longer one the mark takes more than a minute: the kubelet's word takes up to
	// ten seconds, and the next pass five.
	patience = 20 * time.Second
)

// Options are what a Controller works with.
type Options struct {
	// Informers read Nodes; the caller starts them.
	Informers informers.SharedInformerFactory
	// Client reads and writes GPUNodes.
	Client client.Client
	// Now is the clock; nil is the real one.
	Now func() time.Time
}

// Controller marks the GPUNodes of nodes whose agent is gone.
type Controller struct {
	passes.Loop
	client client.Client
	nodes  corelisters.NodeLister
	now    func() time.Time
	// without says since when a node offers no slots although its GPUNode says that it is ready.
	without map[string]time.Time
}

// New returns a controller that has not read anything.
func New(o Options) *Controller {
	nodes := o.Informers.Core().V1().Nodes()
	c := &Controller{client: o.Client, nodes: nodes.Lister(), now: o.Now, without: map[string]time.Time{}}
	if c.now == nil {
		c.now = time.Now
	}
	c.Loop = passes.Loop{Over: "GPUNodes", Every: every, Make: c.Pass, CountFailure: func() {}, Synced: []cache.InformerSynced{nodes.Informer().HasSynced}}
	return c
}

// Collectors returns no collectors: the condition says which agents are gone.
func (c *Controller) Collectors() []prometheus.Collector { return nil }

// Pass writes the condition Ready of the GPUNodes for which it is not what it should be.
func (c *Controller) Pass(ctx context.Context) error {
	var known v1alpha1.GPUNodeList
	if err := c.client.List(ctx, &known); err != nil {
		return fmt.Errorf("read the GPUNodes: %w", err)
	}
	now, without := c.now(), map[string]time.Time{}
	var errs []error
	for i := range known.Items {
		g := &known.Items[i]
		n, err := c.nodes.Get(g.Name)
		if err != nil {
			continue // the garbage collector removes the GPUNode with its Node
		}
		var since time.Duration
		if meta.IsStatusConditionTrue(g.Status.Conditions, v1alpha1.ConditionReady) && offersNothing(g, n) {
			without[g.Name] = now
			if first, before := c.without[g.Name]; before {
				without[g.Name], since = first, now.Sub(first)
			}
		}
		if ready := readyOf(g, n, since); ready != nil {
			errs = append(errs, c.write(ctx, g, *ready))
		}
	}
	c.without = without
	return errors.Join(errs...)
}

// offersNothing reports whether the kubelet of a node offers no slots although the GPUNode has some.
func offersNothing(g *v1alpha1.GPUNode, n *v1.Node) bool {
	offered := n.Status.Allocatable[v1alpha1.ResourceVGPU]
	return g.Status.SlotCount > 0 && offered.IsZero()
}

// readyOf returns the condition Ready that a GPUNode should have, nil where it has the right one. without is how long the node has offered no
// slots.
func readyOf(g *v1alpha1.GPUNode, n *v1.Node, without time.Duration) *metav1.Condition {
	have := meta.FindStatusCondition(g.Status.Conditions, v1alpha1.ConditionReady)
	if have == nil {
		return nil
	}
	silent := slices.ContainsFunc(n.Status.Conditions, func(c v1.NodeCondition) bool { return c.Type == v1.NodeReady && c.Status == v1.ConditionUnknown })
	want := metav1.Condition{Type: v1alpha1.ConditionReady, Status: metav1.ConditionUnknown, Reason: v1alpha1.ReadyAgentLost}
	marked := have.Reason == v1alpha1.ReadyAgentLost
	switch {
	case have.Status == metav1.ConditionTrue && silent:
		want.Message = "the kubelet of the node does not report to the API server, so it is not known whether the agent serves"
	case have.Status == metav1.ConditionTrue && without >= patience:
		want.Message = "the kubelet of the node offers no slots: no agent is registered with it, and what the status says is old"
	case marked && !silent && !offersNothing(g, n):
		want.Status, want.Reason, want.Message = metav1.ConditionTrue, v1alpha1.ReadyServing, "the kubelet offers the slots again"
	default:
		return nil
	}
	return &want
}

// write writes a condition, unless the GPUNode has changed meanwhile.
func (c *Controller) write(ctx context.Context, g *v1alpha1.GPUNode, ready metav1.Condition) error {
	conditions := slices.Clone(g.Status.Conditions)
	ready.LastTransitionTime = metav1.NewTime(c.now())
	meta.SetStatusCondition(&conditions, ready)
	patch, err := json.Marshal(map[string]any{
		"metadata": map[string]any{"resourceVersion": g.ResourceVersion}, "status": map[string]any{"conditions": conditions},
	})
	if err == nil {
		err = c.client.Status().Patch(ctx, &v1alpha1.GPUNode{ObjectMeta: metav1.ObjectMeta{Name: g.Name}}, client.RawPatch(types.MergePatchType, patch))
	}
	if err != nil && !apierrors.IsNotFound(err) && !apierrors.IsConflict(err) {
		return fmt.Errorf("write the condition Ready of GPUNode %s: %w", g.Name, err)
	}
	return nil
}
