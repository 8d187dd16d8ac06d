package gpushare

import (
	"context"
	"fmt"

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

	"github.com/tandem-gpu/tandem/internal/kube"
	"github.com/tandem-gpu/tandem/pkg/api/v1alpha1"
	"github.com/tandem-gpu/tandem/pkg/vgpu"
)

// watchPods settles pods once the informer shows their assignment or their end, and keeps the list of pending pods.
func (p *Plugin) watchPods(ctx context.Context, informer cache.SharedIndexInformer, pending *pending) error {
	seen := func(object any) {
		pod, ok := object.(*v1.Pod)
		if !ok || !kube.WantsVGPU(pod) {
			return
		}
		if pod.Spec.NodeName == "" {
			pending.add(pod)
			return
		}
		pending.remove(pod)
		p.misses.remove(uidOf(pod))
		if _, ok := pod.Annotations[v1alpha1.AnnotationAssignment]; ok {
			p.state.landed(uidOf(pod), pod.Spec.NodeName)
		}
	}
	gone := func(object any) {
		if unknown, ok := object.(cache.DeletedFinalStateUnknown); ok {
			object = unknown.Obj
		}
		if pod, ok := object.(*v1.Pod); ok && kube.WantsVGPU(pod) {
			pending.remove(pod)
			p.misses.remove(uidOf(pod))
			p.state.gone(uidOf(pod))
		}
	}
	_, err := informer.AddEventHandlerWithOptions(cache.ResourceEventHandlerFuncs{
		AddFunc:    seen,
		UpdateFunc: func(_, updated any) { seen(updated) },
		DeleteFunc: gone,
	}, handlerOptions(ctx))
	return err
}

// watchGPUNodes reads the GPUNodes until ctx ends. It waits for nothing: the resource may be absent at start, and the
// informer tries again.
func (p *Plugin) watchGPUNodes(ctx context.Context, client dynamic.Interface, pending *pending) error {
	informer := dynamicinformer.NewFilteredDynamicInformer(client, v1alpha1.GPUNodes, metav1.NamespaceAll, 0, cache.Indexers{}, nil).Informer()
	if err := informer.SetWatchErrorHandlerWithContext(p.explainUnread); err != nil {
		return err
	}
	update := func(object any) {
		if p.readGPUNode(ctx, object) {
			pending.activate()
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
	go informer.RunWithContext(ctx)
	go func() {
		if cache.WaitForCacheSync(ctx.Done(), registration.HasSynced) {
			p.state.setUnread("")
			pending.activate()
		}
	}()
	return nil
}

func handlerOptions(ctx context.Context) cache.HandlerOptions {
	logger := klog.FromContext(ctx)
	return cache.HandlerOptions{Logger: &logger}
}

func (p *Plugin) explainUnread(ctx context.Context, r *cache.Reflector, err error) {
	p.noteUnread(err)
	cache.DefaultWatchErrorHandler(ctx, r, err)
}

// noteUnread notes why the GPUNodes cannot be read, for the events of pods that wait for them.
func (p *Plugin) noteUnread(err error) {
	why := fmt.Sprintf("the GPUNodes cannot be read: %v", err)
	if apierrors.IsNotFound(err) || meta.IsNoMatchError(err) {
		why = "the GPUNodes cannot be read: the CustomResourceDefinition gpunodes.tandem-gpu.io is not installed"
	}
	p.state.setUnread(why)
}

// readGPUNode takes over what a GPUNode says and reports whether that changes anything for pods.
func (p *Plugin) readGPUNode(ctx context.Context, object any) bool {
	g, err := gpuNodeOf(object)
	if err != nil {
		klog.FromContext(ctx).Error(err, "Ignoring a GPUNode that cannot be decoded")
		return false
	}
	var devices []vgpu.Device
	problem := ""
	if !meta.IsStatusConditionTrue(g.Status.Conditions, v1alpha1.ConditionReady) {
		problem = notReady
	}
	if devices, err = kube.Devices(g); err != nil {
		devices, problem = nil, brokenGPUNode
		klog.FromContext(ctx).Error(err, "The node takes no vGPU pods", "node", g.Name)
	} else if len(devices) == 0 {
		problem = noGPUs
	}
	changed, err := p.state.setInventory(g.Name, devices, problem)
	if err != nil {
		klog.FromContext(ctx).Error(err, "The node takes no vGPU pods", "node", g.Name)
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
	if _, err := p.state.setInventory(g.GetName(), nil, noGPUs); err != nil {
		klog.FromContext(ctx).Error(err, "Removing the devices of a node failed", "node", g.GetName())
	}
}

func gpuNodeOf(object any) (*v1alpha1.GPUNode, error) {
	u, ok := object.(*unstructured.Unstructured)
	if !ok {
		return nil, fmt.Errorf("read GPUNode: it is a %T", object)
	}
	g := &v1alpha1.GPUNode{}
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(u.Object, g); err != nil {
		return nil, fmt.Errorf("read GPUNode %s: %w", u.GetName(), err)
	}
	return g, nil
}
