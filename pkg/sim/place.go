package sim

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/tandem-gpu/tandem/pkg/gang"
	"github.com/tandem-gpu/tandem/pkg/placement"
	"github.com/tandem-gpu/tandem/pkg/vgpu"
)

// try places a pod on the best node, or a gang, and reports whether there is room.
func (e *engine) try(job int) (bool, error) {
	if g := e.history.groupOf[job]; g != nil {
		return e.tryGroup(g, false)
	}
	r := e.request(job)
	n := e.choose(job, &r)
	if n == nil {
		return false, nil
	}
	a, refusal := placement.Assign(n, &r, e.policy)
	if refusal != nil {
		return false, fmt.Errorf("place pod %s: node %s has a score and refuses: %v", r.Pod, n.Name(), *refusal)
	}
	return true, e.begin(job, []vgpu.Assignment{a})
}

// request returns the request of a pod if it starts now.
func (e *engine) request(job int) vgpu.Request {
	return e.setup.requestAt(job, e.begun(job))
}

// begun returns when a job that starts now would have begun if it had done all of its work at once: its end counts from there.
func (e *engine) begun(job int) time.Duration { return e.sample.At - e.kept[job] }

// wanted returns the request of a gang if it starts now.
func (e *engine) wanted(g *group) *gang.Group { return g.at(e.setup, e.begun(g.jobs[0])) }

// begin starts a job, or a gang, at its places.
func (e *engine) begin(job int, places []vgpu.Assignment) error {
	if g := e.history.groupOf[job]; g != nil {
		version, err := e.ask(g)
		if err != nil {
			return err
		}
		return e.beginGroup(g, version, places)
	}
	if n := e.nominationOf(job); n != nil {
		e.letNominationGo(n)
	}
	return e.start(job, places[0])
}

// start begins a pod at its place.
func (e *engine) start(job int, a vgpu.Assignment) error {
	r, n := &e.setup.Jobs[job].Request, e.cluster.Node(a.Node)
	o := &e.history.Outcomes[job]
	o.State, o.Started, o.Assignment = Running, e.sample.At, a
	o.Waited += e.sample.At - e.since[job]
	e.release(r.UID)
	before := allocatedOn(n)
	if err := enter(e.cluster, &a, r); err != nil {
		return fmt.Errorf("place pod %s: %w", r.Pod, err)
	}
	o.Allocated = allocatedOn(n) - before
	e.sample.Allocated += o.Allocated
	e.changed(n)
	e.sample.Running++
	e.live = append(e.live, job)
	e.log(job, starts)
	e.history.starts = append(e.history.starts, a)
	return e.schedule(job)
}

// schedule notes when a pod that starts now ends.
func (e *engine) schedule(job int) error {
	duration := e.setup.Jobs[job].Duration - e.kept[job]
	if e.setup.Jobs[job].Duration == 0 || e.sizingOf(job) != nil { // the end of an elastic gang depends on its sizes
		return nil
	}
	if e.sample.At > math.MaxInt64-duration {
		return fmt.Errorf("pod %s would end after the latest time, %v", e.setup.Jobs[job].Request.Pod, time.Duration(math.MaxInt64))
	}
	e.history.Outcomes[job].Ended = e.sample.At + duration
	e.due(departure{e.sample.At + duration, job})
	return nil
}

// choose returns the node with the highest score of those that have room for the pod, the first by name among equals;
// nil when it fits nowhere. A pod without GPUs goes to a node without GPUs where it can, as the scheduler has it.
func (e *engine) choose(job int, r *vgpu.Request) *vgpu.Node {
	for i := range e.entrants {
		if at := &e.entrants[i]; !e.ranking.Has(at.State) {
			at.State = e.ranking.State(at.Node)
		}
	}
	admits := func(i int) bool {
		n := e.entrants[i].Node
		return r.Host.Within(n.Room()) && e.setup.admits(job, n.Name())
	}
	var best *vgpu.Node
	top, spared := int64(0), false
	scores := e.ranking.For(r) // after the states, which may start the ranking's memory anew
	scores.Compare(e.entrants, r, admits, func(i int, s int64) {
		n := e.entrants[i].Node
		spares := len(r.Containers) == 0 && len(n.Devices()) == 0
		if !admits(i) || spared && !spares {
			return
		}
		if best == nil || s > top || s == top && n.Name() < best.Name() || spares && !spared {
			best, top, spared = n, s, spares
		}
	})
	return best
}

// drop notes that a job, or a gang, found no room and does not wait.
func (e *engine) drop(job int) error {
	for _, member := range e.unit(job) {
		e.history.Outcomes[member].State = Dropped
		e.sample.Dropped++
	}
	if g := e.history.groupOf[job]; g != nil {
		e.history.Gangs[g.number].State = Dropped
		if g.sizing != nil {
			e.leaveElastic(g)
		}
		return e.forget(g)
	}
	return nil
}

// changed notes that pods came to or left a node.
func (e *engine) changed(n *vgpu.Node) {
	i := e.places[n]
	e.entrants[i].State = e.ranking.State(n)
	e.measure.changed(i)
	e.changes++
	e.lastly[i] = e.changes
}

