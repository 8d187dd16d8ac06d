package gpushare

import (
	"context"
	"fmt"
	"slices"

	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/dynamic/dynamicinformer"
	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"

	"github.com/tandem-gpu/tandem/internal/cluster/kube"
	"github.com/tandem-gpu/tandem/pkg/api/v1alpha1"
	"github.com/tandem-gpu/tandem/pkg/vgpu"
)

// watchPods settles pods once the informer shows their assignment or their end. It also keeps the list of pending pods,
// counts each pod once for the mix, and passes the pods to the learner.
func (p *Plugin) watchPods(ctx context.Context, informer cache.SharedIndexInformer) error {
	_, err := informer.AddEventHandlerWithOptions(p.podEvents(ctx), handlerOptions(ctx))
	return err
}

func (p *Plugin) podEvents(ctx context.Context) cache.ResourceEventHandler {
	return cache.ResourceEventHandlerFuncs{
		AddFunc: func(object any) {
			if pod, ok := object.(*v1.Pod); ok {
				p.arrived(pod)
				p.seen(pod)
			}
		},
		UpdateFunc: func(old, updated any) {
			before, okBefore := old.(*v1.Pod)
			pod, ok := updated.(*v1.Pod)
			if !ok || !okBefore {
				return
			}
			// A watch that broke shows another pod of the same name as an update.
			if before.UID != pod.UID {
				p.gone(before)
				p.arrived(pod)
			}
			p.seen(pod)
			if on := before.Status.NominatedNodeName; on != "" && pod.Spec.NodeName != on && pod.Status.NominatedNodeName != on {
				p.pending.activateAfterNomination(on)
			}
			if pod.Spec.NodeName != "" && before.Annotations[v1alpha1.AnnotationMaxSlowdown] != pod.Annotations[v1alpha1.AnnotationMaxSlowdown] {
				p.pending.activatePromised()
			}
		},
		DeleteFunc: func(object any) {
			if unknown, ok := object.(cache.DeletedFinalStateUnknown); ok {
				object = unknown.Obj
			}
			if pod, ok := object.(*v1.Pod); ok {
				p.gone(pod)
				p.left(ctx, pod)
			}
		},
	}
}

func (p *Plugin) seen(pod *v1.Pod) {
	if pod.Spec.NodeName != "" {
		p.misses.remove(kube.UIDOf(pod))
		p.absurd.remove(kube.UIDOf(pod))
	}
	if !kube.WantsVGPU(pod) {
		return
	}
	p.state.learner.Pod(pod)
	if pod.Spec.NodeName == "" {
		p.pending.add(pod)
		return
	}
	p.pending.remove(pod)
	p.placed.add(pod)
	if p.lifetimes != nil {
		p.lifetimes.hear(pod, p.now())
	}
	if taken(pod) {
		p.triedOn(pod.Spec.NodeName, pod, true)
	}
	if _, ok := pod.Annotations[v1alpha1.AnnotationAssignment]; ok {
		p.state.noteBound(kube.UIDOf(pod), pod.Spec.NodeName)
	}
}

func (p *Plugin) gone(pod *v1.Pod) {
	p.misses.remove(kube.UIDOf(pod))
	p.absurd.remove(kube.UIDOf(pod))
	p.missing.remove(kube.UIDOf(pod))
	if kube.WantsVGPU(pod) {
		p.state.learner.PodGone(pod.UID)
		p.placed.remove(pod)
		p.pending.remove(pod)
		if p.lifetimes != nil {
			p.lifetimes.leave(pod, p.now())
		}
		if p.state.gone(kube.UIDOf(pod)) {
			p.pending.activate() // its node takes the next one
		}
	}
}

// watchGPUNodes reads the GPUNodes until ctx ends. The function does not wait: the resource may be absent at start, and
// the informer tries again.
func (p *Plugin) watchGPUNodes(ctx context.Context, client dynamic.Interface) error {
	informer := dynamicinformer.NewFilteredDynamicInformer(client, v1alpha1.GPUNodes, metav1.NamespaceAll, 0, cache.Indexers{}, nil).Informer()
	if err := informer.SetWatchErrorHandlerWithContext(p.explainUnread); err != nil {
		return err
	}
	if err := informer.SetTransform(condense); err != nil {
		return err
	}
	update := func(object any) {
		if p.readGPUNode(ctx, object) {
			p.pending.activate()
		}
	}
	registration, err := informer.AddEventHandlerWithOptions(cache.ResourceEventHandlerFuncs{
		AddFunc:    update,
		UpdateFunc: func(_, updated any) { update(updated) },
		DeleteFunc: func(object any) { p.forgetGPUNode(ctx, object) },
	}, handlerOptions(ctx))
	if err != nil {
		return err
	}
	p.gpuNodes = informer.GetStore()
	go informer.RunWithContext(ctx)
	go func() {
		if awaitSynced(ctx, registration) {
			p.state.setUnread("")
			p.answered[aboutGPUNodes].announce()
			p.pending.activate()
		}
	}()
	return nil
}

// awaitSynced waits until a handler has had all objects, and reports whether that was before ctx ended.
func awaitSynced(ctx context.Context, registration cache.ResourceEventHandlerRegistration) bool {
	select {
	case <-registration.HasSyncedChecker().Done():
		return true
	case <-ctx.Done():
		return false
	}
}

func handlerOptions(ctx context.Context) cache.HandlerOptions {
	logger := klog.FromContext(ctx)
	return cache.HandlerOptions{Logger: &logger}
}

