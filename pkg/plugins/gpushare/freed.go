package gpushare

import (
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"
	"sync"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	corev1helpers "k8s.io/component-helpers/scheduling/corev1"
	"k8s.io/klog/v2"
	fwk "k8s.io/kube-scheduler/framework"

	"github.com/tandem-gpu/tandem/internal/cluster/kube"
	"github.com/tandem-gpu/tandem/pkg/api/v1alpha1"
	"github.com/tandem-gpu/tandem/pkg/placement"
	"github.com/tandem-gpu/tandem/pkg/vgpu"
)

// afterPodLeft has a pod tried again when a pod with vGPUs left a node, unless the pod certainly has no room on that node now. Other
// nodes did not change, so they refuse it as before, unless the pod that left was a member of a gang: the others may be evictable now.
// The answer is Queue where the plugin is in doubt (decision 0038).
func (p *Plugin) afterPodLeft(_ klog.Logger, pod *v1.Pod, old, _ any) (fwk.QueueingHint, error) {
	former, ok := old.(*v1.Pod)
	switch {
	case !ok:
		return fwk.Queue, nil
	case !kube.WantsVGPU(former):
		return fwk.QueueSkip, nil
	}
	node, k := nodeOf(former), p.pending.kindOf(pod)
	if node == "" || p.isMember(former) || p.inDoubt(pod, k) {
		return fwk.Queue, nil
	}
	if k.broken || !p.departure.answer(former, k, func() bool { return p.state.mayFit(k, node, former) }) {
		return fwk.QueueSkip, nil
	}
	return fwk.Queue, nil
}

// inDoubt reports whether the room on one node alone does not say if a pod can be placed. That is so for pods that other plugins plan, or
// have a hold of their own, for members of a group, and for pods whose last attempt ended after Filter.
func (p *Plugin) inDoubt(pod *v1.Pod, k *kind) bool {
	if k.sized || p.isMember(pod) || !p.pending.isSure(pod.UID) {
		return true
	}
	_, held := p.Held(kube.UIDOf(pod))
	return held
}

// mayHaveRoom reports whether a pod may have room on the node now; only a no is certain.
func (p *Plugin) mayHaveRoom(pod *v1.Pod, node string) bool {
	k := p.pending.kindOf(pod)
	return p.inDoubt(pod, k) || !k.broken && p.state.mayFit(k, node, nil)
}

// kind is what decides whether a pod fits: pods of one kind fit on the same nodes. A kind is immutable.
type kind struct {
	// key is the same for all pods of the kind.
	key     string
	request vgpu.Request
	// least is the lowest priority of the pods whose room the pod cannot get by eviction.
	least int32
	// broken: the request is malformed, and only a change of the pod itself helps.
	broken bool
	// sized: the amounts follow from a rate or a latency, and change with what is known of the workload.
	sized bool
}

// manyFreed is as how many nodes a node counts on which room became free: many pods that wait are asked about it. A pod that a cut search
// misses is tried again as all are.
const manyFreed = 1000

func newKind(pod *v1.Pod) *kind {
	r, err := readRequest(pod)
	if err != nil {
		return &kind{broken: true}
	}
	r.Steps = placement.StepsOn(manyFreed)
	k := &kind{least: r.Priority}
	if never := pod.Spec.PreemptionPolicy; never != nil && *never == v1.PreemptNever {
		k.least = math.MinInt32
	}
	for _, key := range []string{v1alpha1.AnnotationRate, v1alpha1.AnnotationMaxLatency} {
		if _, ok := pod.Annotations[key]; ok {
			k.sized = true
		}
	}
	if r.Ends != 0 {
		r.Ends = 1 // passes most holds: the time of the next attempt is unknown
	}
	// No promise counts: the rule by which it holds may change with what is known of workloads.
	r.UID, r.Pod, r.Tenancy, r.Preferences, r.Host = "", "", vgpu.Tenancy{}, nil, vgpu.Room{}
	k.request = r
	k.key = fmt.Sprintf("%d %+v", k.least, r)
	return k
}

// mayFit reports whether pods of a kind may fit on the node now: into what is free, and into the room of pods that they could evict. The
// node is as the last PreFilter saw it, with the pods that the scheduler gave devices since, less the pods that are gone by the informer's
// store, and less left. Only a no is certain, and it stays true until more of the node becomes free.
func (s *state) mayFit(k *kind, name string, left *v1.Pod) bool {
	s.mu.RLock()
	defer s.mu.RUnlock()
	n := s.nodes[name]
	if n == nil {
		return true
	}
	before := n.cached.Load()
	if n.empty == nil || before == nil || before.ledger == nil || !before.settled {
		return true
	}
	b := builder{state: s, node: n, out: &occupancy{ledger: n.empty.Clone()}}
	doubt := false
	book := func(a *vgpu.Assignment) {
		if left != nil && a.UID == kube.UIDOf(left) || !s.keeps(a, k.least) {
			return
		}
		doubt = doubt || b.out.ledger.Add(*a) != nil
	}
	since := maps.Clone(n.since)
	before.ledger.Each(func(a *vgpu.Assignment) {
		delete(since, a.UID)
		book(a)
	})
	for _, uid := range slices.Sorted(maps.Keys(since)) {
		a := since[uid]
		book(&a)
	}
	b.addHolds()
	return doubt || len(b.out.strays) > 0 || placement.Fit(b.out.ledger, &k.request) == nil
}

