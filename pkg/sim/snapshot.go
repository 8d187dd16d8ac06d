package sim

import (
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/tandem-gpu/tandem/pkg/placement"
	"github.com/tandem-gpu/tandem/pkg/snapshot"
	"github.com/tandem-gpu/tandem/pkg/vgpu"
)

// SnapshotAt returns the cluster at a time, after all that happens at that instant, in the form in which a scheduler publishes it.
// Elastic gangs have the number of members that they then run with as a target.
func (h *History) SnapshotAt(at time.Duration) (*snapshot.Snapshot, error) {
	p, err := h.replay()
	for err == nil && p.next < len(h.log) && h.log[p.next].at <= at {
		err = p.step()
	}
	if err != nil {
		return nil, fmt.Errorf("take snapshot at %v: %w", at, err)
	}
	s := &snapshot.Snapshot{Source: snapshot.FromSimulator, At: instant(at)}
	jobs := make(map[vgpu.UID]int, len(h.setup.Jobs))
	for i := range h.setup.Jobs {
		jobs[h.setup.Jobs[i].Request.UID] = i
	}
	for _, n := range p.cluster.Nodes() {
		node := snapshot.NodeOf(n)
		node.Topology = snapshot.TopologyOf(h.setup.Labels[n.Name()])
		// Kept room that is not free yet is no debt.
		node.FreeMilliCPU, node.FreeMemoryBytes = max(0, node.FreeMilliCPU), max(0, node.FreeMemoryBytes)
		for i := range node.Pods {
			p.describe(&node.Pods[i], jobs)
		}
		for i := range node.Holds {
			hold := &node.Holds[i]
			p.describe(&hold.Pod, jobs)
			if !hold.Until.IsZero() {
				hold.Until = instant(sinceStart(hold.Until))
			}
		}
		s.Nodes = append(s.Nodes, node)
	}
	p.addWaiting(s, at)
	p.addGangs(s)
	p.addPreemptions(s)
	s.Sort()
	return s, nil
}

// instant returns a time of a run as a snapshot has it, in whole seconds, rounded down.
func instant(at time.Duration) time.Time { return time.Unix(0, 0).UTC().Add(at).Truncate(time.Second) }

// describe adds what a job says beside its assignment. If the pod is evicted later, the end that it declared is not known.
func (p *replay) describe(out *snapshot.Pod, jobs map[vgpu.UID]int) {
	job, ok := jobs[out.UID]
	if !ok { // there from the start, and no job
		return
	}
	h := p.history
	j, o := &h.setup.Jobs[job], &h.Outcomes[job]
	out.Priority, out.Gang = j.Request.Priority, h.gangName(job)
	since, there := p.since[job]
	if !there {
		return
	}
	if j.At != nil && since == 0 {
		since -= j.Ran
	}
	out.Since = instant(since)
	if j.DeclaresEnd && o.State.Placed() && o.Started == p.since[job] {
		out.EndsBy = instant(o.Ended + time.Second - 1)
	}
}

// gangName returns the gang of a job, nil for none.
func (h *History) gangName(job int) *snapshot.GangName {
	g := h.groupOf[job]
	if g == nil {
		return nil
	}
	n := snapshot.NameOf(g.gang.Name, "")
	return &snapshot.GangName{Namespace: n.Namespace, Name: n.Name}
}

// addWaiting adds the pods that wait, with the reasons.
func (p *replay) addWaiting(s *snapshot.Snapshot, at time.Duration) {
	h := p.history
	for _, first := range p.waiting {
		members := []int{first}
		if g := h.groupOf[first]; g != nil {
			members = g.askers()
		}
		for _, job := range members {
			r := h.setup.requestAt(job, at)
			if len(r.Containers) == 0 {
				continue
			}
			waits := snapshot.Pending{
				Name: snapshot.NameOf(r.Pod, r.UID), Gang: h.gangName(job), Request: snapshot.RequestOf(&r, unix(at)),
				Since: instant(h.Outcomes[job].Arrived),
			}
			if waits.Gang == nil && p.kept[job] == nil {
				waits.Refused = refusedOn(h.setup.admitting(job, p.cluster.Nodes()), &r)
			}
			s.Pending = append(s.Pending, waits)
		}
	}
}

// refusedOn returns why a pod fits on no node, nil where it fits on one: it waits for its turn.
func refusedOn(nodes []*vgpu.Node, r *vgpu.Request) *snapshot.Refused {
	why := Explain(nodes, r)
	if why == nil {
		return nil
	}
	counts := map[string]int{}
	for _, n := range nodes {
		reason := "CPU or memory of the host"
		if refusal := placement.Fit(n, r); refusal != nil {
			reason = string(refusal.Reason)
		}
		counts[reason]++
	}
	out := &snapshot.Refused{Message: why.String()}
	for _, reason := range slices.Sorted(maps.Keys(counts)) {
		out.Nodes = append(out.Nodes, snapshot.RefusedNodes{Reason: reason, Nodes: counts[reason]})
	}
	if why.Nearest != nil {
		out.Nearest = snapshot.RefusalOf(why.Nearest)
	}
	return out
}

// addGangs adds the gangs that run or wait.
func (p *replay) addGangs(s *snapshot.Snapshot) {
	h, seen := p.history, map[*group]bool{}
	add := func(job int, need string) {
		g := h.groupOf[job]
		if g == nil || seen[g] {
			return
		}
		seen[g] = true
		out := snapshot.Gang{GangName: *h.gangName(job), MinCount: g.gang.MinCount, Members: len(g.jobs), Phase: "Unplaced", Need: need}
		out.RequiredTopology, out.PreferredTopology = g.gang.Wishes.Required, g.gang.Wishes.Preferred
		if out.MinCount == 0 {
			out.MinCount = len(g.jobs)
		}
		for _, member := range g.jobs {
			if _, placed := p.places[member]; placed {
				out.Bound++
				out.Phase = "Running"
			}
		}
		s.Gangs = append(s.Gangs, out)
		if e := g.gang.Elastic; e != nil && out.Bound > 0 {
			s.ElasticTargets = append(s.ElasticTargets, snapshot.ElasticTarget{
				GangName: out.GangName, Workers: out.Bound, Min: out.MinCount, Max: len(g.jobs),
			})
		}
	}
	for _, job := range p.waiting {
		need := "Refused"
		if p.kept[job] != nil {
			need = "Preempting"
		}
		add(job, need)
	}
	for _, job := range slices.Sorted(maps.Keys(p.places)) {
		add(job, "Satisfied")
	}
}

// addPreemptions adds the pods and gangs for which victims leave.
func (p *replay) addPreemptions(s *snapshot.Snapshot) {
	h, seen := p.history, map[*nomination]bool{}
	for _, job := range slices.Sorted(maps.Keys(p.kept)) {
		n := p.kept[job]
		if n == nil || seen[n] {
			continue
		}
		seen[n] = true
		out := snapshot.Preemption{Gang: h.gangName(job), Phase: "Leaving", Victims: []snapshot.Place{}}
		if out.Gang == nil {
			r := &h.setup.Jobs[job].Request
			name := snapshot.NameOf(r.Pod, r.UID)
			out.Pod = &name
		}
		for _, victim := range n.waits {
			if place, there := p.places[victim]; there {
				out.Victims = append(out.Victims, snapshot.Place{Name: snapshot.NameOf(place.Pod, place.UID), Node: place.Node})
			}
		}
		s.Preemptions = append(s.Preemptions, out)
	}
}
