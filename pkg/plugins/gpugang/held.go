package gpugang

import (
	"maps"
	"slices"
	"sync"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/tandem-gpu/tandem/internal/cluster/podgroup"
)

// heldMembers are the members of elastic gangs that the plugin has refused because their targets hold them back.
type heldMembers struct {
	mu     sync.Mutex
	byGang map[podgroup.Ref]map[types.UID]bool
	// surplus is why members within the target have no place, although the gang can run without them.
	surplus map[podgroup.Ref]string
}

// noteSurplus notes why members of an elastic gang that can run without them have no place, "" where they have one.
func (h *heldMembers) noteSurplus(pg *podgroup.Gang, why string) {
	if pg.Sizes == nil {
		return
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.surplus == nil {
		h.surplus = map[podgroup.Ref]string{}
	}
	if h.surplus[pg.Ref] = why; why == "" {
		delete(h.surplus, pg.Ref)
	}
}

func (h *heldMembers) surplusOf(ref podgroup.Ref) string {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.surplus[ref]
}

// note notes a refused member.
func (h *heldMembers) note(ref podgroup.Ref, uid types.UID) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.byGang == nil {
		h.byGang = map[podgroup.Ref]map[types.UID]bool{}
	}
	if h.byGang[ref] == nil {
		h.byGang[ref] = map[types.UID]bool{}
	}
	h.byGang[ref][uid] = true
}

// freed drops the members of a gang that its target does not hold back any more, and returns those that exist. A nil gang
// has ended.
func (h *heldMembers) freed(ref podgroup.Ref, pg *podgroup.Gang) []*v1.Pod {
	h.mu.Lock()
	defer h.mu.Unlock()
	if pg == nil {
		delete(h.byGang, ref)
		delete(h.surplus, ref)
		return nil
	}
	noted := h.byGang[ref]
	if noted == nil {
		return nil
	}
	before := maps.Clone(noted)
	maps.DeleteFunc(noted, func(uid types.UID, _ bool) bool { return pg.HeldBack(uid) == "" })
	if len(noted) == 0 {
		delete(h.byGang, ref)
	}
	return slices.DeleteFunc(slices.Clone(pg.Members), func(pod *v1.Pod) bool { return !before[pod.UID] })
}

// heldBack returns why the target of an elastic gang holds a pod back, "" where it does not.
func (p *Plugin) heldBack(ref podgroup.Ref, pod *v1.Pod) string {
	pg, _ := p.gangs.Gang(ref)
	if pg == nil {
		return ""
	}
	why := pg.HeldBack(pod.UID)
	if why != "" {
		p.held.note(ref, pod.UID)
	}
	return why
}

// followTarget has the members tried that a target does not hold back any more. It rejects the members that wait in Permit
// and are held back now.
func (p *Plugin) followTarget(ref podgroup.Ref) {
	pg, _ := p.gangs.Gang(ref)
	p.machine.Activate(p.held.freed(ref, pg)...)
	if pg == nil {
		return
	}
	for _, uid := range pg.Held() {
		if waiting := p.handle.GetWaitingPod(uid); waiting != nil {
			waiting.Reject(Name, pg.HeldBack(uid))
		}
	}
}
