package gpupreempt

import (
	"sync"
	"time"

	fwk "k8s.io/kube-scheduler/framework"

	"github.com/tandem-gpu/tandem/internal/cluster/kube"
	"github.com/tandem-gpu/tandem/internal/cluster/podgroup"
	"github.com/tandem-gpu/tandem/internal/cluster/victims"
	"github.com/tandem-gpu/tandem/pkg/vgpu"
)

// notes remember what the pods of nodes say of themselves. Most are the same from one preemptor to the next, and reading
// 40,000 of them anew takes the larger part of an attempt.
//
// A note holds for one object of a pod, by its address: a change of a pod comes as another object. A generation of the node
// would not do, since the scheduler goes back to earlier ones in a group's cycle.
type notes struct {
	mu sync.Mutex
	// byNode has them in the order in which the scheduler lists the pods of the node.
	byNode map[string][]note
	// asked is the time of the last use.
	asked time.Time
}

// noteAge is how long notes stay that no search uses. Longer remembers for preemptors that are rarer, and keeps the
// objects of pods that are gone in memory meanwhile.
const noteAge = 5 * time.Minute

// note is what one pod says.
type note struct {
	victims.Traits
	// gang is the one that it names, nil for none.
	gang *podgroup.Ref
}

// note takes down what a pod says.
func (p *Plugin) note(at fwk.PodInfo) note {
	pod := at.GetPod()
	n := note{Traits: p.guards.TraitsOf(pod, hostOf(at))}
	if ref, isMember := p.machine.GangOf(pod); isMember {
		n.gang = &ref
	}
	return n
}

// hostOf returns what a pod of a node gives back of its host.
func hostOf(at fwk.PodInfo) vgpu.Room {
	host := at.CalculateResource().Resource
	return kube.BoundedHost(at.GetPod(), vgpu.Room{MilliCPU: host.GetMilliCPU(), Memory: vgpu.Bytes(host.GetMemory())})
}

// on returns the notes on the pods of a node, in the node's order, valid until the next call for the node. The caller
// holds mu.
func (k *notes) on(p *Plugin, info fwk.NodeInfo) []note {
	name, pods := info.Node().Name, info.GetPods()
	list, known := k.byNode[name]
	if !known || len(list) != len(pods) {
		before := list
		list = make([]note, len(pods))
		copy(list, before)
		k.byNode[name] = list
	}
	for i, at := range pods {
		if list[i].Pod != at.GetPod() {
			list[i] = p.note(at)
		}
	}
	return list
}

// keep drops the notes on all other nodes, and notes the time of use. The caller holds mu.
func (k *notes) keep(nodes []fwk.NodeInfo, now time.Time) {
	k.asked = now
	if len(k.byNode) <= len(nodes) {
		return
	}
	listed := make(map[string]bool, len(nodes))
	for _, info := range nodes {
		listed[info.Node().Name] = true
	}
	for name := range k.byNode {
		if !listed[name] {
			delete(k.byNode, name)
		}
	}
}

// expire drops the notes that no search has used for noteAge.
func (k *notes) expire(now time.Time) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if now.Sub(k.asked) > noteAge {
		clear(k.byNode)
	}
}
