package sim

import (
	"fmt"
	"slices"
	"time"

	"github.com/tandem-gpu/tandem/pkg/vgpu"
)

// MapAt returns the picture of the cluster at a time, after all that happens at that instant. The picture has the
// devices with the owners of their slices, and the pods that wait in the order of their arrival, with the reasons.
func (h *History) MapAt(at time.Duration) (vgpu.Map, error) {
	p, err := h.replay()
	for err == nil && p.next < len(h.log) && h.log[p.next].at <= at {
		err = p.step()
	}
	if err != nil {
		return vgpu.Map{}, fmt.Errorf("draw map at %v: %w", at, err)
	}
	m := vgpu.MapOf(p.cluster.Nodes())
	m.AtSeconds = at.Seconds()
	for i := range m.Nodes { // kept room that is not free yet is no debt
		m.Nodes[i].FreeMilliCPU, m.Nodes[i].FreeMemory = max(0, m.Nodes[i].FreeMilliCPU), max(0, m.Nodes[i].FreeMemory)
	}
	for _, job := range p.waiting {
		pending, err := p.pending(job, at)
		if err != nil {
			return vgpu.Map{}, fmt.Errorf("draw map at %v: %w", at, err)
		}
		m.Pending = append(m.Pending, pending)
	}
	return m, nil
}

// pending says why a job, or a gang, waits now.
func (p *replay) pending(job int, at time.Duration) (vgpu.MapPending, error) {
	r := p.history.setup.requestAt(job, at)
	g := p.history.groupOf[job]
	out := vgpu.MapPending{
		Pod: p.name(job), UID: r.UID, Slots: r.PeakSlots(), SinceSeconds: p.history.Outcomes[job].Arrived.Seconds(),
	}
	if g != nil {
		out.Members, out.Slots = len(g.askers()), 0
		for _, member := range g.askers() {
			out.Slots += p.history.setup.Jobs[member].Request.PeakSlots()
		}
	}
	if p.kept[job] != nil {
		out.Reason = "room is kept for it until those are gone who are evicted for it"
		return out, nil
	}
	if head := p.waiting[0]; p.history.setup.Queue == FIFO && head != job {
		out.Reason = "it waits its turn behind " + p.title(head)
		return out, nil
	}
	if g != nil {
		refusal, err := p.refusal(g, at)
		if refusal != nil {
			out.Reason = refusal.String()
		}
		return out, err
	}
	if refusal := Explain(p.history.setup.admitting(job, p.cluster.Nodes()), &r); refusal != nil {
		out.Reason = refusal.String()
	}
	return out, nil
}

// name returns the name of a pod, or of the gang that it is the first member of.
func (p *replay) name(job int) string {
	if g := p.history.groupOf[job]; g != nil {
		return g.gang.Name
	}
	return p.history.setup.Jobs[job].Request.Pod
}

// title says whether the name is that of a pod or of a gang.
func (p *replay) title(job int) string {
	if p.history.groupOf[job] != nil {
		return "gang " + p.name(job)
	}
	return "pod " + p.name(job)
}

// served takes a job, or the gang that it is a member of, off those that wait.
func (p *replay) served(job int) {
	if g := p.history.groupOf[job]; g != nil {
		job = g.jobs[0]
	}
	if i := slices.Index(p.waiting, job); i >= 0 {
		p.waiting = slices.Delete(p.waiting, i, i+1)
	}
}