// given notes devices that the scheduler gave to a pod of the node, and forgets those that the cached occupancy shows or whose pods are
// gone. The caller holds the write lock.
func (n *node) given(s *state, a vgpu.Assignment) {
	if n.since == nil {
		n.since = map[vgpu.UID]vgpu.Assignment{}
	}
	n.since[a.UID] = a
	maps.DeleteFunc(n.since, func(_ vgpu.UID, a vgpu.Assignment) bool { return !s.keeps(&a, math.MinInt32) })
	if o := n.cached.Load(); o != nil && o.ledger != nil {
		o.ledger.Each(func(a *vgpu.Assignment) { delete(n.since, a.UID) })
	}
}

// keeps reports whether the pod of an assignment is still on its node or on the way to it, and has at least a priority. The caller holds
// a lock.
func (s *state) keeps(a *vgpu.Assignment, least int32) bool {
	namespace, name, _ := strings.Cut(a.Pod, "/")
	seen, err := s.pods.Pods(namespace).Get(name)
	if err != nil || kube.UIDOf(seen) != a.UID || corev1helpers.PodPriority(seen) < least {
		return false
	}
	if seen.Spec.NodeName == "" {
		return s.reservations[a.UID].Node == a.Node
	}
	return seen.Spec.NodeName == a.Node && seen.Status.Phase != v1.PodSucceeded && seen.Status.Phase != v1.PodFailed
}

// departure remembers, for the last pod that left, which kinds may use its room: the framework asks for each pending pod. The answers
// hold for that event alone. Room that becomes free later is an event of its own.
type departure struct {
	mu      sync.Mutex
	of      *v1.Pod
	answers map[string]bool
}

func (d *departure) answer(of *v1.Pod, k *kind, ask func() bool) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.of != of {
		d.of, d.answers = of, map[string]bool{}
	}
	may, known := d.answers[k.key]
	if !known {
		may = ask()
		d.answers[k.key] = may
	}
	return may
}

// knownKind is the kind of a pod as it was when it was read.
type knownKind struct {
	pod *v1.Pod
	*kind
}

// kindOf returns the kind of a pod, and remembers it for pods that wait.
func (w *pending) kindOf(pod *v1.Pod) *kind {
	w.mu.Lock()
	defer w.mu.Unlock()
	known := w.pods[pod.UID]
	if known == nil {
		return newKind(pod)
	}
	if known.read.pod != pod {
		known.read = knownKind{pod, newKind(pod)}
	}
	return known.read.kind
}

// noteUnsure notes that the refusals of the last noted attempt to place a pod do not say what helps: a later attempt begins, or ended
// after Filter.
func (w *pending) noteUnsure(uid types.UID) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if known := w.pods[uid]; known != nil {
		known.sure = false
		w.file(known)
	}
}

// isSure reports whether the refusals of the last attempt say what helps the pod.
func (w *pending) isSure(uid types.UID) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	known := w.pods[uid]
	return known != nil && known.sure
}

// activateOn makes run activate soon the pods that may have room on a node of which room became free. It leaves out pods whose attempt
// begins after this call, since that attempt sees the room.
func (w *pending) activateOn(node string) {
	w.request(func() {
		w.moment++
		w.noteFreed(node, w.moment)
	})
}

// activateAfterNomination is activateOn for the room of a pod that went elsewhere than it was nominated to, or is nominated elsewhere. The framework may end the
// nomination after this call, so no attempt is left out.
func (w *pending) activateAfterNomination(node string) {
	w.request(func() { w.noteFreed(node, math.MaxUint64) })
}

// noteFreed notes that room of a node became free. The caller holds the lock.
func (w *pending) noteFreed(node string, moment uint64) {
	if w.freed == nil {
		w.freed = map[string]uint64{}
	}
	w.freed[node] = max(w.freed[node], moment)
}

// takeFreed returns the pods that may have room on the nodes of which room became free since their last attempt began, by name, and ends
// those requests.
func (w *pending) takeFreed(may func(pod *v1.Pod, node string) bool) map[string]*v1.Pod {
	w.mu.Lock()
	freed, waiting := w.freed, make([]waiting, 0, len(w.pods))
	w.freed = nil
	for _, known := range w.pods {
		if len(freed) > 0 {
			waiting = append(waiting, *known)
		}
	}
	w.mu.Unlock()
	pods := map[string]*v1.Pod{}
	for i := range waiting {
		pod := waiting[i].pod
		for node, moment := range freed {
			if waiting[i].began < moment && may(pod, node) {
				pods[klog.KObj(pod).String()] = pod
				break
			}
		}
	}
	return pods
}