func (p *Plugin) explainUnread(ctx context.Context, r *cache.Reflector, err error) {
	p.noteUnread(err)
	p.answered[aboutGPUNodes].announce()
	cache.DefaultWatchErrorHandler(ctx, r, err)
}

// noteUnread notes why the plugin cannot read the GPUNodes, for the events of pods that wait for them.
func (p *Plugin) noteUnread(err error) {
	why := fmt.Sprintf("the GPUNodes cannot be read: %v", err)
	if apierrors.IsNotFound(err) || meta.IsNoMatchError(err) {
		why = "the GPUNodes cannot be read: the CustomResourceDefinition gpunodes.tandem-gpu.io is not installed"
	}
	p.state.setUnread(why)
}

// readGPUNode takes over what a GPUNode says and reports whether that changes anything for pods.
func (p *Plugin) readGPUNode(ctx context.Context, object any) bool {
	r, ok := object.(*condensed)
	if !ok {
		klog.FromContext(ctx).Error(nil, "Ignoring what is no GPUNode", "type", fmt.Sprintf("%T", object))
		return false
	}
	if r.err != nil {
		klog.FromContext(ctx).Error(r.err, "The node takes no vGPU pods", "node", r.Name)
	}
	changed, err := p.state.setInventory(r.Name, r.devices, r.problem)
	p.state.setUnenforced(r.Name, unenforcedOf(r.use))
	if r.use != nil {
		p.state.learner.GPUNode(r.use)
	}
	if err != nil {
		klog.FromContext(ctx).Error(err, "The node takes no vGPU pods", "node", r.Name)
	}
	return changed
}

func (p *Plugin) forgetGPUNode(ctx context.Context, object any) {
	if unknown, ok := object.(cache.DeletedFinalStateUnknown); ok {
		object = unknown.Obj
	}
	g, err := meta.Accessor(object)
	if err != nil {
		klog.FromContext(ctx).Error(err, "Ignoring the end of a GPUNode that cannot be decoded")
		return
	}
	p.state.learner.GPUNodeGone(g.GetName())
	if _, err := p.state.setInventory(g.GetName(), nil, noGPUs); err != nil {
		klog.FromContext(ctx).Error(err, "Removing the devices of a node failed", "node", g.GetName())
	}
}

// condensed is what the informer keeps of a GPUNode. For a node of 8 linked devices the object itself, a tree of maps, takes 34 KB
// and this 7 KB (BenchmarkKeptGPUNode). At 5,000 nodes the garbage collector walks 130 MB less.
type condensed struct {
	metav1.ObjectMeta
	devices []vgpu.Device
	// problem says why the node takes no vGPU pods, "" where it does.
	problem string
	// err is the error of reading the devices.
	err error
	// use is the node's report of its use, for the learner; nil for a broken object.
	use *v1alpha1.GPUNode
}

// condense turns a GPUNode into the part that the informer keeps. A broken one keeps its name: its node takes no vGPU
// pods.
func condense(object any) (any, error) {
	u, ok := object.(*unstructured.Unstructured)
	if !ok {
		return object, nil
	}
	r := &condensed{ObjectMeta: metav1.ObjectMeta{Name: u.GetName(), UID: u.GetUID(), ResourceVersion: u.GetResourceVersion()}}
	g := &v1alpha1.GPUNode{}
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(u.Object, g); err != nil {
		r.problem, r.err = brokenGPUNode, fmt.Errorf("read GPUNode %s: %w", u.GetName(), err)
		return r, nil
	}
	r.devices, r.problem, r.err = devicesOf(g)
	r.use = useOf(g)
	return r, nil
}

// useOf returns what a learner reads of a GPUNode.
func useOf(g *v1alpha1.GPUNode) *v1alpha1.GPUNode {
	use := &v1alpha1.GPUNode{}
	use.Name, use.Status.Conditions = g.Name, g.Status.Conditions
	for i := range g.Status.Devices {
		d := &g.Status.Devices[i]
		reason, message := d.Reason, ""
		if cordon := kube.CordonOf(g, d.ID); reason == "" && cordon != nil {
			reason, message = v1alpha1.ReasonCordoned, cordon.Reason
		}
		use.Status.Devices = append(use.Status.Devices, v1alpha1.GPUDevice{
			ID: d.ID, Model: d.Model, Memory: d.Memory, Health: d.Health, Reason: reason, Message: message, Enforcement: d.Enforcement, ContextsUsed: d.ContextsUsed,
			Usage: d.Usage, Tenants: d.Tenants,
		})
	}
	return use
}

// unenforcedOf returns the models of a node's devices on which nothing keeps tenants to their compute limit, each once.
func unenforcedOf(g *v1alpha1.GPUNode) []string {
	var models []string
	for i := 0; g != nil && i < len(g.Status.Devices); i++ {
		if d := &g.Status.Devices[i]; d.Enforcement == v1alpha1.EnforcementNone && !slices.Contains(models, d.Model) {
			models = append(models, d.Model)
		}
	}
	return models
}

// devicesOf returns the devices of a node, or why it takes no vGPU pods; the error says more where the object is
// broken.
func devicesOf(g *v1alpha1.GPUNode) ([]vgpu.Device, string, error) {
	devices, err := kube.Devices(g)
	switch {
	case err != nil:
		return nil, brokenGPUNode, err
	case len(devices) == 0:
		return nil, noGPUs, nil
	case !meta.IsStatusConditionTrue(g.Status.Conditions, v1alpha1.ConditionReady):
		return devices, notReady, nil
	}
	return devices, "", nil
}
