package sim

import (
	"fmt"
	"slices"
	"time"

	"github.com/tandem-gpu/tandem/pkg/gang"
	"github.com/tandem-gpu/tandem/pkg/reservation"
	"github.com/tandem-gpu/tandem/pkg/vgpu"
)

// nomination is the room of a pod, or a gang, while its victims leave.
type nomination struct {
	preemption int // in History.Preemptions
	job        int
	// at is when the preemptor would have started if it had done all of its work at once: its end counts from there.
	at     time.Duration
	places []vgpu.Assignment
	holds  []vgpu.Hold
	// rooms of hosts for it.
	rooms []keptRoom
	// waits are the jobs that are still to leave.
	waits []int
}

// keptRoom is CPU and memory of a node.
type keptRoom struct {
	node string
	room vgpu.Room
}

// take keeps the room. The rest is below zero where victims are to give some of it back.
func (k *keptRoom) take(c *vgpu.Cluster) {
	owe(c.Node(k.node), k.room)
}

// owe takes room off a node, also more than the rest.
func owe(n *vgpu.Node, r vgpu.Room) {
	n.SetRoom(n.Room().Less(r))
}

// giveBack undoes take for all rooms.
func (n *nomination) giveBack(c *vgpu.Cluster) {
	for _, kept := range n.rooms {
		node := c.Node(kept.node)
		node.SetRoom(node.Room().Plus(kept.room))
	}
}

// nominationOf returns the nomination of a job, or a gang; nil for none.
func (e *engine) nominationOf(job int) *nomination {
	for _, n := range e.nominations {
		if n.job == job {
			return n
		}
	}
	return nil
}

// keep keeps the places of a nomination, and the CPU and memory of its pods' requests. The devices of a gang are kept
// by the machine.
func (e *engine) keep(n *nomination) error {
	g := e.history.groupOf[n.job]
	if g != nil {
		if err := e.makeRoom(g, n); err != nil {
			return err
		}
	}
	for i, job := range e.unit(n.job) {
		a, r := n.places[i], e.request(job)
		if a.Node == "" {
			continue
		}
		if g == nil && len(a.Containers) > 0 {
			n.holds = append(n.holds, vgpu.Hold{Assignment: a, Priority: r.Priority})
			if err := e.hold(n.holds[0]); err != nil {
				return err
			}
		}
		n.rooms = append(n.rooms, keptRoom{a.Node, r.Host})
		n.rooms[len(n.rooms)-1].take(e.cluster)
		e.changed(e.cluster.Node(a.Node))
	}
	e.nominations = append(e.nominations, n)
	return nil
}

// makeRoom has the machine keep the room that others leave for a gang.
func (e *engine) makeRoom(g *group, n *nomination) error {
	made := reservation.Made{
		Places: map[vgpu.UID]reservation.Place{}, Victims: map[vgpu.UID]reservation.Victim{}, Lacking: g.want.MinCount, Unbound: g.want.MinCount,
		Until: clock(e.sample.At).Add(e.setup.Preemption.Grace),
	}
	for i, job := range g.jobs {
		if a := n.places[i]; a.Node != "" {
			made.Places[a.UID] = reservation.Place{Assignment: a, Host: e.setup.Jobs[job].Request.Host, Pinned: true}
		}
	}
	for _, job := range n.waits {
		o := &e.history.Outcomes[job]
		made.Victims[o.UID] = reservation.Victim{Pod: o.Pod, Node: o.Assignment.Node}
	}
	a, err := e.step(reservation.RoomMade{Gang: e.facts(g), Room: made, Priority: e.priority(g)})
	if err == nil && a.refused {
		err = fmt.Errorf("keep room for gang %s: the machine of reservations refuses", g.gang.Name)
	}
	n.holds = a.holds
	return err
}

// letNominationGo ends what a nomination keeps. The devices of a gang are those of the machine.
func (e *engine) letNominationGo(n *nomination) {
	e.nominations = slices.DeleteFunc(e.nominations, func(other *nomination) bool { return other == n })
	n.giveBack(e.cluster)
	e.releases++
	if e.history.groupOf[n.job] == nil {
		e.release(e.setup.Jobs[n.job].Request.UID)
	}
	for i := range n.rooms {
		e.changed(e.cluster.Node(n.rooms[i].node))
	}
	e.log(n.job, letsGo)
}

