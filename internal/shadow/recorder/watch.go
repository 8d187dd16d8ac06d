package recorder

import (
	"context"
	"fmt"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/dynamic/dynamicinformer"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"

	"github.com/tandem-gpu/tandem/internal/cluster/learning"
	"github.com/tandem-gpu/tandem/internal/cluster/podgroup"
	"github.com/tandem-gpu/tandem/internal/cluster/served"
	"github.com/tandem-gpu/tandem/pkg/api/v1alpha1"
	"github.com/tandem-gpu/tandem/pkg/interference"
	"github.com/tandem-gpu/tandem/pkg/placement"
	"github.com/tandem-gpu/tandem/pkg/vgpu"
)

// Resources are those of which Watch must know whether the API server has them.
func Resources() []schema.GroupVersionResource {
	return append(podgroup.Resources(), v1alpha1.GPUNodes, v1alpha1.WorkloadProfiles)
}

// Cluster is how to read a cluster.
type Cluster struct {
	Client  kubernetes.Interface
	Dynamic dynamic.Interface
	// Served says which of Resources the API server has.
	Served served.Set
	// Every is the pause between two looks at the nodes.
	Every time.Duration
}

// watch follows a cluster for a Recorder.
type watch struct {
	Cluster
	recorder *Recorder
	typed    informers.SharedInformerFactory
	nodes    cache.SharedIndexInformer
	pods     cache.SharedIndexInformer
	gpuNodes cache.SharedIndexInformer // nil without the resource
	profiles cache.SharedIndexInformer // nil without the resource
}

// Watch returns a Recorder that follows a cluster until ctx ends, once its caches are full.
func Watch(ctx context.Context, o Options, c Cluster) (*Recorder, error) {
	w := &watch{Cluster: c, typed: informers.NewSharedInformerFactoryWithOptions(c.Client, 0, informers.WithTransform(condense))}
	w.nodes, w.pods = w.typed.Core().V1().Nodes().Informer(), w.typed.Core().V1().Pods().Informer()
	gangs, err := podgroup.New(ctx, podgroup.Options{Pods: w.pods, Served: podgroup.ServedOf(c.Served), Dynamic: c.Dynamic})
	if err != nil {
		return nil, fmt.Errorf("watch gangs: %w", err)
	}
	o.Gangs = gangs
	if c.Served[v1alpha1.GPUNodes] {
		if w.gpuNodes, err = w.custom(v1alpha1.GPUNodes, func() runtime.Object { return &v1alpha1.GPUNode{} }); err != nil {
			return nil, err
		}
	}
	if c.Served[v1alpha1.WorkloadProfiles] {
		if w.profiles, err = w.custom(v1alpha1.WorkloadProfiles, func() runtime.Object { return &v1alpha1.WorkloadProfile{} }); err != nil {
			return nil, err
		}
		if err := w.learn(&o); err != nil {
			return nil, err
		}
	}
	if w.recorder, err = New(o); err != nil {
		return nil, err
	}
	return w.recorder, w.start(ctx, gangs)
}

// learn makes slowdowns be predicted from what WorkloadProfiles say. Nothing is learned beside, and nothing written.
func (w *watch) learn(o *Options) error {
	model, err := interference.ByName("default")
	if err != nil {
		return err
	}
	know := learning.New(learning.Options{Model: model, MaxProfiles: o.Config.MaxPods, Frozen: true})
	o.Workloads = func(pod *v1.Pod) uint32 { return uint32(know.Snapshot().Number(pod)) }
	o.Config.Neighbours = &placement.Neighbours{
		Model: model, Weights: placement.EvenWeights,
		Tenant: func(n interference.Workload, model string, part vgpu.MilliGPU) interference.Tenant {
			return know.Snapshot().Tenant(n, model, part)
		},
		Known: func(n interference.Workload) bool { return know.Snapshot().Known(n) },
	}
	_, err = w.profiles.AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc:    func(object any) { onProfile(object, know.Profile) },
		UpdateFunc: func(_, object any) { onProfile(object, know.Profile) },
		DeleteFunc: func(object any) {
			onProfile(last(object), func(p *v1alpha1.WorkloadProfile) { know.ProfileGone(p.Namespace, p.Name) })
		},
	})
	return err
}

