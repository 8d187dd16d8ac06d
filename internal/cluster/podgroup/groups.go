package podgroup

import (
	"context"
	"fmt"
	"reflect"
	"sync/atomic"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/dynamic/dynamicinformer"
	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"

	"github.com/tandem-gpu/tandem/internal/cluster/membership"
)

// groups are the PodGroups of one API group.
type groups struct {
	resource schema.GroupVersionResource
	store    cache.Store
	synced   cache.InformerSynced
	// failed says why the last listing of the PodGroups failed.
	failed atomic.Pointer[string]
}

// declared is what the informer keeps of a PodGroup.
type declared struct {
	metav1.ObjectMeta
	membership.PodGroup
	// problem says what is wrong with the object, "" for nothing.
	problem string
}

// condense returns what the informer keeps of a PodGroup.
func condense(object any) (any, error) {
	u, ok := object.(*unstructured.Unstructured)
	if !ok {
		return object, nil
	}
	d := &declared{ObjectMeta: metav1.ObjectMeta{
		Namespace: u.GetNamespace(), Name: u.GetName(), UID: u.GetUID(), ResourceVersion: u.GetResourceVersion(),
	}}
	var err error
	if d.PodGroup, err = membership.ReadPodGroup(u); err != nil {
		d.problem = err.Error()
	}
	return d, nil
}

// watchGroups follows the PodGroups of a source until ctx ends.
func (s *Set) watchGroups(ctx context.Context, source Source, client dynamic.Interface, resource schema.GroupVersionResource) error {
	informer := dynamicinformer.NewFilteredDynamicInformer(client, resource, metav1.NamespaceAll, 0, cache.Indexers{}, nil).Informer()
	g := &groups{resource: resource, store: informer.GetStore()}
	if err := informer.SetTransform(condense); err != nil {
		return err
	}
	err := informer.SetWatchErrorHandlerWithContext(func(ctx context.Context, r *cache.Reflector, err error) {
		g.explain(err)
		cache.DefaultWatchErrorHandler(ctx, r, err)
	})
	if err != nil {
		return err
	}
	logger := klog.FromContext(ctx)
	registration, err := informer.AddEventHandlerWithOptions(cache.ResourceEventHandlerFuncs{
		AddFunc:    func(object any) { s.groupChanged(source, nil, object) },
		UpdateFunc: func(old, object any) { s.groupChanged(source, old, object) },
		DeleteFunc: func(object any) { s.groupChanged(source, nil, object) },
	}, cache.HandlerOptions{Logger: &logger})
	if err != nil {
		return err
	}
	g.synced = registration.HasSynced
	s.groups[source], s.synced = g, append(s.synced, g.synced)
	go informer.RunWithContext(ctx)
	return nil
}

// groupChanged handles a change of a PodGroup; old is nil for a creation or a deletion.
func (s *Set) groupChanged(source Source, old, object any) {
	key, err := cache.DeletionHandlingObjectToName(object)
	if err != nil {
		return // no object has this name
	}
	ref := Ref{Source: source, Namespace: key.Namespace, Name: key.Name}
	s.mu.Lock()
	g := s.gangs[ref]
	if g != nil {
		g.built = false
	}
	s.mu.Unlock()
	if g != nil && !sameGroup(old, object) {
		s.notify([]Ref{ref})
	}
}

// sameGroup reports whether two states of a PodGroup declare the same.
func sameGroup(old, object any) bool {
	a, ok := old.(*declared)
	b, okB := object.(*declared)
	return ok && okB && a.problem == b.problem && reflect.DeepEqual(a.PodGroup, b.PodGroup)
}

// find returns the PodGroup of a gang, or a problem: what is wrong with it, or that it does not exist.
func (g *groups) find(ref Ref) (*declared, *Problem) {
	object, ok, err := g.store.GetByKey(ref.Namespace + "/" + ref.Name)
	d, isGroup := object.(*declared)
	switch {
	case err != nil || !ok || !isGroup:
		return nil, &Problem{Message: missing(ref), Waits: true}
	case d.problem != "":
		return d, &Problem{Message: d.problem}
	}
	return d, nil
}

// missing describes that the PodGroup of a gang does not exist, and what the user can do.
func missing(r Ref) string {
	text := fmt.Sprintf("PodGroup %s of %s does not exist: create it", r, r.Source)
	if r.Source == XK8s {
		text += ", or remove the label " + membership.LabelPodGroup + " from the pods"
	}
	return text
}

// Lacks describes that the API server does not have the PodGroups of a gang, "" where it has them or the gang needs none.
func (s Served) Lacks(r Ref) string {
	if r.Source == Label || r.Source == Native && s.Native != "" || r.Source == XK8s && s.XK8s {
		return ""
	}
	return unserved(r)
}

// unserved describes that the API server does not have the PodGroups of a gang, and what the user can do.
func unserved(r Ref) string {
	if r.Source == XK8s {
		return fmt.Sprintf("%s names PodGroup %s, and the API server serves no PodGroups of %s that this scheduler reads: serve %s, or remove the label",
			FieldOf(r.Source), r.Name, r.Source, membership.XK8sPodGroups.Version)
	}
	return fmt.Sprintf("%s names PodGroup %s, and the API server serves no PodGroups of %s that this scheduler reads, neither in %s nor in %s: "+
		"serve them, or leave the field out", FieldOf(r.Source), r.Name, r.Source, membership.NativePodGroups.Version, membership.StablePodGroups.Version)
}

// explain keeps the error of the PodGroups' informer, for the gangs that wait.
func (g *groups) explain(err error) {
	why := err.Error()
	if apierrors.IsNotFound(err) || meta.IsNoMatchError(err) {
		why = "the API server does not have them any more"
	}
	g.failed.Store(&why)
}

// unread describes what a gang of a source waits for before the set can read it, "" for nothing.
func (s *Set) unread(source Source) string {
	if s.Synced() {
		return ""
	}
	g := s.groups[source]
	if g == nil || g.synced() {
		return "the pods and PodGroups are not read yet"
	}
	text := "the PodGroups of " + g.resource.Group + " are not read yet"
	if why := g.failed.Load(); why != nil {
		text += ": " + *why
	}
	return text
}
