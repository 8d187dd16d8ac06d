package fakekubelet

import (
	"context"
	"maps"
	"slices"
	"sync"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
)

// containerKind says when a container runs.
type containerKind string

const (
	ordinaryInit containerKind = "init"
	sidecar      containerKind = "sidecar"
	app          containerKind = "app"
)

// container is a container of a pod with its kind.
type container struct {
	*v1.Container
	kind containerKind
}

// containersOf returns the containers of a pod in the order of their start.
func containersOf(pod *v1.Pod) []container {
	all := make([]container, 0, len(pod.Spec.InitContainers)+len(pod.Spec.Containers))
	for i := range pod.Spec.InitContainers {
		c := container{&pod.Spec.InitContainers[i], ordinaryInit}
		if c.RestartPolicy != nil && *c.RestartPolicy == v1.ContainerRestartPolicyAlways {
			c.kind = sidecar
		}
		all = append(all, c)
	}
	for i := range pod.Spec.Containers {
		all = append(all, container{&pod.Spec.Containers[i], app})
	}
	return all
}

// podSet holds the pods that the API server bound to the node.
type podSet struct {
	mu     sync.Mutex
	synced bool
	pods   map[types.UID]*v1.Pod
	// stop ends the worker of an admitted pod and waits for it.
	stop map[types.UID]func()
}

func newPodSet() *podSet {
	return &podSet{pods: map[types.UID]*v1.Pod{}, stop: map[types.UID]func(){}}
}

// set takes a pod in and returns its former state, nil for a new one.
func (s *podSet) set(pod *v1.Pod) (before *v1.Pod) {
	s.mu.Lock()
	defer s.mu.Unlock()
	before = s.pods[pod.UID]
	s.pods[pod.UID] = pod
	return before
}

// get returns the pod as last seen, nil when it is gone.
func (s *podSet) get(uid types.UID) *v1.Pod {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.pods[uid]
}

func (s *podSet) remove(uid types.UID) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.pods, uid)
}

// work starts a pod's worker.
func (s *podSet) work(ctx context.Context, uid types.UID, worker func(context.Context)) {
	ctx, cancel := context.WithCancel(ctx)
	done := make(chan struct{})
	go func() {
		defer close(done)
		worker(ctx)
	}()
	s.mu.Lock()
	defer s.mu.Unlock()
	s.stop[uid] = func() { cancel(); <-done }
}

// end ends a pod's worker, if it has one, and waits for it.
func (s *podSet) end(uid types.UID) {
	s.mu.Lock()
	stop := s.stop[uid]
	delete(s.stop, uid)
	s.mu.Unlock()
	if stop != nil {
		stop()
	}
}

// endAll ends all workers.
func (s *podSet) endAll() {
	s.mu.Lock()
	uids := slices.Collect(maps.Keys(s.stop))
	s.mu.Unlock()
	for _, uid := range uids {
		s.end(uid)
	}
}

// active returns the pods that have not ended, and whether the first list is complete.
func (s *podSet) active() (uids sets.Set[string], known bool) {
	uids = sets.New[string]()
	for _, pod := range s.GetActivePods() {
		uids.Insert(string(pod.UID))
	}
	return uids, s.Synced()
}

// GetPods returns all pods, by UID.
func (s *podSet) GetPods() []*v1.Pod {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.SortedFunc(maps.Values(s.pods), func(a, b *v1.Pod) int {
		if a.UID < b.UID {
			return -1
		}
		return 1
	})
}

// GetActivePods returns the pods that have not ended, by UID.
func (s *podSet) GetActivePods() []*v1.Pod {
	return slices.DeleteFunc(s.GetPods(), ended)
}

// GetPodByName returns a pod by its name.
func (s *podSet) GetPodByName(namespace, name string) (*v1.Pod, bool) {
	for _, pod := range s.GetPods() {
		if pod.Namespace == namespace && pod.Name == name {
			return pod, true
		}
	}
	return nil, false
}

func ended(pod *v1.Pod) bool {
	return pod.Status.Phase == v1.PodSucceeded || pod.Status.Phase == v1.PodFailed
}
