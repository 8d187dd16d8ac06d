package integration

import (
	"sync"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"

	"github.com/tandem-gpu/tandem/internal/cluster/podgroup"
	"github.com/tandem-gpu/tandem/pkg/api/v1alpha1"
)

// xk8sLabel names the PodGroup of the scheduler plugins that a pod belongs to.
const xk8sLabel = "scheduling.x-k8s.io/pod-group"

// gangHistory records when members of gangs were bound and when they went.
type gangHistory struct {
	mu    sync.Mutex
	gangs map[podgroup.Ref]*gangPast
}

// gangPast is the history of one gang.
type gangPast struct {
	bound map[string]bool
	// first is when the first member was bound while none was, and assembled when the number of bound members was reached
	// for the first time since.
	first     time.Time
	assembled map[int]time.Time
	most      int
}

func watchGangs(t *testing.T, client kubernetes.Interface) *gangHistory {
	t.Helper()
	h := &gangHistory{gangs: map[podgroup.Ref]*gangPast{}}
	informer := podInformer(client)
	if _, err := informer.AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc: h.see, UpdateFunc: func(_, updated any) { h.see(updated) }, DeleteFunc: h.miss,
	}); err != nil {
		t.Fatal(err)
	}
	go informer.RunWithContext(t.Context())
	if !cache.WaitForCacheSync(t.Context().Done(), informer.HasSynced) {
		t.Fatal("the pods cannot be watched")
	}
	return h
}

// gangOf returns the gang that a pod of the tests belongs to, whatever declares it.
func gangOf(p *v1.Pod) (podgroup.Ref, bool) {
	ref := podgroup.Ref{Namespace: p.Namespace}
	switch {
	case p.Spec.SchedulingGroup != nil:
		ref.Name = *p.Spec.SchedulingGroup.PodGroupName
	case p.Labels[xk8sLabel] != "":
		ref.Name = p.Labels[xk8sLabel]
	default:
		ref.Name = p.Labels[v1alpha1.LabelGang]
	}
	return ref, ref.Name != ""
}

func (h *gangHistory) see(object any) {
	p, ok := object.(*v1.Pod)
	if !ok || p.Spec.NodeName == "" {
		return
	}
	ref, ok := gangOf(p)
	if !ok {
		return
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	past := h.gangs[ref]
	if past == nil {
		past = &gangPast{bound: map[string]bool{}, assembled: map[int]time.Time{}}
		h.gangs[ref] = past
	}
	if past.bound[p.Name] {
		return
	}
	if len(past.bound) == 0 {
		past.first, past.assembled = time.Now(), map[int]time.Time{}
	}
	past.bound[p.Name] = true
	past.most = max(past.most, len(past.bound))
	past.assembled[len(past.bound)] = time.Now()
}

func (h *gangHistory) miss(object any) {
	if gone, ok := object.(cache.DeletedFinalStateUnknown); ok {
		object = gone.Obj
	}
	p, ok := object.(*v1.Pod)
	if !ok {
		return
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	if ref, ok := gangOf(p); ok && h.gangs[ref] != nil {
		delete(h.gangs[ref].bound, p.Name)
	}
}

// most returns the largest number of members of a gang that were ever bound at one time.
func (h *gangHistory) most(namespace, name string) int {
	h.mu.Lock()
	defer h.mu.Unlock()
	if past := h.gangs[podgroup.Ref{Namespace: namespace, Name: name}]; past != nil {
		return past.most
	}
	return 0
}

// took returns the time from the first bind of a gang, since it was last without any, to that of its n-th member.
func (h *gangHistory) took(namespace, name string, n int) (time.Duration, bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	past := h.gangs[podgroup.Ref{Namespace: namespace, Name: name}]
	if past == nil {
		return 0, false
	}
	at, ok := past.assembled[n]
	return at.Sub(past.first), ok
}