// lookAtNominations ends the nominations of gangs for which the machine keeps no room any more.
func (e *engine) lookAtNominations() {
	isOver := func(n *nomination) bool {
		g := e.history.groupOf[n.job]
		return g != nil && e.machine.state.MadeRoom(g.ref) == nil
	}
	for i := slices.IndexFunc(e.nominations, isOver); i >= 0; i = slices.IndexFunc(e.nominations, isOver) {
		e.letNominationGo(e.nominations[i])
	}
}

// settle starts those for whom all have left, and reports whether any did start. If others of a higher priority were
// faster, the nomination ends, and the preemptors wait on. If more pods are about to leave its nodes, settle waits for
// these first.
func (e *engine) settle() (some bool, err error) {
	for _, n := range slices.Clone(e.nominations) {
		if len(n.waits) > 0 {
			continue
		}
		placed, err := e.take(n)
		if err != nil {
			return some, err
		}
		if placed {
			e.waiting = slices.DeleteFunc(e.waiting, func(job int) bool { return job == n.job })
			e.served(n.job)
			some = true
		}
	}
	return some, nil
}

// take starts a pod, or a gang, for which all have left, in the room that they left, and reports whether it did.
func (e *engine) take(n *nomination) (bool, error) {
	if g := e.history.groupOf[n.job]; g != nil {
		if _, err := e.step(reservation.Ticked{Gang: e.facts(g)}); err != nil {
			return false, err
		}
		delete(e.machine.woken, g)
		return e.tryGroup(g, false)
	}
	r := e.request(n.job)
	made := reservation.Made{Places: map[vgpu.UID]reservation.Place{r.UID: {Assignment: n.places[0], Host: r.Host}}, Lacking: 1}
	ready, void := e.stand(&made, []gang.Member{{Request: r}}, 1)
	if ready || void != "" {
		e.letNominationGo(n)
	}
	if !ready {
		return false, nil
	}
	return true, e.start(n.job, n.places[0])
}

// madeRoom returns the places that victims left for a gang, nil where they are not free. It then says why they will not
// be, "" where pods are about to leave them.
func (e *engine) madeRoom(g *group) (places []vgpu.Assignment, void string) {
	made := e.machine.state.MadeRoom(g.ref)
	if made == nil {
		return nil, ""
	}
	members := e.wanted(g).Members
	ready, void := e.stand(made, members, g.want.MinCount)
	if ready {
		return g.ofAll(made.PlacesOf(members)), ""
	}
	return nil, void
}

// stand says how the room stands that others leave for members, of which so many must run: see reservation.Made.
func (e *engine) stand(made *reservation.Made, members []gang.Member, least int) (ready bool, void string) {
	wanted := map[vgpu.UID]bool{}
	for i := range members {
		wanted[members[i].Request.UID] = true
	}
	return made.Stand(least, wanted, members[0].Request.Priority, e.leavingFrom(made), e.ledger())
}

// leavingFrom returns the pods that are about to leave the nodes of a room.
func (e *engine) leavingFrom(made *reservation.Made) map[vgpu.UID]bool {
	nodes, pods := map[string]bool{}, map[vgpu.UID]bool{}
	for _, at := range made.Places {
		nodes[at.Node] = true
	}
	for job := range e.leaving {
		if o := &e.history.Outcomes[job]; nodes[o.Assignment.Node] {
			pods[o.UID] = true
		}
	}
	return pods
}

// ledger returns a function that finds a node without the CPU and memory of nominations: the room of others is no
// obstacle to jobs with room of their own. Earlier nominations left it these places, later ones had to, and both may
// wait for pods that are still there.
func (e *engine) ledger() func(string) *vgpu.Node {
	owed := map[string]vgpu.Room{}
	for _, n := range e.nominations {
		for _, kept := range n.rooms {
			owed[kept.node] = owed[kept.node].Plus(kept.room)
		}
	}
	return func(name string) *vgpu.Node {
		n := e.cluster.Node(name)
		if room, some := owed[name]; some {
			n = n.Clone()
			n.SetRoom(n.Room().Plus(room))
		}
		return n
	}
}
