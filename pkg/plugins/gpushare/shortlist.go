package gpushare

import (
	"slices"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/component-helpers/scheduling/corev1/nodeaffinity"
	fwk "k8s.io/kube-scheduler/framework"

	"github.com/tandem-gpu/tandem/internal/cluster/kube"
	"github.com/tandem-gpu/tandem/pkg/placement"
	"github.com/tandem-gpu/tandem/pkg/vgpu"
)

// shortlistSize is the number of nodes that PreFilter gives the framework for one pod. The framework evaluates all
// nodes of a list of up to 100, whatever the percentageOfNodesToScore, and NormalizeScore keeps as many scores
// distinct. With fewer, other plugins would more often refuse all of them, and the scheduler would try the pod again
// without a list.
const shortlistSize = 100

// shortlistedKey names the shortlist of a pod in its CycleState.
const shortlistedKey fwk.StateKey = Name + "/shortlisted"

// shortlisted is the shortlist of a pod by node, for Score. A shortlist does not change later.
type shortlisted map[string]candidate

// candidate is a node with its score, which holds for one ledger.
type candidate struct {
	fwk.NodeScore
	ledger *vgpu.Node
}

// Clone returns the same shortlist.
func (s shortlisted) Clone() fwk.StateData { return s }

// scoredBefore returns the score of a node on the shortlist, and whether it still holds for the ledger.
func scoredBefore(cs fwk.CycleState, name string, ledger *vgpu.Node) (int64, bool) {
	data, err := cs.Read(shortlistedKey)
	if err != nil {
		return 0, false
	}
	list, _ := data.(shortlisted)
	c, ok := list[name]
	return c.Score, ok && ledger != nil && c.ledger == ledger
}

// shortlist returns the best nodes for the request, nil for no restriction. There is no restriction in small clusters,
// for pods whose last shortlist failed, and for pods with a hold, whose node is fixed. There is none either where no
// node fits, since preemption must see all nodes then, and in the cycle of a pod group, which has no PostFilter to try
// again.
func (p *Plugin) shortlist(cs fwk.CycleState, pod *v1.Pod, r *vgpu.Request, nodes []fwk.NodeInfo) sets.Set[string] {
	if len(nodes) <= shortlistSize || cs.IsPodGroupSchedulingCycle() || p.misses.has(r.UID) {
		return nil
	}
	if _, held := p.Held(r.UID); held {
		return nil
	}
	best := p.state.best(nodes, r, newDemand(pod, r.Host))
	if len(best) == 0 {
		return nil
	}
	names, list := make(sets.Set[string], len(best)), make(shortlisted, len(best))
	for _, c := range best {
		names.Insert(c.Name)
		list[c.Name] = c
	}
	cs.Write(shortlistedKey, list)
	return names
}

// best returns the nodes with the highest scores, best first, up to shortlistSize, of those that could meet the demand.
func (s *state) best(nodes []fwk.NodeInfo, r *vgpu.Request, d demand) []candidate {
	s.ranking.mu.Lock()
	defer s.ranking.mu.Unlock()
	s.mu.RLock()
	defer s.mu.RUnlock()
	entries := s.nodeEntries(nodes)
	if len(r.Containers) == 0 {
		if spared := s.ranking.withoutGPUs(&d); len(spared) > 0 {
			return spared
		}
	}
	scores := s.ranking.scoresOf(r, s.ruling())
	entrants := s.entrants(nodes, r, &d)
	best := make([]candidate, 0, shortlistSize+1)
	scores.Compare(entrants, r, func(i int) bool { return d.couldBeMet(nodes[i]) }, func(i int, score int64) {
		next := candidate{fwk.NodeScore{Name: entries[i].node.name, Score: score}, entrants[i].Node}
		if len(best) == shortlistSize && next.compare(best[shortlistSize-1]) > 0 || !d.couldBeMet(nodes[i]) {
			return
		}
		at, _ := slices.BinarySearchFunc(best, next, candidate.compare)
		best = slices.Insert(best, at, next)
		best = best[:min(len(best), shortlistSize)]
	})
	return best
}

