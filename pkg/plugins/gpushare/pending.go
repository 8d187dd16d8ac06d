package gpushare

import (
	"context"
	"maps"
	"slices"
	"sync"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
	corelisters "k8s.io/client-go/listers/core/v1"
	"k8s.io/klog/v2"
	fwk "k8s.io/kube-scheduler/framework"

	"github.com/tandem-gpu/tandem/pkg/vgpu"
)

// activationPause is the least time between two activations. Shorter lets pending pods start sooner after a change, and makes the
// scheduler try all of them for every GPUNode of a cluster that comes up. A user who waits for a GPU does not notice a second.
const activationPause = time.Second

// pending knows the vGPU pods that wait, and activates those that a change of the inventory or of the workloads may
// help. The framework's own events cannot do it: they may outrun the plugin's reading of the objects.
type pending struct {
	activator fwk.PodActivator
	lister    corelisters.PodLister
	changed   chan struct{}

	mu   sync.Mutex
	pods map[types.UID]*waiting
	// short counts the pods that wait for room.
	short int
	// all, promised, profiles and namespaces say which pods to activate: all, those that a promise keeps waiting, those of
	// WorkloadProfiles, and those of namespaces.
	all, promised        bool
	profiles, namespaces sets.Set[string]
	// freed are the nodes of which room became free without an event of the framework, with the moment of the last time. moment
	// counts these times.
	freed  map[string]uint64
	moment uint64
	// groups and named have all pods for the answers about departures: see file.
	groups map[string]*group
	named  map[types.UID]*v1.Pod
}

// waiting is a pod that waits, and why the plugin refused its last attempt: on some node others hold the room, on some a
// promise would break.
type waiting struct {
	pod           *v1.Pod
	room, promise bool
	// last is the last attempt, nil before the first.
	last *attempt
	// sure: the last attempt ended with the refusals of all nodes.
	sure bool
	// began is the moment of pending at which the last attempt began.
	began uint64
	// onDevices is that of the last attempt.
	onDevices bool
	// read is the kind of the pod.
	read knownKind
	// filed is the group of the pod, "" for none.
	filed string
}

// attempt is how an attempt to place a pod ended. An attempt is immutable.
type attempt struct {
	at time.Time
	// nodes counts those that were refused, by reason: see snapshot.Refused.
	nodes map[string]int
	// illegal is why no device can meet the request: see snapshot.Refused.
	illegal string
	// nearest is the nearest miss on devices, nil for none.
	nearest *vgpu.Refusal
	// roomAt is the max-slowdown with which there was room: see snapshot.Refused.
	roomAt int64
	// onDevices: the pod lacks devices on all nodes, so only the departure of a pod with vGPUs can help.
	onDevices bool
}

func newPending(activator fwk.PodActivator, lister corelisters.PodLister) *pending {
	return &pending{
		activator: activator, lister: lister, changed: make(chan struct{}, 1), pods: map[types.UID]*waiting{},
		groups: map[string]*group{}, named: map[types.UID]*v1.Pod{}, profiles: sets.Set[string]{}, namespaces: sets.Set[string]{},
	}
}

func (w *pending) add(pod *v1.Pod) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if known := w.pods[pod.UID]; known != nil {
		known.sure = known.sure && maps.Equal(known.pod.Labels, pod.Labels) // they may have made it a member of a gang
		known.pod = pod
		w.file(known)
		return
	}
	w.enter(pod)
}

// enter makes the entry of a pod. The caller holds the lock.
func (w *pending) enter(pod *v1.Pod) *waiting {
	known := &waiting{pod: pod}
	w.pods[pod.UID] = known
	w.file(known)
	return known
}

func (w *pending) remove(pod *v1.Pod) {
	w.mu.Lock()
	defer w.mu.Unlock()
	known := w.pods[pod.UID]
	if known == nil {
		return
	}
	if known.room {
		w.short--
	}
	w.unfile(known)
	delete(w.pods, pod.UID)
}

