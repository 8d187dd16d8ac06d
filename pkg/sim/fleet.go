package sim

import (
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/tandem-gpu/tandem/pkg/elastic"
	"github.com/tandem-gpu/tandem/pkg/gang"
)

// Fleet makes an elastic gang an inference fleet: its members are replicas, and the fleet itself says how many there should be. The
// Duration of its jobs is the time for which it serves from its start, whatever the number of its replicas.
//
// The least number of replicas starts as a gang does, and may have others evicted. Each further one waits until devices are idle:
// elastic gangs shrink for it, and nothing is evicted for it.
type Fleet struct {
	// Size says, at each decision while the fleet runs, how many replicas there should be, a legal number of members, and what the
	// fleet will need later. It learns the time and the number of replicas that run. Size may remember earlier decisions: each run needs
	// its own.
	Size func(at time.Duration, running int) (replicas int, later []Need)
}

// Need is how many replicas a fleet needs after a time from now.
type Need struct {
	In       time.Duration
	Replicas int
}

// validateFleet returns what is wrong with a fleet whose members are like a job.
func (j *Job) validateFleet() error {
	switch e := j.Gang.Elastic; {
	case e.Fleet == nil:
		return nil
	case e.Fleet.Size == nil:
		return errors.New("is a replica of a fleet that does not say how many replicas it wants")
	case j.Duration == 0:
		return errors.New("is a replica of a fleet that serves for ever, so that the run would have no end")
	case e.ResizeTime != 0:
		return fmt.Errorf("is a replica of a fleet, and a change of its size takes %v, legal is 0s", e.ResizeTime)
	}
	return nil
}

// fleets returns the fleets that have arrived and have not ended, and training the other elastic gangs.
func (e *engine) fleets() (fleets, training []*group) {
	for _, g := range e.elastic {
		if g.sizing.Fleet != nil {
			fleets = append(fleets, g)
		} else {
			training = append(training, g)
		}
	}
	return fleets, training
}

// sizeFleets gives the fleets that run the sizes that they want, and lets replicas leave. It returns what the fleets will need later.
func (e *engine) sizeFleets(fleets []*group) (reserved []elastic.Reserved, err error) {
	for _, g := range fleets {
		s, members := g.sizing, e.atWork(g)
		if len(members) == 0 {
			continue
		}
		want, later := s.Fleet.Size(e.sample.At, min(len(members), s.target))
		if !slices.Contains(s.Sizes, want) {
			return nil, fmt.Errorf("fleet %q wants %d replicas, legal are %v", g.gang.Name, want, s.Sizes)
		}
		e.setTarget(g, want, len(members))
		if err := e.shrink(g, members); err != nil {
			return nil, err
		}
		needs := make([]elastic.Need, 0, len(later))
		for _, n := range later {
			needs = append(needs, elastic.Need{Replicas: n.Replicas, From: unix(e.after(n.In))})
		}
		reserved = append(reserved, elastic.ReservedFor("", e.history.Outcomes[members[0]].Allocated, want, needs)...)
	}
	return reserved, nil
}

// missingReplicas returns the replicas that fleets want and that wait for devices, as jobs of package elastic.
func (e *engine) missingReplicas(fleets []*group) (jobs []elastic.Job) {
	for _, g := range fleets {
		first := &e.setup.Jobs[g.jobs[0]]
		present := len(e.atWork(g))
		for k := present; present > 0 && k < g.sizing.target; k++ {
			jobs = append(jobs, elastic.Job{
				Name: fmt.Sprintf("replica %s/%d", g.gang.Name, k), Priority: first.Request.Priority, Arrived: unix(g.sizing.since),
				Sizes: []int{1}, Worker: gang.Member{Request: first.Request},
			})
		}
	}
	return jobs
}

// serves reports whether any fleet is there: its size changes until it ends.
func (e *engine) serves() bool {
	fleets, _ := e.fleets()
	return slices.ContainsFunc(fleets, func(g *group) bool { return len(e.atWork(g)) > 0 })
}
