package gpushare

import (
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"
	fwk "k8s.io/kube-scheduler/framework"
	"k8s.io/kubernetes/pkg/scheduler/framework/plugins/names"

	"github.com/tandem-gpu/tandem/internal/cluster/kube"
	"github.com/tandem-gpu/tandem/pkg/vgpu"
)

// The framework asks the hints about every waiting pod at every event, which takes microseconds for each of them. If the feature gate
// SchedulerPreQueueingHints is on, it first asks a plugin once which pods an event concerns, and passes over all others, for all plugins.
// So the answers here name each pod that the event may help for any plugin (decision 0038).

// unmoved are the plugins whose refusals no pod changes that comes or leaves.
var unmoved = sets.New(names.NodeAffinity, names.NodeName, names.NodeUnschedulable, names.TaintToleration, names.VolumeBinding, names.VolumeZone,
	names.NodeDeclaredFeatures)

// local are the plugins whose refusals only pods of the same node change.
var local = sets.New(names.NodeResourcesFit, names.NodePorts, names.NodeVolumeLimits)

// lacksDevices reports whether only devices that become free can make a node take a pod that a plugin refused there, or nothing that
// leaves can. A node with devices that lacks something else first is no such node: the pod must be tried again once that is free, since
// only then this plugin can say what is missing next.
func (p *Plugin) lacksDevices(by string, node fwk.NodeInfo) bool {
	return by == Name || unmoved.Has(by) || local.Has(by) && p.state.occupancyOf(node).ledger == nil
}

// group has the waiting pods of one kind that lack devices on all nodes.
type group struct {
	kind *kind
	pods map[types.UID]*v1.Pod
}

// file puts a waiting pod where the answers look for it: into its group, or among those that each answer names. The caller holds the lock.
func (w *pending) file(known *waiting) {
	key := ""
	if known.sure && known.onDevices {
		if known.read.pod != known.pod {
			known.read = knownKind{known.pod, newKind(known.pod)}
		}
		if k := known.read.kind; !k.sized && !k.broken {
			key = k.key
		}
	}
	if known.filed != key {
		w.unfile(known)
	}
	known.filed = key
	if key == "" {
		w.named[known.pod.UID] = known.pod
		return
	}
	g := w.groups[key]
	if g == nil {
		g = &group{kind: known.read.kind, pods: map[types.UID]*v1.Pod{}}
		w.groups[key] = g
	}
	g.pods[known.pod.UID] = known.pod
}

// unfile takes a pod from where file put it. The caller holds the lock.
func (w *pending) unfile(known *waiting) {
	delete(w.named, known.pod.UID)
	if g := w.groups[known.filed]; g != nil {
		if delete(g.pods, known.pod.UID); len(g.pods) == 0 {
			delete(w.groups, known.filed)
		}
	}
}

// concerned collects the names of the pods that an answer names.
type concerned sets.Set[types.NamespacedName]

func (c concerned) add(pod *v1.Pod) {
	sets.Set[types.NamespacedName](c).Insert(types.NamespacedName{Namespace: pod.Namespace, Name: pod.Name})
}

func (c concerned) has(pod *v1.Pod) bool {
	return sets.Set[types.NamespacedName](c).Has(types.NamespacedName{Namespace: pod.Namespace, Name: pod.Name})
}

// whoMayGain names the pods that the departure of a pod may help.
func (p *Plugin) whoMayGain(_ klog.Logger, old, _ any) (fwk.PreQueueingHintResult, error) {
	former, ok := old.(*v1.Pod)
	if !ok {
		return fwk.PreQueueingHintResult{AllPods: true}, nil
	}
	node, hasDevices := nodeOf(former), kube.WantsVGPU(former)
	if node == "" || hasDevices && p.isMember(former) {
		return fwk.PreQueueingHintResult{AllPods: true}, nil
	}
	all := p.alwaysNamed()
	for _, g := range p.pending.grouped(p.state.heldFor(), all) {
		if hasDevices && p.departure.answer(former, g.kind, func() bool { return p.state.mayFit(g.kind, node, former) }) {
			p.pending.addAll(g, all)
		}
	}
	return fwk.PreQueueingHintResult{Pods: sets.Set[types.NamespacedName](all).UnsortedList()}, nil
}

