package gpugang

import (
	"sync"

	v1 "k8s.io/api/core/v1"

	"github.com/tandem-gpu/tandem/internal/cluster/podgroup"
)

// unplaced is why members of elastic gangs within their targets have no place, although the gangs can run without them.
type unplaced struct {
	mu      sync.Mutex
	reasons map[podgroup.Ref]string
}

// note notes the reason of an elastic gang, "" where all members within its target have a place.
func (u *unplaced) note(pg *podgroup.Gang, why string) {
	if pg.Sizes == nil {
		return
	}
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.reasons == nil {
		u.reasons = map[podgroup.Ref]string{}
	}
	if u.reasons[pg.Ref] = why; why == "" {
		delete(u.reasons, pg.Ref)
	}
}

func (u *unplaced) reason(ref podgroup.Ref) string {
	u.mu.Lock()
	defer u.mu.Unlock()
	return u.reasons[ref]
}

// forget forgets a gang that has ended.
func (u *unplaced) forget(ref podgroup.Ref) {
	u.mu.Lock()
	defer u.mu.Unlock()
	delete(u.reasons, ref)
}

// heldBack returns why the target of an elastic gang holds a pod back, "" where it does not.
func (p *Plugin) heldBack(ref podgroup.Ref, pod *v1.Pod) string {
	pg, _ := p.gangs.Gang(ref)
	if pg == nil {
		return ""
	}
	return pg.HeldBack(pod.UID)
}

// followTarget rejects the members of a gang that wait in Permit and that its target holds back now.
func (p *Plugin) followTarget(ref podgroup.Ref) {
	pg, _ := p.gangs.Gang(ref)
	if pg == nil {
		p.unplaced.forget(ref)
		return
	}
	for _, uid := range pg.Held() {
		if waiting := p.handle.GetWaitingPod(uid); waiting != nil {
			waiting.Reject(Name, pg.HeldBack(uid))
		}
	}
}
