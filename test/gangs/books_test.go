package gangs

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	v1 "k8s.io/api/core/v1"

	"github.com/tandem-gpu/tandem/internal/cluster/kube"
	"github.com/tandem-gpu/tandem/pkg/api/v1alpha1"
	"github.com/tandem-gpu/tandem/pkg/vgpu"
)

// room is what a host has for pods: free slots by device, and CPUs.
type room struct {
	host  *host
	slots []int
	cpus  int
}

// emptied returns the rooms of all hosts without their pods, by name.
func (w *world) emptied() []*room {
	var rooms []*room
	for _, name := range slices.Sorted(maps.Keys(w.hosts)) {
		h := w.hosts[name]
		rooms = append(rooms, &room{host: h, slots: slices.Repeat([]int{slotsPerGPU}, h.gpus), cpus: h.cpus})
	}
	return rooms
}

// books returns the rooms of the hosts that take pods, without what pods have that are bound according to the API, but for the pods
// of one gang, which may be nil.
func (w *world) books(gone *team) []*room {
	rooms := slices.DeleteFunc(w.emptied(), func(r *room) bool { return r.host.lost || r.host.unready || r.host.cordoned })
	for _, r := range rooms {
		for i := range r.slots {
			if r.host.sick[i] {
				r.slots[i] = 0
			}
		}
	}
	for _, pod := range w.pods() {
		if pod.Spec.NodeName == "" || gone != nil && w.teamOf(pod.Name) == gone {
			continue
		}
		a, _ := kube.AssignmentOf(pod) // checkLedger says what is wrong
		take(rooms, pod.Spec.NodeName, pod, &a)
	}
	return rooms
}

// unpromised returns the rooms of the books without what the scheduler keeps for pods of other teams that are not bound yet.
func (w *world) unpromised(own *team) []*room {
	rooms := w.books(nil)
	for _, pod := range w.pods() {
		if pod.Spec.NodeName != "" || w.teamOf(pod.Name) == own {
			continue
		}
		a, kept := w.sched.share.Assigned(pod)
		if h, held := w.sched.share.Held(vgpu.UID(pod.UID)); held && !kept {
			a = h.Assignment
		}
		node := a.Node
		if cached, err := w.sched.scheduler.Cache.GetPod(pod); err == nil && node == "" {
			node = cached.Spec.NodeName
		}
		take(rooms, node, pod, &a)
	}
	return rooms
}

// take subtracts what a pod has on a node.
func take(rooms []*room, node string, pod *v1.Pod, a *vgpu.Assignment) {
	for _, r := range rooms {
		if r.host.name != node {
			continue
		}
		r.cpus -= int(pod.Spec.Containers[0].Resources.Requests.Cpu().Value())
		for _, c := range a.Containers {
			for _, id := range c.Devices {
				for i := range r.slots {
					if r.host.device(i) == string(id) {
						r.slots[i] -= int(c.Share.Slots)
					}
				}
			}
		}
	}
}

// fits reports whether so many members of a gang fit into one domain of its required levels. It may miss a fit, of gangs with a
// launcher.
func fits(t *team, least int, rooms []*room) bool {
	sums := map[string]int{}
	for _, r := range rooms {
		domain := r.host.domainFor(t.required)
		if !slices.Contains(t.required, v1alpha1.TopologyNVLink) {
			sums[domain] += r.takes(t, r.slots)
			continue
		}
		for island := range slices.Chunk(r.slots, max(1, r.host.island)) {
			if r.host.island > 0 {
				sums[domain] = max(sums[domain], r.takes(t, island))
			}
		}
	}
	for _, n := range sums {
		if n >= least {
			return true
		}
	}
	return false
}

// domainFor names the domain of required levels that a host is in.
func (h *host) domainFor(required []string) string {
	name := ""
	for _, level := range required {
		switch level {
		case rackLabel:
			name += "/" + h.rack
		default:
			name += "/" + h.name
		}
	}
	return name
}

// takes returns how many members go to some of the devices.
func (r *room) takes(t *team, slots []int) int {
	n := t.members
	switch {
	case t.slots >= slotsPerGPU:
		n = 0
		for _, free := range slots {
			n += free / slotsPerGPU
		}
		n /= t.slots / slotsPerGPU
	case t.slots > 0:
		n = 0
		for _, free := range slots {
			n += max(0, free) / t.slots
		}
	}
	if t.cpus > 0 {
		n = min(n, max(0, r.cpus)/t.cpus)
	}
	return n
}

// beside leaves of the rooms those in which more members may go, since others run in their domains of the required levels. It leaves
// none if these are in several.
func (w *world) beside(t *team, rooms []*room) []*room {
	for _, level := range t.required {
		domains := map[string]bool{}
		for i := range t.members {
			pod := w.api.pod(t.member(i))
			if pod != nil && pod.Spec.NodeName != "" && pod.DeletionTimestamp == nil && (level != v1alpha1.TopologyNVLink || kube.WantsVGPU(pod)) {
				domains[w.domain(level, pod)] = true
			}
		}
		if len(domains) == 0 {
			continue
		}
		if len(domains) > 1 {
			return nil
		}
		for _, r := range rooms {
			r.leave(level, domains)
		}
	}
	return rooms
}

// leave sets the free slots of the devices to 0 that are outside of the given domains of a level.
func (r *room) leave(level string, domains map[string]bool) {
	for i := range r.slots {
		domain := r.host.name
		switch level {
		case rackLabel:
			domain = r.host.rack
		case v1alpha1.TopologyNVLink:
			domain = fmt.Sprintf("%s/%d", r.host.name, i/max(1, r.host.island))
		}
		if !domains[domain] {
			r.slots[i] = 0
		}
	}
	if !slices.ContainsFunc(r.slots, func(free int) bool { return free > 0 }) {
		r.cpus = 0
	}
}

// String says what is free: "n1: 10 3 0 slots, 4 CPUs".
func (r *room) String() string {
	return fmt.Sprintf("%s: %s slots, %d CPUs", r.host.name, strings.Trim(fmt.Sprint(r.slots), "[]"), r.cpus)
}