// whoMayJoin names the pods that the arrival of a pod on a node may help: those of which other plugins refused the place for the
// sake of pods elsewhere.
func (p *Plugin) whoMayJoin(klog.Logger, any, any) (fwk.PreQueueingHintResult, error) {
	return fwk.PreQueueingHintResult{Pods: sets.Set[types.NamespacedName](p.alwaysNamed()).UnsortedList()}, nil
}

// afterPodCame has no pod tried again: a pod that comes frees no devices.
func afterPodCame(klog.Logger, *v1.Pod, any, any) (fwk.QueueingHint, error) {
	return fwk.QueueSkip, nil
}

// alwaysNamed returns the waiting pods without vGPUs, and those with vGPUs of which too little is known.
func (p *Plugin) alwaysNamed() concerned {
	all := concerned{}
	for _, pod := range p.plain() {
		all.add(pod)
	}
	p.pending.mu.Lock()
	defer p.pending.mu.Unlock()
	for _, pod := range p.pending.named {
		all.add(pod)
	}
	return all
}

// grouped returns the groups, and adds the pods with a hold to all.
func (w *pending) grouped(held []vgpu.UID, all concerned) []group {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, uid := range held {
		if known := w.pods[types.UID(uid)]; known != nil {
			all.add(known.pod)
		}
	}
	groups := make([]group, 0, len(w.groups))
	for _, g := range w.groups {
		groups = append(groups, *g)
	}
	return groups
}

func (w *pending) addAll(g group, all concerned) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, pod := range g.pods {
		all.add(pod)
	}
}

// heldFor returns the pods for which other plugins keep room.
func (s *state) heldFor() []vgpu.UID {
	s.mu.RLock()
	defer s.mu.RUnlock()
	all := make([]vgpu.UID, 0, len(s.holds))
	for uid := range s.holds {
		all = append(all, uid)
	}
	return all
}

// nodeOf returns the node of a pod, else the one that it was nominated to, "" for none.
func nodeOf(pod *v1.Pod) string {
	if pod.Spec.NodeName != "" {
		return pod.Spec.NodeName
	}
	return pod.Status.NominatedNodeName
}

// isMember reports whether a pod belongs to a gang.
func (p *Plugin) isMember(pod *v1.Pod) bool {
	return pod.Spec.SchedulingGroup != nil || p.state.plannedElsewhere(pod)
}

// plainPods is the index of the informer's waiting pods without vGPUs. The store has a pod before any handler runs, so the index has each
// pod that the scheduler queues.
const plainPods = Name + "/waiting-without-vgpus"

func indexPlain(object any) ([]string, error) {
	if pod, ok := object.(*v1.Pod); ok && pod.Spec.NodeName == "" && !kube.WantsVGPU(pod) {
		return []string{""}, nil
	}
	return nil, nil
}

// indexPlainPods has an informer keep the index, once for all profiles.
func indexPlainPods(informer cache.SharedIndexInformer) error {
	if _, has := informer.GetIndexer().GetIndexers()[plainPods]; has {
		return nil
	}
	return informer.AddIndexers(cache.Indexers{plainPods: indexPlain})
}

// plainOf returns the pods of the index.
func plainOf(indexer cache.Indexer) []*v1.Pod {
	objects, err := indexer.ByIndex(plainPods, "")
	if err != nil {
		panic(err) // newPlugin made the index
	}
	pods := make([]*v1.Pod, 0, len(objects))
	for _, object := range objects {
		if pod, ok := object.(*v1.Pod); ok {
			pods = append(pods, pod)
		}
	}
	return pods
}