func onProfile(object any, do func(*v1alpha1.WorkloadProfile)) {
	if p, ok := object.(*v1alpha1.WorkloadProfile); ok {
		do(p)
	}
}

// last returns the last known state of an object that is gone.
func last(object any) any {
	if gone, ok := object.(cache.DeletedFinalStateUnknown); ok {
		return gone.Obj
	}
	return object
}

// custom returns an informer of objects of Tandem, as their Go types.
func (w *watch) custom(of schema.GroupVersionResource, empty func() runtime.Object) (cache.SharedIndexInformer, error) {
	informer := dynamicinformer.NewFilteredDynamicInformer(w.Dynamic, of, metav1.NamespaceAll, 0, cache.Indexers{}, nil).Informer()
	err := informer.SetTransform(func(object any) (any, error) {
		u, ok := object.(*unstructured.Unstructured)
		if !ok {
			return object, nil
		}
		typed := empty()
		if err := runtime.DefaultUnstructuredConverter.FromUnstructured(u.Object, typed); err != nil {
			return u, nil //nolint:nilerr // the API server checks these objects; one that it lets through all the same is not known
		}
		return typed, nil
	})
	if err != nil {
		return nil, fmt.Errorf("watch %s: %w", of.Resource, err)
	}
	return informer, nil
}

// condense drops what the recorder does not read.
func condense(object any) (any, error) {
	if m, err := meta.Accessor(object); err == nil {
		m.SetManagedFields(nil)
	}
	return object, nil
}

// start fills the caches, and looks at the nodes from then on.
func (w *watch) start(ctx context.Context, gangs *podgroup.Set) error {
	_, err := w.pods.AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc:    func(object any) { w.pod(ctx, object) },
		UpdateFunc: func(_, object any) { w.pod(ctx, object) },
		DeleteFunc: func(object any) {
			if pod, ok := last(object).(*v1.Pod); ok {
				w.recorder.Gone(pod)
			}
		},
	})
	if err != nil {
		return fmt.Errorf("watch pods: %w", err)
	}
	w.typed.StartWithContext(ctx)
	synced := []cache.InformerSynced{w.nodes.HasSynced, w.pods.HasSynced, gangs.Synced}
	for _, informer := range []cache.SharedIndexInformer{w.gpuNodes, w.profiles} {
		if informer != nil {
			go informer.RunWithContext(ctx)
			synced = append(synced, informer.HasSynced)
		}
	}
	if !cache.WaitForCacheSync(ctx.Done(), synced...) {
		return fmt.Errorf("fill the caches: %w", context.Cause(ctx))
	}
	w.recorder.Look(ctx, w.view(), w.allPods)
	go w.look(ctx)
	return nil
}

func (w *watch) pod(ctx context.Context, object any) {
	if pod, ok := object.(*v1.Pod); ok {
		w.recorder.Pod(ctx, pod)
	}
}

// look looks at the nodes until ctx ends.
func (w *watch) look(ctx context.Context) {
	tick := time.NewTicker(w.Every)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
			w.recorder.Look(ctx, w.view(), w.allPods)
		}
	}
}

// view returns what the caches say of the nodes.
func (w *watch) view() view {
	nodes, err := w.typed.Core().V1().Nodes().Lister().List(labels.Everything())
	if err != nil {
		klog.Background().Error(err, "Listing the nodes of the cache failed")
	}
	v := view{nodes: byName(nodes), gpuNodes: map[string]*v1alpha1.GPUNode{}}
	if w.gpuNodes != nil {
		for _, object := range w.gpuNodes.GetStore().List() {
			if g, ok := object.(*v1alpha1.GPUNode); ok {
				v.gpuNodes[g.Name] = g
			}
		}
	}
	return v
}

// allPods returns the pods of the cache.
func (w *watch) allPods() []*v1.Pod {
	pods, err := w.typed.Core().V1().Pods().Lister().List(labels.Everything())
	if err != nil {
		klog.Background().Error(err, "Listing the pods of the cache failed")
	}
	return pods
}