// entrants returns the nodes that the pod selects and that may serve the request, by place. The caller holds ranking.mu and a lock of the state.
func (s *state) entrants(nodes []fwk.NodeInfo, r *vgpu.Request, d *demand) []placement.Entrant {
	k := &s.ranking
	k.entrants = slices.Grow(k.entrants[:0], len(nodes))[:len(nodes)]
	for i, info := range nodes {
		k.entrants[i] = placement.Entrant{}
		if at := &k.entries[i]; at.node != nil && d.selects(info.Node()) {
			if o := s.of(at.node, info); o.serves(r) { // the epoch may have grown since refresh: the informer showed a bind meanwhile
				k.entrants[i] = placement.Entrant{Node: o.ledger, State: k.stateOf(at, o.ledger)}
			}
		}
	}
	for i := range k.entrants { // the ranking may have cleared its cache meanwhile
		if at := &k.entrants[i]; at.Node != nil && !k.scores.Has(at.State) {
			at.State = k.stateOf(&k.entries[i], at.Node)
		}
	}
	return k.entrants
}

// compare orders candidates as better does.
func (c candidate) compare(o candidate) int { return better(c.NodeScore, o.NodeScore) }

// demand is the request of a pod to a node beside GPUs, for a quick check of what in-tree plugins would refuse. The
// check only keeps hopeless nodes off the shortlist: the plugins decide.
type demand struct {
	selection
	host              vgpu.Room
	toleratesCordoned bool
}

func newDemand(pod *v1.Pod, host vgpu.Room) demand {
	return demand{selection: selectionOf(pod), host: host, toleratesCordoned: len(pod.Spec.Tolerations) > 0}
}

// selection is which nodes a pod selects by their labels and names.
type selection struct {
	affinity nodeaffinity.RequiredNodeAffinity
	anyNode  bool
}

func selectionOf(pod *v1.Pod) selection {
	selects := pod.Spec.Affinity != nil && pod.Spec.Affinity.NodeAffinity != nil || len(pod.Spec.NodeSelector) > 0
	return selection{affinity: nodeaffinity.GetRequiredNodeAffinity(pod), anyNode: !selects}
}

// selects reports whether the pod may use a node. An affinity that cannot be read is another plugin's to refuse.
func (s *selection) selects(node *v1.Node) bool {
	if s.anyNode {
		return true
	}
	matches, err := s.affinity.Match(node)
	return matches || err != nil
}

// countedRoom returns the free part of a host by the count of NodeResourcesFit. The count may have wrapped, see roomOf.
func countedRoom(info fwk.NodeInfo) vgpu.Room {
	allocatable, used := info.GetAllocatable(), info.GetRequested()
	return vgpu.Room{
		MilliCPU: allocatable.GetMilliCPU() - used.GetMilliCPU(), Memory: vgpu.Bytes(allocatable.GetMemory() - used.GetMemory()),
	}
}

func (d *demand) couldBeMet(info fwk.NodeInfo) bool {
	switch {
	case info.Node().Spec.Unschedulable && !d.toleratesCordoned:
		return false
	case len(info.GetPods()) >= info.GetAllocatable().GetAllowedPodNumber():
		return false
	case !d.host.Within(countedRoom(info)):
		return false
	}
	return d.selects(info.Node())
}

// missed notes that other plugins refused the pod's whole shortlist, if it had one, and has it tried again without.
// Preemption must not evict after such an attempt, which left out most nodes.
func (p *Plugin) missed(cs fwk.CycleState, pod *v1.Pod) bool {
	if _, err := cs.Read(shortlistedKey); err != nil {
		return false
	}
	p.misses.add(kube.UIDOf(pod))
	p.metrics.misses.Inc()
	return true
}
