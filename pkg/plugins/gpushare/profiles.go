package gpushare

import (
	"context"
	"fmt"

	v1 "k8s.io/api/core/v1"
	apiequality "k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/dynamic/dynamicinformer"
	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"

	"github.com/tandem-gpu/tandem/internal/cluster/workloads"
	"github.com/tandem-gpu/tandem/pkg/api/v1alpha1"
)

// watchProfiles reads the WorkloadProfiles until ctx ends. Pods wait for the first list, or its failure: without
// profiles the plugin knows no workloads, and the informer tries again.
func (p *Plugin) watchProfiles(ctx context.Context, client dynamic.Interface) error {
	informer := dynamicinformer.NewFilteredDynamicInformer(client, v1alpha1.WorkloadProfiles, metav1.NamespaceAll, 0, cache.Indexers{}, nil).Informer()
	if err := informer.SetWatchErrorHandlerWithContext(p.withoutProfiles); err != nil {
		return err
	}
	if err := informer.SetTransform(decodeProfile); err != nil {
		return err
	}
	registration, err := informer.AddEventHandlerWithOptions(cache.ResourceEventHandlerDetailedFuncs{
		AddFunc:    func(object any, initial bool) { p.readProfile(ctx, nil, object, initial) },
		UpdateFunc: func(old, updated any) { p.readProfile(ctx, old, updated, false) },
		DeleteFunc: func(object any) { p.forgetProfile(ctx, object) },
	}, handlerOptions(ctx))
	if err != nil {
		return err
	}
	go informer.RunWithContext(ctx)
	go func() {
		if awaitSynced(ctx, registration) {
			p.profilesKnown.Store(true)
			p.profilesRead()
		}
	}()
	return nil
}

// profilesRead opens the plugin for pods.
func (p *Plugin) profilesRead() {
	if !p.profiled.Swap(true) {
		p.answered[aboutProfiles].announce()
		p.pending.activate()
	}
}

// withoutProfiles opens the plugin for pods although it cannot read the WorkloadProfiles.
func (p *Plugin) withoutProfiles(ctx context.Context, r *cache.Reflector, err error) {
	switch absent := apierrors.IsNotFound(err) || meta.IsNoMatchError(err); {
	case !absent:
		cache.DefaultWatchErrorHandler(ctx, r, err)
	case !p.profiled.Load():
		klog.FromContext(ctx).Info("Nothing is known of workloads until the CustomResourceDefinition workloadprofiles.tandem-gpu.io is installed")
	}
	p.profilesRead()
}

// decodeProfile turns a WorkloadProfile into its type, which takes less memory than a tree of maps. A broken one stays
// as it is.
func decodeProfile(object any) (any, error) {
	u, ok := object.(*unstructured.Unstructured)
	if !ok {
		return object, nil
	}
	profile := &v1alpha1.WorkloadProfile{}
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(u.Object, profile); err != nil {
		return u, nil //nolint:nilerr // readProfile says so, with the name
	}
	profile.ManagedFields = nil
	return profile, nil
}

// readProfile takes over what a WorkloadProfile says. The scheduler's own learned values are no news.
func (p *Plugin) readProfile(ctx context.Context, old, object any, initial bool) {
	profile, ok := object.(*v1alpha1.WorkloadProfile)
	if !ok {
		name := ""
		if m, err := meta.Accessor(object); err == nil {
			name = m.GetNamespace() + "/" + m.GetName()
		}
		klog.FromContext(ctx).Error(nil, "Ignoring a WorkloadProfile that cannot be decoded", "profile", name, "type", fmt.Sprintf("%T", object))
		return
	}
	p.state.learner.Profile(profile)
	before, known := old.(*v1alpha1.WorkloadProfile)
	if !known {
		before = &v1alpha1.WorkloadProfile{}
	}
	if initial || !apiequality.Semantic.DeepEqual(before.Spec, profile.Spec) {
		p.announce(profile.Namespace, profile.Name)
	}
}

func (p *Plugin) forgetProfile(ctx context.Context, object any) {
	if unknown, ok := object.(cache.DeletedFinalStateUnknown); ok {
		object = unknown.Obj
	}
	m, err := meta.Accessor(object)
	if err != nil {
		klog.FromContext(ctx).Error(err, "Ignoring the end of a WorkloadProfile that cannot be decoded")
		return
	}
	p.state.learner.ProfileGone(m.GetNamespace(), m.GetName())
	profile, ok := object.(*v1alpha1.WorkloadProfile)
	if !ok || !apiequality.Semantic.DeepEqual(profile.Spec, v1alpha1.WorkloadProfileSpec{}) {
		p.announce(m.GetNamespace(), m.GetName())
	}
}

// announce makes a declaration count for the next pods, and has those tried again that it may help.
func (p *Plugin) announce(namespace, name string) {
	path := namespace + "/" + name
	p.news.add(path)
	p.pending.activateFor(path)
}

// watchNamespaces has the pods of a namespace tried again when its own curves are allowed from now on.
func (p *Plugin) watchNamespaces(ctx context.Context, informer cache.SharedIndexInformer) error {
	_, err := informer.AddEventHandlerWithOptions(cache.ResourceEventHandlerFuncs{
		AddFunc: func(object any) {
			if namespace, ok := object.(*v1.Namespace); ok && workloads.AllowsOwnCurves(namespace) {
				p.pending.activateIn(namespace.Name) // the pods of a new namespace may have been seen before it
			}
		},
		UpdateFunc: func(old, updated any) {
			before, okBefore := old.(*v1.Namespace)
			now, ok := updated.(*v1.Namespace)
			if ok && okBefore && workloads.AllowsOwnCurves(now) && !workloads.AllowsOwnCurves(before) {
				p.pending.activateIn(now.Name)
			}
		},
	}, handlerOptions(ctx))
	return err
}
