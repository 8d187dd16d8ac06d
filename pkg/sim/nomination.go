package sim

import (
	"fmt"
	"slices"
	"time"

	"github.com/tandem-gpu/tandem/pkg/vgpu"
)

// nomination is the room that is kept for a pod, or a gang, while others leave.
type nomination struct {
	preemption int // in History.Preemptions
	job        int
	// at is when the preemptor would have started if it had done all of its work at once: its end counts from there.
	at     time.Duration
	places []vgpu.Assignment
	holds  []vgpu.Hold
	// rooms of hosts that are kept.
	rooms []keptRoom
	// waits are the jobs that are still to leave.
	waits []int
}

// keptRoom is CPU and memory of a node.
type keptRoom struct {
	node string
	room vgpu.Room
}

// keep keeps the places of a nomination, and the CPU and memory that its pods ask for.
func (e *engine) keep(n *nomination) error {
	for i, job := range e.unit(n.job) {
		a, r := n.places[i], e.request(job)
		if a.Node == "" {
			continue
		}
		node := e.cluster.Node(a.Node)
		if len(a.Containers) > 0 {
			hold := vgpu.Hold{Assignment: a, Priority: r.Priority}
			if err := e.cluster.Hold(hold); err != nil {
				return fmt.Errorf("keep room for pod %s: %w", r.Pod, err)
			}
			n.holds = append(n.holds, hold)
		}
		n.rooms = append(n.rooms, keptRoom{a.Node, r.Host})
		n.rooms[len(n.rooms)-1].take(e.cluster)
		e.changed(node)
	}
	return nil
}

// take keeps the room. Less than nothing is left where others are to give some of it back.
func (k *keptRoom) take(c *vgpu.Cluster) {
	owe(c.Node(k.node), k.room)
}

// owe takes room off a node, also more than is left.
func owe(n *vgpu.Node, r vgpu.Room) {
	n.SetRoom(n.Room().Less(r))
}

// letNominationGo ends what a nomination keeps.
func (e *engine) letNominationGo(n *nomination) {
	e.nominations = slices.DeleteFunc(e.nominations, func(other *nomination) bool { return other == n })
	n.free(e.cluster)
	for i := range n.rooms {
		e.changed(e.cluster.Node(n.rooms[i].node))
	}
	e.log(n.job, letsGo)
}

// free lets go of the devices and rooms.
func (n *nomination) free(c *vgpu.Cluster) {
	for i := range n.holds {
		c.Release(n.holds[i].UID)
	}
	for _, kept := range n.rooms {
		node := c.Node(kept.node)
		node.SetRoom(node.Room().Plus(kept.room))
	}
}

// settle starts those for whom all have left, and reports whether any did start. Where others of a higher priority were
// faster the room is let go, and they wait on.
func (e *engine) settle() (bool, error) {
	some := false
	for _, n := range slices.Clone(e.nominations) {
		if len(n.waits) > 0 {
			continue
		}
		e.letNominationGo(n)
		if !e.takes(n) {
			continue
		}
		if err := e.begin(n.job, n.places); err != nil {
			return some, err
		}
		e.waiting = slices.DeleteFunc(e.waiting, func(job int) bool { return job == n.job })
		e.served(n.job)
		some = true
	}
	return some, nil
}

// takes reports whether the places of a nomination are free for it. Room that is kept for others is, unless their priority is
// higher: those that were there before it left it these places, those that came later had to, and both may wait for pods that
// are still there. Containers that share a device are looked at one by one where holds are concerned.
func (e *engine) takes(n *nomination) bool {
	fits := true
	rooms := map[string]vgpu.Room{}
	owed := map[string]vgpu.Room{}
	for _, other := range e.nominations {
		for _, kept := range other.rooms {
			owed[kept.node] = owed[kept.node].Plus(kept.room)
		}
	}
	e.cluster.WhatIf(func() {
		for i, job := range e.unit(n.job) {
			a, r := n.places[i], e.request(job)
			if a.Node == "" {
				continue
			}
			node := e.cluster.Node(a.Node)
			rooms[a.Node] = rooms[a.Node].Plus(r.Host)
			r.Priority = max(r.Priority, r.Priority+1) // what is kept for the same priority does not count
			fits = fits && rooms[a.Node].Within(node.Room().Plus(owed[a.Node])) && free(node, &r, &a) && (len(a.Containers) == 0 || node.Add(a) == nil)
		}
	})
	return fits
}

// free reports whether the devices of a place have what each container takes, beside all that counts for the pod.
func free(n *vgpu.Node, r *vgpu.Request, a *vgpu.Assignment) bool {
	for i := range a.Containers {
		for _, id := range a.Containers[i].Devices {
			if !a.Containers[i].Share.Use().Within(n.FreeFor(n.Index(id), r)) {
				return false
			}
		}
	}
	return true
}
