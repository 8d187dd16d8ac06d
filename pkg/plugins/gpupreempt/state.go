package gpupreempt

import (
	"context"
	"sync"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/tandem-gpu/tandem/internal/cluster/kube"
	"github.com/tandem-gpu/tandem/pkg/vgpu"
)

// slack is how long a pod may exist beyond its grace period before it is taken to stay: the kubelet kills it then, takes its
// devices back and tells the API server. Longer keeps room for a preemptor on a node that is lost, shorter gives up room that is
// about to be free.
const slack = 30 * time.Second

// state is what the plugin remembers between cycles.
type state struct {
	mu sync.Mutex
	// pendings are the preemptions for single pods, by preemptor.
	pendings map[vgpu.UID]*pending
	// running are the evictions under way, by preemptor.
	running map[string]*evicting
	// leaving are the pods that were chosen as victims, with the time by which they are gone, until they are.
	leaving map[vgpu.UID]time.Time
	// charges are the budgets of those, as they were then. A pod that leaves no more has none that count.
	charges map[vgpu.UID][]stamp
	// misses are the preemptors whose preemptions came to nothing.
	misses map[vgpu.UID]miss
	// retries are the preemptors that are tried again without an event of the cluster.
	retries   map[vgpu.UID]again
	allowance allowance
}

// evicting is an eviction under way.
type evicting struct {
	cancel  context.CancelFunc
	victims []vgpu.UID
}

func newState(perMinute int) *state {
	return &state{
		pendings: map[vgpu.UID]*pending{}, running: map[string]*evicting{}, leaving: map[vgpu.UID]time.Time{},
		charges: map[vgpu.UID][]stamp{}, misses: map[vgpu.UID]miss{}, retries: map[vgpu.UID]again{}, allowance: newAllowance(perMinute),
	}
}

// starts notes that an eviction is under way. It takes the place of one for the same preemptor that was cancelled and is not
// over yet: a gang may come again under its name.
func (s *state) starts(e *eviction, cancel context.CancelFunc, by func(*v1.Pod) time.Time) *evicting {
	s.mu.Lock()
	defer s.mu.Unlock()
	run := &evicting{cancel: cancel}
	for _, u := range e.plan.Evict {
		for _, at := range u.Pods {
			uid := uidOf(e.pods[at])
			run.victims = append(run.victims, uid)
			s.leaving[uid] = by(e.pods[at])
		}
	}
	s.running[e.key] = run
	return run
}

// finished notes that an eviction is over. After a failure nobody counts as leaving but those that were told to go, and those of
// whom the API says so.
func (s *state) finished(e *eviction, run *evicting, failed bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.running[e.key] == run {
		delete(s.running, e.key)
	}
	for _, uid := range run.victims {
		if _, told := e.told.Load(uid); failed && !told {
			delete(s.leaving, uid)
		}
	}
}

// withdrew notes that a victim was taken back before it was bound: it exists on, and may get another place.
func (s *state) withdrew(key string, uid vgpu.UID, now time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.leaving, uid)
	if x := s.pendings[vgpu.UID(key)]; x != nil {
		x.withdrew(uid, now)
	}
}

// leaves reports whether a pod was chosen as a victim and goes, or went, in time.
func (s *state) leaves(uid vgpu.UID, now time.Time) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	by, chosen := s.leaving[uid]
	return chosen && !now.After(by)
}

// evicting reports whether an eviction for a preemptor is under way.
func (p *Plugin) evicting(key string) bool {
	p.state.mu.Lock()
	defer p.state.mu.Unlock()
	return p.state.running[key] != nil
}

// isSlow reports whether a pod takes longer to end, when it is evicted, than its room is waited for.
func (p *Plugin) isSlow(pod *v1.Pod) bool {
	grace, _ := p.guards.GracePeriod(pod)
	return grace > kube.LeavingWithin
}

// endOf returns when a pod that is evicted now is gone at the latest.
func (p *Plugin) endOf(pod *v1.Pod) time.Time {
	grace, _ := p.guards.GracePeriod(pod)
	return p.now().Add(grace).Add(slack)
}

// goneBy returns how long the room of a pod that leaves is waited for: until it is gone, but no longer than that of any.
func (p *Plugin) goneBy(pod *v1.Pod, now time.Time) time.Time {
	by, most := p.endOf(pod), now.Add(kube.LeavingWithin).Add(slack)
	if pod.DeletionTimestamp != nil {
		by = pod.DeletionTimestamp.Add(slack)
	}
	if by.After(most) {
		return most
	}
	return by
}