// enter books a pod on its node: the devices in the ledger, CPU and memory off the room of the host.
func enter(c *vgpu.Cluster, a *vgpu.Assignment, r *vgpu.Request) error {
	n := c.Node(a.Node)
	if len(a.Containers) > 0 {
		if err := n.Add(*a); err != nil {
			return err
		}
	}
	owe(n, r.Host)
	return nil
}

// leave undoes enter.
func leave(c *vgpu.Cluster, a *vgpu.Assignment, r *vgpu.Request) {
	n := c.Node(a.Node)
	n.Remove(a.UID)
	n.SetRoom(n.Room().Plus(r.Host))
}

// kindsOf numbers the requests of the jobs: equal numbers for requests that fit on the same nodes. The first member of a gang
// has the number of its gang, equal for gangs that find the same places.
func kindsOf(h *History) []int {
	jobs := h.setup.Jobs
	numbers := make([]int, len(jobs))
	known := map[string]int{}
	number := func(key string) int {
		if _, seen := known[key]; !seen {
			known[key] = len(known)
		}
		return known[key]
	}
	for i := range jobs {
		r := jobs[i].Request
		containers := slices.Clone(r.Containers)
		for c := range containers {
			containers[c].Name = ""
		}
		r.Containers, r.UID, r.Pod, r.Ends = containers, "", "", 0
		numbers[i] = number(fmt.Sprintf("class %d %+v", jobs[i].Class, r))
	}
	for _, g := range h.groups {
		var members []int
		for _, job := range g.jobs {
			members = append(members, numbers[job])
		}
		numbers[g.jobs[0]] = number(fmt.Sprintf("gang %v %d %q %q %v", members, g.want.MinCount, g.gang.Wishes.Required,
			g.gang.Wishes.Preferred, g.gang.Losses))
	}
	return numbers
}

// Refusal says why a pod fits on no node of a cluster.
type Refusal struct {
	// Nodes looked at. Devices of them refuse by their devices; Host of them have devices for it, and lack CPU or memory.
	Nodes, Devices, Host int
	// Nearest is the nearest miss of the nodes that refuse by their devices, nil when there is none.
	Nearest *vgpu.Refusal
	// Want is the CPU and memory of the pod's request. Most is the most free CPU and the most free memory of the nodes
	// that have devices for it, possibly on different nodes.
	Want, Most vgpu.Room
}

// Explain returns why a pod fits on no node of the cluster now, nil when it fits on one.
func Explain(nodes []*vgpu.Node, r *vgpu.Request) *Refusal {
	f := &Refusal{Nodes: len(nodes), Want: r.Host}
	var refusals []vgpu.Refusal
	for _, n := range nodes {
		if refusal := placement.Fit(n, r); refusal != nil {
			f.Devices++
			refusals = append(refusals, *refusal)
			continue
		}
		room := n.Room()
		if r.Host.Within(room) {
			return nil
		}
		f.Host++
		f.Most = vgpu.Room{MilliCPU: max(f.Most.MilliCPU, room.MilliCPU), Memory: max(f.Most.Memory, room.Memory)}
	}
	if nearest, ok := placement.Nearest(refusals); ok {
		f.Nearest = &nearest
	}
	return f
}

// String says the refusal in words: "0 of 3 nodes fit: 1 by CPU or memory, most free are 2000m CPU and 4Gi, the pod asks
// for 4000m and 8Gi; 2 by GPU, nearest GPU: largest free share is 4 of 10 slots on n2/g1; container main asks for 5". The
// end is what the scheduler's event says.
func (f *Refusal) String() string { return fmt.Sprintf("0 of %d nodes fit: %s", f.Nodes, f.Why()) }

// Why is String without the number of nodes looked at.
func (f *Refusal) Why() string {
	var parts []string
	if f.Host > 0 {
		parts = append(parts, fmt.Sprintf("%d by %s", f.Host, f.short()))
	}
	if f.Nearest != nil {
		parts = append(parts, fmt.Sprintf("%d by GPU, nearest GPU: %v", f.Devices, *f.Nearest))
	}
	return strings.Join(parts, "; ")
}

// short says what the hosts lack of the pod's request.
func (f *Refusal) short() string {
	switch {
	case f.Want.Memory == 0:
		return fmt.Sprintf("CPU, most free is %dm, the pod asks for %dm", f.Most.MilliCPU, f.Want.MilliCPU)
	case f.Want.MilliCPU == 0:
		return fmt.Sprintf("memory, most free is %v, the pod asks for %v", f.Most.Memory, f.Want.Memory)
	}
	return fmt.Sprintf("CPU or memory, most free are %dm CPU and %v, the pod asks for %dm and %v",
		f.Most.MilliCPU, f.Most.Memory, f.Want.MilliCPU, f.Want.Memory)
}

// entry is one thing that happened to a job.
type entry struct {
	job int
	what
	at time.Duration
}

// what can happen to a job.
type what uint8

const (
	starts   what = iota
	ends          // it ran for its duration
	refused       // on arrival it fits nowhere; of a gang the first member stands for all
	queued        // on arrival others wait before it; of a gang the first member stands for all
	drains        // a drain begins for the gang of which it is the first member
	givesUp       // the drain ends before the gang starts
	leftOut       // its gang starts without it
	preempts      // victims begin to leave for it, or for the gang of which it is the first member
	evicts        // it is a victim, and still there
	leaves        // it is gone after that
	returns       // it waits again, or the gang of which it is the first member
	letsGo        // the room that others leave for it is no longer kept
)
