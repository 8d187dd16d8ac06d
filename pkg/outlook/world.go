package outlook

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"github.com/tandem-gpu/tandem/pkg/sim"
	"github.com/tandem-gpu/tandem/pkg/snapshot"
	"github.com/tandem-gpu/tandem/pkg/vgpu"
)

// start is the Unix time of the simulator's begin: it counts from there, since 0 stands for no time.
const start = 1

// pod is a pod of the snapshot, on a node or waiting.
type pod struct {
	snapshot.Name
	gang    *snapshot.GangName
	request vgpu.Request
	// since is when it got its node, or was created, zero where that is not known.
	since time.Time
	// at is its place, nil for a pod that waits.
	at *vgpu.Assignment
	// left is for how long it runs from now, or from its start on; 0: it declares no end.
	left time.Duration
}

// compare orders pods as they are tried: by priority, then by age.
func (p *pod) compare(o *pod) int {
	return cmp.Or(cmp.Compare(o.request.Priority, p.request.Priority), p.since.Compare(o.since), cmp.Compare(p.UID, o.UID))
}

// world is a snapshot on the way to a setup.
type world struct {
	s     *snapshot.Snapshot
	nodes []*vgpu.Node
	// there and waits are pods with a place, and pods without. stays are those without that are not tried.
	there, waits, stays []pod
	gaps                gaps
}

// worldOf reads a snapshot. The error names what is broken in it.
func worldOf(s *snapshot.Snapshot) (*world, error) {
	c, err := closed(s).Cluster()
	if err != nil {
		return nil, err
	}
	w := &world{s: s, nodes: c.Nodes(), gaps: gaps{}}
	leaving := map[vgpu.UID]bool{}
	for i := range s.Preemptions {
		for _, victim := range s.Preemptions[i].Victims {
			leaving[victim.UID] = true
		}
	}
	for i, n := range w.nodes {
		if err := w.addPods(&s.Nodes[i], n, leaving); err != nil {
			return nil, err
		}
		if err := shiftHolds(n, s.At.Unix()-start); err != nil {
			return nil, err
		}
	}
	placed := s.Placed()
	for i := range s.Pending {
		if !placed[s.Pending[i].UID] { // a reserved pod is on its node already
			w.addPending(&s.Pending[i])
		}
	}
	w.gaps[LeftOut] += s.PendingLeftOut
	return w, nil
}

// closed returns the snapshot with unhealthy devices on the nodes that take no pods: nothing new goes there.
func closed(s *snapshot.Snapshot) *snapshot.Snapshot {
	out := *s
	out.Nodes = slices.Clone(s.Nodes)
	for i := range out.Nodes {
		if n := &out.Nodes[i]; !takes(n) {
			n.Devices = slices.Clone(n.Devices)
			for k := range n.Devices {
				n.Devices[k].Healthy = false
			}
		}
	}
	return &out
}

// takes reports whether new pods may go to a node. With stray slots it is not known which devices are free.
func takes(n *snapshot.Node) bool { return n.Problem == "" && n.StraySlots == 0 }

// addPods takes the pods off a node, and notes them. Those that leave for others wait again, as their owners make them anew.
func (w *world) addPods(from *snapshot.Node, n *vgpu.Node, leaving map[vgpu.UID]bool) error {
	if !takes(from) {
		w.gaps[ClosedNodes]++
	}
	placed := map[vgpu.UID]vgpu.Assignment{}
	for _, a := range n.Assignments() {
		placed[a.UID] = a
		n.Remove(a.UID)
	}
	for i := range from.Pods {
		p := &from.Pods[i]
		a := placed[p.UID]
		out := pod{Name: p.Name, gang: p.Gang, request: requestOf(p, &a, n), since: p.Since, at: &a}
		if err := out.request.Validate(); err != nil {
			return fmt.Errorf("node %s: %w", n.Name(), err)
		}
		if leaving[p.UID] {
			out.at, out.since = nil, w.s.At
			w.gaps[Leaving]++
			w.waits = append(w.waits, out)
			continue
		}
		if p.EndsBy.IsZero() {
			w.gaps[Endless]++
		} else {
			out.left = max(time.Second, p.EndsBy.Sub(w.s.At))
		}
		w.there = append(w.there, out)
	}
	return nil
}

// requestOf returns the request that gives a pod what it has, on a device of the same model.
func requestOf(p *snapshot.Pod, a *vgpu.Assignment, n *vgpu.Node) vgpu.Request {
	r := vgpu.Request{UID: p.UID, Pod: p.Path(), Priority: p.Priority}
	r.MaxSlowdown = p.MaxSlowdownMilli
	for _, c := range a.Containers {
		r.Containers = append(r.Containers, vgpu.ContainerRequest{
			Name: c.Name, Kind: c.Kind, Slots: c.Share.Slots * vgpu.Slots(len(c.Devices)), Memory: c.Share.Memory * vgpu.Bytes(len(c.Devices)),
		})
		if i := slices.IndexFunc(n.Devices(), func(d vgpu.Device) bool { return d.ID == c.Devices[0] }); len(r.Variants) == 0 {
			r.Variants = []vgpu.Variant{{Model: n.Devices()[i].Model}}
		}
	}
	return r
}

// shiftHolds counts the ends of holds from the begin of the simulation on.
func shiftHolds(n *vgpu.Node, by int64) error {
	var all []vgpu.Hold
	n.EachHold(func(h *vgpu.Hold) { all = append(all, *h) })
	for _, h := range all {
		if h.Until == 0 {
			continue
		}
		n.Release(h.UID)
		h.Until = max(start, h.Until-by)
		if err := n.Hold(h); err != nil {
			return err
		}
	}
	return nil
}

// addPending notes a pod that waits.
func (w *world) addPending(p *snapshot.Pending) {
	out := pod{Name: p.Name, gang: p.Gang, since: p.Since}
	if out.since.IsZero() {
		out.since = w.s.At
	}
	one := &snapshot.Snapshot{Pending: []snapshot.Pending{*p}} // ToPlace looks at all workloads, which the simulator does not know
	r := one.ToPlace(p, 0)
	switch {
	case r == nil || r.Validate() != nil:
		w.gaps[Malformed]++
		w.stays = append(w.stays, out)
		return
	case len(p.Gates) > 0:
		w.gaps[Gated]++
		out.request.Priority = r.Priority
		w.stays = append(w.stays, out)
		return
	}
	out.request, out.left = *r, time.Duration(p.Request.EndsAfterSeconds)*time.Second
	out.request.Ends, out.request.Workload = 0, 0
	if p.Refused != nil && slices.ContainsFunc(p.Refused.Nodes, func(r snapshot.RefusedNodes) bool { return byPlugin(r.Reason) }) {
		w.gaps[OtherPlugins]++
	}
	w.waits = append(w.waits, out)
}

// jobs returns the pods as jobs of the simulator: those with a place, then those that wait, in the order in which they are tried.
func (w *world) jobs(preferred []string) []sim.Job {
	var there, waits []unit
	for _, u := range w.units() {
		if u.pods[0].at != nil {
			there = append(there, u)
		} else {
			waits = append(waits, u)
		}
	}
	slices.SortStableFunc(waits, func(a, b unit) int {
		p, q := a.pods[0], b.pods[0]
		p.since, q.since = a.since(), b.since()
		return p.compare(&q)
	})
	var all []sim.Job
	for _, u := range append(there, waits...) {
		all = append(all, u.jobs(w.s.At, preferred)...)
	}
	return all
}
