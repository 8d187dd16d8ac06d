package sim

import (
	"fmt"

	"github.com/tandem-gpu/tandem/pkg/vgpu"
)

// populate gives the pods that are there from the start their places. Devices that a node of the setup keeps for a job stay kept until
// the job starts, or the run keeps others for it.
func (e *engine) populate() error {
	for i, n := range e.cluster.Nodes() {
		n.EachHold(func(h *vgpu.Hold) {
			if _, known := e.history.find(h.UID); known {
				e.machine.held[h.UID] = e.cluster.Nodes()[i]
			}
		})
	}
	there := 0
	for job := range e.setup.Jobs {
		if e.setup.Jobs[job].At == nil {
			continue
		}
		there++
		e.sample.Arrived += e.history.Outcomes[job].Asked
		if g := e.history.groupOf[job]; g != nil && g.jobs[0] != job {
			continue // it comes with the first member
		}
		if err := e.settleAtStart(job); err != nil {
			return err
		}
	}
	if there == 0 {
		return nil
	}
	e.note()
	e.progress(there)
	return nil
}

// settleAtStart starts a job, or a gang, at the places that it has from the start.
func (e *engine) settleAtStart(job int) error {
	members := e.unit(job)
	places := make([]vgpu.Assignment, 0, len(members))
	for _, member := range members {
		e.kept[member] = e.setup.Jobs[member].Ran
		places = append(places, *e.setup.Jobs[member].At)
	}
	if err := e.begin(job, places); err != nil {
		return fmt.Errorf("place what is there from the start: %w", err)
	}
	return nil
}
