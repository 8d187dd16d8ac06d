package sim

import (
	"fmt"
	"slices"
	"time"

	"github.com/tandem-gpu/tandem/pkg/vgpu"
)

// MapAt returns the picture of the cluster at a time, after all that happens at that instant: the devices with the owners
// of their slices, and the pods that wait in the order of their arrival, with the reasons.
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
	for _, job := range p.waiting {
		m.Pending = append(m.Pending, p.pending(job))
	}
	return m, nil
}

// pending says why a job waits now.
func (p *replay) pending(job int) vgpu.MapPending {
	r := &p.history.setup.Jobs[job].Request
	out := vgpu.MapPending{
		Pod: r.Pod, UID: r.UID, Slots: r.PeakSlots(), SinceSeconds: p.history.Outcomes[job].Arrived.Seconds(),
	}
	if head := p.waiting[0]; p.history.setup.Queue == FIFO && head != job {
		out.Reason = "it waits its turn behind pod " + p.history.setup.Jobs[head].Request.Pod
		return out
	}
	if refusal := Explain(p.cluster.Nodes(), r); refusal != nil {
		out.Reason = refusal.String()
	}
	return out
}

// served takes a job off those that wait.
func (p *replay) served(job int) {
	if i := slices.Index(p.waiting, job); i >= 0 {
		p.waiting = slices.Delete(p.waiting, i, i+1)
	}
}
