package sim

import (
	"fmt"
	"slices"

	"github.com/tandem-gpu/tandem/pkg/gang"
	"github.com/tandem-gpu/tandem/pkg/placement"
	"github.com/tandem-gpu/tandem/pkg/vgpu"
)

// Audit is what is wrong with the preemptions of a history, and how many there are.
type Audit struct {
	Preemptions, Victims int
	// Void counts the preemptions after which the preemptor had no room without its victims, and without those that left
	// already.
	Void int
	// Needless counts the victims that could have stayed, each with its unit: the preemptor had room without the others alone.
	// If it is 0, no part of the victims of any preemption would have done.
	Needless int
	// Unlawful counts the victims of the same or a higher priority than the preemptor's.
	Unlawful int
}

// Audit plays the history again and looks at each preemption, without package preemption: by what fits without whom.
func (h *History) Audit() (Audit, error) {
	var all Audit
	p, err := h.replay()
	for err == nil && p.next < len(h.log) {
		if e := &h.log[p.next]; e.what == preempts {
			if err = p.audit(&h.Preemptions[p.made], &all); err != nil {
				break
			}
		}
		err = p.step()
	}
	if err != nil {
		return Audit{}, fmt.Errorf("audit preemptions: %w", err)
	}
	return all, nil
}

// audit looks at one preemption before it happens.
func (p *replay) audit(x *Preemption, all *Audit) error {
	jobs := p.history.setup.Jobs
	gone := slices.Concat(x.Waits, x.Fallen)
	for _, unit := range x.Evicted {
		gone = append(gone, unit...)
		for _, job := range unit {
			if jobs[job].Request.Priority >= jobs[x.Job].Request.Priority {
				all.Unlawful++
			}
		}
	}
	all.Preemptions, all.Victims = all.Preemptions+1, all.Victims+x.Victims()
	fits, err := p.fitsWithout(x, gone)
	if err != nil {
		return err
	}
	if !fits {
		all.Void++
	}
	for _, unit := range x.Evicted {
		rest := slices.DeleteFunc(slices.Clone(gone), func(job int) bool { return slices.Contains(unit, job) })
		if fits, err = p.fitsWithout(x, rest); err != nil {
			return err
		}
		if fits {
			all.Needless += len(unit)
		}
	}
	return nil
}

// fitsWithout reports whether a preemptor has room without some jobs.
func (p *replay) fitsWithout(x *Preemption, gone []int) (bool, error) {
	out := map[vgpu.UID]bool{}
	rooms := map[string]vgpu.Room{}
	for _, job := range gone {
		r := &p.history.setup.Jobs[job].Request
		out[r.UID] = true
		rooms[p.places[job].Node] = rooms[p.places[job].Node].Plus(r.Host)
	}
	nodes := slices.Clone(p.cluster.Nodes())
	for i, n := range nodes {
		room, some := rooms[n.Name()]
		if !some {
			continue
		}
		nodes[i] = n.Without(func(h *vgpu.Hold, held bool) bool { return !held && out[h.UID] })
		nodes[i].SetRoom(n.Room().Plus(room))
	}
	if g := p.history.groupOf[x.Job]; g != nil {
		plan, err := gang.Place(&gang.Cluster{Nodes: nodes, Levels: g.levels}, g.at(&p.history.setup, p.history.nominations[p.made].at), gang.Config{
			MaxDomains: p.history.setup.Gangs.MaxDomains, SkipExplanation: true,
		})
		return plan.Places != nil, err
	}
	r := p.history.setup.requestAt(x.Job, p.history.nominations[p.made].at)
	return slices.ContainsFunc(nodes, func(n *vgpu.Node) bool { return r.Host.Within(n.Room()) && placement.Fit(n, &r) == nil }), nil
}
