package gpushare

import (
	"time"

	"k8s.io/apimachinery/pkg/util/sets"

	"github.com/tandem-gpu/tandem/pkg/vgpu"
)

const (
	// firstNodePause is how long a node takes no vGPU pods after its kubelet refused one. A kubelet reports its
	// allocatable every ten seconds, and the reasons for an absent agent last longer. Shorter costs more pods while an
	// agent crashes again and again; longer leaves a node idle whose agent has only restarted.
	firstNodePause = 30 * time.Second
	// longestNodePause bounds the pauses, each of which is twice the last: a node that never recovers costs a pod in that time.
	longestNodePause = 10 * time.Minute
	// pauseStep is the time between two looks whether a pause is over.
	pauseStep = time.Second
)

// Problems of nodes whose kubelet refuses pods, or would.
const (
	tooFewOffered = "the node's kubelet offers fewer vGPU slots than its healthy GPUs have: the GPU agent is not registered with it"
	paused        = "the node's kubelet refused a vGPU pod, and the node takes none for a while"
	tried         = "the node's kubelet refused a vGPU pod, and another is tried there first"
)

// pause keeps pods from a node whose kubelet refused one. A pod that it refuses has failed for good. The scheduler
// would place the next pod on the same node, which looks emptier than others. After the pause the scheduler tries the
// node with one pod, or with the members of one gang. After another refusal the next pause is longer; otherwise the
// pauses begin anew.
type pause struct {
	// refusals in a row.
	refusals int
	// until is the end of the pause; zero once it is over.
	until time.Time
	// trial are the pods that went to the node since, before the answer of its kubelet.
	trial sets.Set[vgpu.UID]
}

// nodePause returns the pause after so many refusals in a row: 30s, 1m, 2m, … at most 10m.
func nodePause(refusals int) time.Duration {
	d := firstNodePause
	for range refusals - 1 {
		if d *= 2; d >= longestNodePause {
			return longestNodePause
		}
	}
	return d
}

// problem says why the node takes no pods now, "" where it does.
func (p *pause) problem() string {
	switch {
	case p == nil:
		return ""
	case !p.until.IsZero():
		return paused
	case p.trial.Len() > 0:
		return tried
	}
	return ""
}

// pauseNode notes that the kubelet of a node refused a pod, and returns how long the node takes none. The result is 0
// where the node takes none anyway, since its kubelet has refused another pod that was on its way at the same time.
func (s *state) pauseNode(name string, now time.Time) time.Duration {
	s.mu.Lock()
	defer s.mu.Unlock()
	n := s.node(name)
	if n.pause == nil {
		n.pause = &pause{}
	}
	if !n.pause.until.IsZero() {
		return 0
	}
	n.pause.refusals++
	d := nodePause(n.pause.refusals)
	n.pause.until, n.pause.trial = now.Add(d), nil
	n.epoch++
	return d
}

// endPauses ends the pauses that are over, and reports whether any was.
func (s *state) endPauses(now time.Time) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	ended := false
	for _, n := range s.nodes {
		if n.pause != nil && !n.pause.until.IsZero() && !now.Before(n.pause.until) {
			n.pause.until = time.Time{}
			n.epoch++
			ended = true
		}
	}
	return ended
}

// try notes that a pod goes to the node, which is on trial if its kubelet refused one before. The caller holds the write lock.
func (n *node) try(uid vgpu.UID) {
	if n.pause == nil || !n.pause.until.IsZero() {
		return
	}
	if n.pause.trial == nil {
		n.pause.trial = sets.Set[vgpu.UID]{}
	}
	n.pause.trial.Insert(uid)
	n.epoch++
}

// without ends the trial of a pod that does not go to the node after all, and reports whether there was one.
func (p *pause) without(uid vgpu.UID) bool {
	if p == nil || !p.trial.Has(uid) {
		return false
	}
	p.trial.Delete(uid)
	return true
}

// tried ends the trial of a pod on a node. With taken its kubelet took the pod, and the node is as good as any. The
// result says whether the node takes more pods now.
func (s *state) tried(name string, uid vgpu.UID, taken bool) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	n := s.nodes[name]
	if n == nil || n.pause == nil || !n.pause.trial.Has(uid) {
		return false
	}
	n.pause.trial.Delete(uid)
	if taken {
		n.pause = nil
	}
	n.epoch++
	return n.pause.problem() == ""
}

// pauses counts the nodes that take no pods since their kubelet refused one.
func (s *state) pauses() int {
	s.mu.RLock()
	defer s.mu.RUnlock()
	count := 0
	for _, n := range s.nodes {
		if n.pause != nil && !n.pause.until.IsZero() {
			count++
		}
	}
	return count
}
