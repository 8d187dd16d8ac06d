package podgroup

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	utilfeature "k8s.io/apiserver/pkg/util/feature"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"
	fwk "k8s.io/kube-scheduler/framework"
	"k8s.io/kubernetes/pkg/features"

	"github.com/tandem-gpu/tandem/internal/cluster/membership"
)

// discoveryTimeout bounds a request to the API server for its PodGroups. A larger bound delays the start where the API
// server does not answer.
const discoveryTimeout = 10 * time.Second

// Options are what a Set reads from.
type Options struct {
	// Pods is the informer of all pods that have not ended. The caller runs it.
	Pods cache.SharedIndexInformer
	// Served says what the set reads beside the pods.
	Served Served
	// Queued says that the scheduler's queue knows the PodGroups of Kubernetes itself, and tries their members in one
	// cycle.
	Queued bool
	// Dynamic reads the PodGroups and ElasticTargets; unused where the API server has none.
	Dynamic dynamic.Interface
	// Client reads the pods and Jobs that say which members are done; nil where none ever are.
	Client kubernetes.Interface
}

// Set knows the gangs of a cluster. Several goroutines may use it.
type Set struct {
	served Served
	queued bool
	pods   cache.Store
	// groups are the PodGroups, by source.
	groups map[Source]*groups
	synced []cache.InformerSynced
	// targets are the ElasticTargets, nil where the API server has none. Gangs do not wait for them: see workers.
	targets *targets
	// endings are nil where no members are ever done.
	endings *endings

	mu sync.Mutex
	// known are the pods that name a gang, by "namespace/name".
	known     map[string]*member
	gangs     map[Ref]*gang
	listeners []func(Ref)
}

// Watch returns a Set for a scheduler, with the PodGroups that its API server has now. See New.
func Watch(ctx context.Context, handle fwk.Handle) (*Set, error) {
	if handle.KubeConfig() == nil {
		return nil, fmt.Errorf("watch gangs: the scheduler has no kubeconfig to watch PodGroups with")
	}
	short := rest.CopyConfig(handle.KubeConfig())
	short.Timeout = discoveryTimeout
	asked, err := discovery.NewDiscoveryClientForConfig(short)
	if err != nil {
		return nil, fmt.Errorf("watch gangs: %w", err)
	}
	served, err := Discover(ctx, asked)
	if err != nil {
		return nil, fmt.Errorf("watch gangs: %w", err)
	}
	client, err := dynamic.NewForConfig(handle.KubeConfig())
	if err != nil {
		return nil, fmt.Errorf("watch gangs: %w", err)
	}
	pods := handle.SharedInformerFactory().Core().V1().Pods().Informer()
	queued := utilfeature.DefaultFeatureGate.Enabled(features.GenericWorkload)
	return New(ctx, Options{Pods: pods, Served: served, Queued: queued, Dynamic: client, Client: handle.ClientSet()})
}

// nameGroup returns what the scheduler keeps of a pod. The function drops managedFields, as upstream does. To a group
// of scheduling.k8s.io that names no PodGroup it adds the empty name. The scheduler of Kubernetes 1.37 panics at a pod
// of such a group; with the empty name, which no PodGroup has, the pod waits for ever.
func nameGroup(object any) (any, error) {
	if accessor, err := meta.Accessor(object); err == nil {
		accessor.SetManagedFields(nil)
	}
	if pod, ok := object.(*v1.Pod); ok && pod.Spec.SchedulingGroup != nil && pod.Spec.SchedulingGroup.PodGroupName == nil {
		pod.Spec.SchedulingGroup.PodGroupName = new(string)
	}
	return object, nil
}

// New returns a Set that follows pods and PodGroups until ctx ends. New does not wait for the first lists: see Synced.
// If the scheduler's queue knows PodGroups, the caller must start the informer of pods after New.
func New(ctx context.Context, o Options) (*Set, error) {
	s := &Set{
		served: o.Served, queued: o.Queued, pods: o.Pods.GetStore(),
		groups: map[Source]*groups{}, known: map[string]*member{}, gangs: map[Ref]*gang{},
	}
	if o.Queued {
		if err := o.Pods.SetTransform(nameGroup); err != nil {
			return nil, fmt.Errorf("watch pods: %w", err)
		}
	}
	logger := klog.FromContext(ctx)
	registration, err := o.Pods.AddEventHandlerWithOptions(cache.ResourceEventHandlerFuncs{
		AddFunc:    s.podChanged,
		UpdateFunc: func(_, pod any) { s.podChanged(pod) },
		DeleteFunc: s.podChanged,
	}, cache.HandlerOptions{Logger: &logger})
	if err != nil {
		return nil, fmt.Errorf("watch pods: %w", err)
	}
	s.synced = append(s.synced, registration.HasSynced)
	if o.Served.Native != "" {
		err = s.watchGroups(ctx, Native, o.Dynamic, o.Served.native())
	}
	if o.Served.XK8s && err == nil {
		err = s.watchGroups(ctx, XK8s, o.Dynamic, membership.XK8sPodGroups)
	}
	if err != nil {
		return nil, fmt.Errorf("watch PodGroups: %w", err)
	}
	if o.Served.Elastic {
		if err := s.watchTargets(ctx, o.Dynamic); err != nil {
			return nil, fmt.Errorf("watch ElasticTargets: %w", err)
		}
	}
	if o.Client != nil {
		s.watchEndings(ctx, o.Client)
	}
	go func() {
		if cache.WaitForCacheSync(ctx.Done(), s.Synced) {
			s.notifyAll()
		}
	}()
	return s, nil
}

