package podgroup

import (
	"context"
	"fmt"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/dynamic/dynamicinformer"
	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"

	"github.com/tandem-gpu/tandem/internal/cluster/membership"
	"github.com/tandem-gpu/tandem/pkg/api/v1alpha1"
)

// targets are the ElasticTargets of a cluster, nil where the API server has none.
type targets struct {
	store  cache.Store
	synced cache.InformerSynced
}

// target is what the informer keeps of an ElasticTarget.
type target struct {
	metav1.ObjectMeta
	source   Source
	workers  int
	min, max int
	reason   string
}

func condenseTarget(object any) (any, error) {
	u, ok := object.(*unstructured.Unstructured)
	if !ok {
		return object, nil
	}
	t := &target{ObjectMeta: metav1.ObjectMeta{Namespace: u.GetNamespace(), Name: u.GetName(), UID: u.GetUID(), ResourceVersion: u.GetResourceVersion()}}
	var read v1alpha1.ElasticTarget
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(u.Object, &read); err == nil {
		t.source, t.workers = Source(read.Spec.Source), int(read.Spec.Workers)
		t.min, t.max, t.reason = int(read.Spec.Min), int(read.Spec.Max), read.Status.Reason
	} // a target that cannot be read is that of no gang
	return t, nil
}

// watchTargets follows the ElasticTargets until ctx ends.
func (s *Set) watchTargets(ctx context.Context, client dynamic.Interface) error {
	informer := dynamicinformer.NewFilteredDynamicInformer(client, v1alpha1.ElasticTargets, metav1.NamespaceAll, 0, cache.Indexers{}, nil).Informer()
	if err := informer.SetTransform(condenseTarget); err != nil {
		return err
	}
	logger := klog.FromContext(ctx)
	registration, err := informer.AddEventHandlerWithOptions(cache.ResourceEventHandlerFuncs{
		AddFunc: s.targetChanged,
		UpdateFunc: func(old, now any) {
			a, okA := old.(*target)
			b, okB := now.(*target)
			if !okA || !okB || a.source != b.source || a.workers != b.workers {
				s.targetChanged(now)
			}
		},
		DeleteFunc: s.targetChanged,
	}, cache.HandlerOptions{Logger: &logger})
	if err != nil {
		return err
	}
	s.targets = &targets{store: informer.GetStore(), synced: registration.HasSynced}
	go informer.RunWithContext(ctx)
	go func() {
		if cache.WaitForCacheSync(ctx.Done(), registration.HasSynced) {
			s.rebuild(func(g *gang) bool { return g.gang != nil && g.gang.Sizes != nil })
		}
	}()
	return nil
}

// targetChanged handles a change of an ElasticTarget.
func (s *Set) targetChanged(object any) {
	key, err := cache.DeletionHandlingObjectToName(object)
	if err != nil {
		return // no object has this name
	}
	s.rebuild(func(g *gang) bool { return g.ref.Namespace == key.Namespace && g.ref.Name == key.Name })
}

// rebuild has some gangs built anew.
func (s *Set) rebuild(is func(*gang) bool) {
	s.mu.Lock()
	var refs []Ref
	for ref, g := range s.gangs {
		if is(g) {
			g.built = false
			refs = append(refs, ref)
		}
	}
	s.mu.Unlock()
	slices.SortFunc(refs, Ref.Compare)
	s.notify(refs)
}

// Elastic returns the elastic gangs that have members, in order.
func (s *Set) Elastic() []Ref {
	s.mu.Lock()
	defer s.mu.Unlock()
	var refs []Ref
	for ref, g := range s.gangs {
		if !g.built {
			g.gang, g.problem = s.build(g)
			g.built = true
		}
		if g.gang.Sizes != nil {
			refs = append(refs, ref)
		}
	}
	slices.SortFunc(refs, Ref.Compare)
	return refs
}

// Target is an ElasticTarget: how many members of a gang should run.
type Target struct {
	Ref
	Workers, Min, Max int
	// Reason for the number, a word.
	Reason string
}

// Targets returns the ElasticTargets, in the order of their gangs. Those that cannot be read are left out.
func (s *Set) Targets() []Target {
	if s.targets == nil {
		return nil
	}
	var all []Target
	for _, object := range s.targets.store.List() {
		if t, ok := object.(*target); ok && t.source != "" {
			all = append(all, Target{Ref{Source: t.source, Namespace: t.Namespace, Name: t.Name}, t.workers, t.min, t.max, t.reason})
		}
	}
	slices.SortFunc(all, func(a, b Target) int { return a.Compare(b.Ref) })
	return all
}

// hold leaves the members out of an elastic gang that its target holds back.
func (s *Set) hold(out *Gang, members []*member) {
	if out.Sizes == nil {
		return
	}
	out.Workers, out.Targeted, out.whyHeld = s.workers(out.Ref, out.Sizes, len(members))
	list := make([]membership.Worker, len(members))
	for i, m := range members {
		list[i] = membership.Worker{Rank: m.rank, OnNode: m.pod.Spec.NodeName != "", Leaving: m.pod.DeletionTimestamp != nil}
	}
	held, _ := membership.Surplus(list, out.Workers)
	for _, i := range slices.Backward(held) {
		out.held = append(out.held, out.Members[i].UID)
		out.Members, out.Ranks = slices.Delete(out.Members, i, i+1), slices.Delete(out.Ranks, i, i+1)
	}
	slices.Sort(out.held)
}

// workers returns the number of members that an elastic gang of so many members should have, whether a target says so, and
// why the others are held back. A target that is no legal number counts as the next smaller one, whoever wrote it.
func (s *Set) workers(ref Ref, sizes []int, members int) (workers int, targeted bool, why string) {
	least := fmt.Sprintf("gang %s is elastic and has its least number of members, %d: ", ref, sizes[0])
	switch {
	case s.targets == nil:
		return sizes[0], false, least + "the API server has no ElasticTargets; install the CustomResourceDefinition and the controller, or remove the annotation " +
			v1alpha1.AnnotationElasticWorkers
	case !s.targets.synced():
		return sizes[0], false, least + "the ElasticTargets are not read yet"
	}
	object, ok, err := s.targets.store.GetByKey(ref.Namespace + "/" + ref.Name)
	t, isTarget := object.(*target)
	switch {
	case err != nil || !ok || !isTarget:
		return sizes[0], false, least + "the controller has not made its ElasticTarget yet"
	case t.source != ref.Source:
		return sizes[0], false, least + fmt.Sprintf("the ElasticTarget of that name is for the gang by %s; rename one of the two gangs", t.source)
	}
	workers = sizes[0]
	for _, size := range sizes {
		if size <= t.workers {
			workers = size
		}
	}
	return workers, true, fmt.Sprintf("gang %s should have %d of its %d members now, says its ElasticTarget: the pod waits until the target grows", ref, workers, members)
}