// begin notes that an attempt to place a pod begins, before it reads what is free.
func (w *pending) begin(uid types.UID) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if known := w.pods[uid]; known != nil {
		known.began = w.moment
	}
}

// note keeps an attempt and its refusals; none for another reason than room. It does not keep a pod that is gone by now.
func (w *pending) note(pod *v1.Pod, refusals []vgpu.Refusal, last *attempt) {
	w.mu.Lock()
	defer w.mu.Unlock()
	known := w.pods[pod.UID]
	if known == nil {
		seen, err := w.lister.Pods(pod.Namespace).Get(pod.Name)
		if err != nil || seen.UID != pod.UID || seen.Spec.NodeName != "" {
			return
		}
		known = w.enter(pod)
	}
	known.last, known.sure, known.onDevices = last, true, last != nil && last.onDevices
	w.file(known)
	if known.room {
		w.short--
	}
	known.room = slices.ContainsFunc(refusals, func(r vgpu.Refusal) bool { return r.Helps == vgpu.EvictionHelps })
	known.promise = slices.ContainsFunc(refusals, func(r vgpu.Refusal) bool { return r.Reason == vgpu.PromiseBroken })
	if known.room {
		w.short++
	}
}

// list returns the pods that wait, in no order.
func (w *pending) list() []waiting {
	w.mu.Lock()
	defer w.mu.Unlock()
	pods := make([]waiting, 0, len(w.pods))
	for _, known := range w.pods {
		pods = append(pods, *known)
	}
	return pods
}

// waits reports whether any pod waits for room.
func (w *pending) waits() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.short > 0
}

// activate makes run activate all pods soon. Like the three below, it never blocks.
func (w *pending) activate() { w.request(func() { w.all = true }) }

// activatePromised is for the pods that a promise keeps waiting.
func (w *pending) activatePromised() { w.request(func() { w.promised = true }) }

// activateFor is for the pods of a WorkloadProfile, "namespace/name", and for those that a promise keeps waiting.
func (w *pending) activateFor(profile string) {
	w.request(func() {
		w.profiles.Insert(profile)
		w.promised = true
	})
}

// activateIn is for the pods of a namespace.
func (w *pending) activateIn(namespace string) {
	w.request(func() { w.namespaces.Insert(namespace) })
}

func (w *pending) request(note func()) {
	w.mu.Lock()
	note()
	w.mu.Unlock()
	select {
	case w.changed <- struct{}{}:
	default: // a request waits already
	}
}

// run activates until ctx ends. If the learner has news for the rule, it activates the pods that a promise keeps
// waiting once in rulePause. may reports whether a pod may have room on a node.
func (w *pending) run(ctx context.Context, outdated func() bool, may func(pod *v1.Pod, node string) bool) {
	tick := time.NewTicker(rulePause)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
			if outdated() {
				w.activatePromised()
			}
			continue
		case <-w.changed:
			w.activateRequested(klog.FromContext(ctx), may)
		}
		select {
		case <-ctx.Done():
			return
		case <-time.After(activationPause):
		}
	}
}

func (w *pending) activateRequested(logger klog.Logger, may func(pod *v1.Pod, node string) bool) {
	pods := w.takeRequested()
	maps.Copy(pods, w.takeFreed(may))
	if len(pods) > 0 {
		w.activator.Activate(logger, pods)
	}
}

// takeRequested returns the pods to activate, by name, and ends the requests.
func (w *pending) takeRequested() map[string]*v1.Pod {
	w.mu.Lock()
	defer w.mu.Unlock()
	pods := map[string]*v1.Pod{}
	for _, known := range w.pods {
		if w.all || w.promised && known.promise || w.namespaces.Has(known.pod.Namespace) || len(w.profiles) > 0 && w.profiles.Has(profilePath(known.pod)) {
			pods[klog.KObj(known.pod).String()] = known.pod
		}
	}
	w.all, w.promised = false, false
	clear(w.profiles)
	clear(w.namespaces)
	return pods
}