// Served returns which PodGroups the set reads.
func (s *Set) Served() Served { return s.served }

// Queues reports whether the scheduler's queue knows the gangs of a source itself. The queue then keeps their members
// out until enough of them exist, and tries all in one cycle.
func (s *Set) Queues(source Source) bool { return source == Native && s.queued }

// Synced reports whether the set has read all pods and PodGroups that existed at New. Until then Gang returns a Problem
// that Waits. When Synced becomes true the set calls the listeners of OnChange for every gang.
func (s *Set) Synced() bool {
	return !slices.ContainsFunc(s.synced, func(synced cache.InformerSynced) bool { return !synced() })
}

// OnChange calls a function with each gang after a change: a new, removed or changed member, a bind included, or a
// change of its PodGroup. The set knows the change by then. A change of only a pod's status causes no call, unless the
// pod ended. The calls come from the goroutines of informers, several at a time.
func (s *Set) OnChange(listener func(Ref)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.listeners = append(s.listeners, listener)
}

func (s *Set) notify(refs []Ref) {
	s.mu.Lock()
	listeners := slices.Clip(s.listeners)
	s.mu.Unlock()
	for _, ref := range refs {
		for _, listener := range listeners {
			listener(ref)
		}
	}
}

func (s *Set) notifyAll() { s.notify(s.Refs()) }

// Refs returns the gangs that have members, in order.
func (s *Set) Refs() []Ref {
	s.mu.Lock()
	refs := make([]Ref, 0, len(s.gangs))
	for ref := range s.gangs {
		refs = append(refs, ref)
	}
	s.mu.Unlock()
	slices.SortFunc(refs, Ref.Compare)
	return refs
}

// Of returns the gang of a pod by the pod's own fields: that of the first served source that the pod names. A pod that
// declares a gang without a name is in the gang with the empty name of its namespace, which Gang refuses. A pod in a
// group of Kubernetes that the set does not understand is in that gang too. A pod whose PodGroup is of an API that the
// server did not have at New is in a gang that Gang refuses, unless it names another. The scheduler never places a pod of a
// group alone.
func (s *Set) Of(pod *v1.Pod) (Ref, bool) { return s.served.Of(pod) }

// Of is Set.Of for a set of what the API server has.
func (s Served) Of(pod *v1.Pod) (Ref, bool) {
	names := membership.GangsOf(pod)
	switch {
	case names.Grouped && names.Native == "", s.Native != "" && names.Native != "":
		return Ref{Source: Native, Namespace: pod.Namespace, Name: names.Native}, true
	case s.XK8s && names.XK8s != "":
		return Ref{Source: XK8s, Namespace: pod.Namespace, Name: names.XK8s}, true
	case names.Label != "" || membership.SpeaksOfGang(pod):
		return Ref{Source: Label, Namespace: pod.Namespace, Name: names.Label}, true
	case names.Grouped:
		return Ref{Source: Native, Namespace: pod.Namespace, Name: names.Native}, true
	case names.XK8s != "": // the API server may have it already, and this process, which reads what there was at its start, not know of it yet
		return Ref{Source: XK8s, Namespace: pod.Namespace, Name: names.XK8s}, true
	}
	return Ref{}, false
}

// See adds a pod that the informer's store has and whose event may still be on its way, as PreEnqueue does. Gang counts
// it from now on. See calls no listener, since the event does.
func (s *Set) See(pod *v1.Pod) {
	key := pod.Namespace + "/" + pod.Name
	s.mu.Lock()
	defer s.mu.Unlock()
	if m := s.known[key]; m != nil && m.pod.UID == pod.UID {
		return
	}
	if now := s.stored(key); now != nil {
		refs := s.follow(key, now)
		now.unnotified = union(now.unnotified, refs)
	}
}

// Gang returns what the API says of a gang now. The error is a *Problem. The gang is not nil wherever a member exists,
// also beside a Problem. The gang then has the members, and MinCount 0 where the number is unknown.
func (s *Set) Gang(ref Ref) (*Gang, error) {
	unread := s.unread(ref.Source)
	s.mu.Lock()
	defer s.mu.Unlock()
	g := s.gangs[ref]
	if g == nil {
		return nil, &Problem{Message: "no member exists", Waits: true}
	}
	if !g.built {
		g.gang, g.problem = s.build(g)
		g.built = true
	}
	switch {
	case unread != "":
		return g.gang, &Problem{Message: unread, Waits: true}
	case g.problem != nil:
		return g.gang, g.problem
	}
	return g.gang, nil
}
