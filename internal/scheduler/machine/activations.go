package machine

import (
	"context"
	"slices"
	"sync"

	v1 "k8s.io/api/core/v1"
	"k8s.io/klog/v2"
	fwk "k8s.io/kube-scheduler/framework"
	"k8s.io/kubernetes/pkg/scheduler/framework"

	"github.com/tandem-gpu/tandem/internal/cluster/podgroup"
	"github.com/tandem-gpu/tandem/pkg/vgpu"
)

// activations are the pods that the scheduler should try again. Activating them takes the lock of the scheduler's
// queue, and PreEnqueue takes the lock of the machine under it. So the machine activates them once its own lock is
// free.
type activations struct {
	mu   sync.Mutex
	pods map[string]*v1.Pod
	// stale are nominations that may mean nothing any more. The check takes the same lock.
	stale []nomination
}

// nomination is a node for which the framework may nominate a member.
type nomination struct {
	uid       vgpu.UID
	pod, node string
}

// add notes pods for the next Flush.
func (a *activations) add(pods ...*v1.Pod) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, pod := range pods {
		if a.pods == nil {
			a.pods = map[string]*v1.Pod{}
		}
		a.pods[klog.KObj(pod).String()] = pod
	}
}

// Activate notes pods that the scheduler should try again, for the next Flush.
func (m *Machine) Activate(pods ...*v1.Pod) { m.activations.add(pods...) }

// addStale notes that a member may have lost its place, for the next Flush.
func (a *activations) addStale(n nomination) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.stale = append(a.stale, n)
}

// Flush activates the noted pods. The caller does not hold the lock of the machine, and is not PreEnqueue.
func (m *Machine) Flush(ctx context.Context) {
	m.activations.mu.Lock()
	pods, stale := m.activations.pods, m.activations.stale
	m.activations.pods, m.activations.stale = nil, nil
	m.activations.mu.Unlock()
	for _, n := range stale {
		if pod := m.Seen(n.uid, n.pod); pod != nil {
			m.Denominate(pod, n.node)
		}
	}
	if len(pods) > 0 {
		m.handle.Activate(klog.FromContext(ctx), pods)
	}
}

// The framework nominates a member for its node while it waits in Permit, by a request of its own. The API server's
// answer to that may come after the machine has cancelled the plan. The framework would then count the member on a node
// where it has no place any more. The CPU that its siblings or other pods were to have there would look taken. A
// nomination of a member means nothing without its place.

// Denominate ends the nomination of a member for a node, unless the member has a place or room there. A nomination for
// another node stays: the API may be behind the queue. The caller holds no lock, since Denominate takes the queue's.
func (m *Machine) Denominate(pod *v1.Pod, node string) {
	ref, isMember := m.GangOf(pod)
	if !isMember {
		return
	}
	isExpected := false
	m.Lock(func(l Locked) { isExpected = l.State.Expected(ref, vgpu.UID(pod.UID), node) })
	if !isExpected && m.isNominated(pod, node) {
		m.handle.DeleteNominatedPodIfExists(pod)
	}
}

// isNominated reports whether the queue has a pod nominated for a node.
func (m *Machine) isNominated(pod *v1.Pod, node string) bool {
	return slices.ContainsFunc(m.handle.NominatedPodsForNode(node), func(info fwk.PodInfo) bool { return info.GetPod().UID == pod.UID })
}

// Expect nominates the members of a gang for the nodes where preemption makes room for them. So no pod of a lower
// priority takes the CPU and memory that the victims leave there.
//
// The caller is the scheduling cycle that refused the gang.
func (m *Machine) Expect(ctx context.Context, ref podgroup.Ref, pods []*v1.Pod) {
	nodes := map[vgpu.UID]string{}
	m.Lock(func(l Locked) {
		if made := l.State.MadeRoom(ref); made != nil {
			for uid, at := range made.Places {
				nodes[uid] = at.Node
			}
		}
	})
	for _, pod := range pods {
		info, err := framework.NewPodInfo(pod)
		if node := nodes[vgpu.UID(pod.UID)]; node != "" && err == nil {
			m.handle.AddNominatedPod(klog.FromContext(ctx), info, &fwk.NominatingInfo{NominatedNodeName: node, NominatingMode: fwk.ModeOverride})
		}
	}
}
