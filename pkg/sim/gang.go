package sim

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/tandem-gpu/tandem/pkg/gang"
	"github.com/tandem-gpu/tandem/pkg/reservation"
	"github.com/tandem-gpu/tandem/pkg/vgpu"
)

// Gang is jobs that start together or not at all, and then end together: those whose Job.Gang points to it. Members are
// ranked by their order among the jobs.
type Gang struct {
	// Name is "namespace/name", unique among the gangs.
	Name string
	// MinCount is the least number of members that may run; 0 for all of them. A gang drops members beyond it for which
	// there is no room at its start.
	MinCount int
	Wishes   gang.Wishes
	// Losses are the losses of the gang by its spread.
	Losses []gang.Loss
	// Elastic lets the number of members change while the gang runs; nil for a gang of one size.
	Elastic *Elastic
}

// GangConfig is what gangs are placed by.
type GangConfig struct {
	// MaxDomains as in gang.Config.
	MaxDomains int
	// Drains says when the simulator keeps room for a gang while its present owners end. This is for one gang at a time,
	// at the earliest DrainAfter after its refusal, for DrainTimeout at most (0 for no bound). Package reservation decides
	// whose turn it is, and when it comes again after a drain in vain.
	Drains                   gang.Drains
	DrainAfter, DrainTimeout time.Duration
}

// GangOutcome is what became of a gang.
type GangOutcome struct {
	Name string
	// Members are the gang's jobs, by rank.
	Members []int
	State   State
	// Arrived, Started, Ended and Waited as in Outcome.
	Arrived, Started, Ended, Waited time.Duration
	// Evictions counts the evictions of the whole gang.
	Evictions int
	// Attempts counts the searches for a place.
	Attempts int
	// Drains counts the drains of the gang, the last one from DrainedAt on.
	Drains    int
	DrainedAt time.Duration
	// Spread is on how many domains of each level of the cluster the placed members are, by key; nodes are those of Hostname.
	// nil until the gang is placed. For an elastic gang it is the last one.
	Spread []gang.Spread
	// Sizes of an elastic gang, from its arrival on, and Moves, the times at which another size was decided while it ran.
	Sizes []Size
	Moves []time.Duration
}

// Wait returns how long the gang waited for its places, all times together. The value has a meaning for placed gangs
// only.
func (o *GangOutcome) Wait() time.Duration { return o.Waited }

// never is later than all that happens.
const never = time.Duration(math.MaxInt64)

// group is a gang in a run.
type group struct {
	history *History
	number  int // in History.Gangs
	gang    *Gang
	jobs    []int
	want    gang.Group
	levels  []gang.Level
	// least is the least compute of the members that must run, wherever they go.
	least vgpu.MilliGPU
	// ref names the gang to the machine, and members is room for the facts about it.
	ref     reservation.Ref
	members []reservation.Member
	// seen is how often room had come free at the last search without a place, −1 before any.
	seen int
	// asked is the number of changes of nodes at the last search without victims, −1 before any. asks says that there
	// were more since, and that another search comes later.
	asked int
	asks  bool
	// since is when it began to wait.
	since time.Duration
	// sizing is the state of an elastic gang, nil for others.
	sizing *sizing
	// broken says that the gang is a victim as a whole, and that members of it are still there.
	broken bool
}

// uid returns the UID of the gang's leader.
func (g *group) uid() vgpu.UID { return g.history.setup.Jobs[g.jobs[0]].Request.UID }

// askers returns the members that wait together for places: all, of an elastic gang its least number.
func (g *group) askers() []int {
	if g.sizing != nil {
		return g.jobs[:g.want.MinCount]
	}
	return g.jobs
}

// at returns the request of the gang if it starts at a time.
func (g *group) at(s *Setup, at time.Duration) *gang.Group {
	return g.with(len(g.askers()), s, at)
}

// with returns the request of the first members of the gang if they start at a time.
func (g *group) with(members int, s *Setup, at time.Duration) *gang.Group {
	want := g.want
	want.Members = slices.Clone(want.Members[:members])
	for i, job := range g.jobs[:members] {
		want.Members[i].Request = s.requestAt(job, at)
	}
	return &want
}

// on returns the cluster as the gang sees it.
func (g *group) on(c *vgpu.Cluster) *gang.Cluster {
	h := g.history
	seen := &gang.Cluster{
		Nodes: c.Nodes(), Levels: g.levels,
		Hosts: func(node int) vgpu.Room { return h.rooms[node] },
		Host: func(uid vgpu.UID, _ string) vgpu.Room {
			if job, known := h.find(uid); known {
				return h.setup.Jobs[job].Request.Host
			}
			return vgpu.Room{}
		},
	}
	h.setup.admission(seen)
	return seen
}

// requestAt returns the request of a pod if it starts at a time: with its end where it declares one.
func (s *Setup) requestAt(job int, at time.Duration) vgpu.Request {
	j := &s.Jobs[job]
	r := j.Request
	r.Ends = 0
	if j.DeclaresEnd && at <= latest {
		r.Ends = unix(at + j.Duration + time.Second - 1)
	}
	return r
}

// validateGangs returns what is wrong with the gangs.
func (s *Setup) validateGangs() error {
	for _, d := range []time.Duration{s.Gangs.DrainAfter, s.Gangs.DrainTimeout} {
		if d < 0 || d > longestDrain {
			return fmt.Errorf("drains begin after %v and end after %v, legal is 0s to %v", s.Gangs.DrainAfter, s.Gangs.DrainTimeout, longestDrain)
		}
	}
	sizes, first, names := map[*Gang]int{}, map[*Gang]*Job{}, map[string]bool{}
	for i := range s.Jobs {
		j := &s.Jobs[i]
		if j.Gang == nil {
			continue
		}
		if sizes[j.Gang]++; first[j.Gang] == nil {
			if names[j.Gang.Name] || j.Gang.Name == "" {
				return fmt.Errorf("job %d (pod %s): the name %q of its gang is empty, or that of another gang", i, j.Request.Pod, j.Gang.Name)
			}
			first[j.Gang], names[j.Gang.Name] = j, true
		}
		if err := j.like(first[j.Gang]); err != nil {
			return fmt.Errorf("job %d (pod %s): %w", i, j.Request.Pod, err)
		}
	}
	for i := range s.Jobs {
		if g := s.Jobs[i].Gang; g != nil && (g.MinCount < 0 || g.MinCount > sizes[g]) {
			return fmt.Errorf("gang %s: the least number of members is %d, legal is 0 to %d", g.Name, g.MinCount, sizes[g])
		}
	}
	return s.validateElastic(sizes)
}

// like returns in what a member of a gang differs from the first one and must not.
func (j *Job) like(first *Job) error {
	switch {
	case j.Arrive != first.Arrive:
		return fmt.Errorf("arrives at %v, the first member of its gang at %v", j.Arrive, first.Arrive)
	case j.Duration != first.Duration:
		return fmt.Errorf("runs for %v, the first member of its gang for %v", j.Duration, first.Duration)
	case j.DeclaresEnd != first.DeclaresEnd:
		return errors.New("declares its end and the first member of its gang does not, or the other way round")
	case j.Checkpoint != first.Checkpoint:
		return fmt.Errorf("saves its work every %v, the first member of its gang every %v", j.Checkpoint, first.Checkpoint)
	case j.Request.Priority != first.Request.Priority:
		return fmt.Errorf("has the priority %d, the first member of its gang %d", j.Request.Priority, first.Request.Priority)
	case (j.At == nil) != (first.At == nil) || j.Ran != first.Ran:
		return errors.New("is there from the start and the first member of its gang is not, or has run for another time, or the other way round")
	case j.At != nil && j.Gang.Elastic != nil:
		return errors.New("is there from the start and its gang is elastic")
	case j.After != first.After:
		return fmt.Errorf("comes after %q, the first member of its gang after %q", j.After, first.After)
	}
	return nil
}

// assemble notes the gangs among the jobs, in the order of their first members.
func (h *History) assemble(c *vgpu.Cluster) {
	h.groupOf = make([]*group, len(h.setup.Jobs))
	for _, n := range c.Nodes() {
		h.rooms = append(h.rooms, n.Room())
	}
	known := map[*Gang]*group{}
	h.levels = levelsOf(c.Nodes(), h.setup.Labels)
	for i := range h.setup.Jobs {
		spec := h.setup.Jobs[i].Gang
		if spec == nil {
			continue
		}
		g := known[spec]
		if g == nil {
			g = &group{history: h, number: len(h.groups), gang: spec, ref: refOf(spec), seen: -1, asked: -1}
			h.groups, known[spec] = append(h.groups, g), g
		}
		g.jobs, h.groupOf[i] = append(g.jobs, i), g
	}
	m := newMeasure(c)
	for _, g := range h.groups {
		h.prepare(g, m)
	}
}

// prepare fills in what is the same for every attempt.
func (h *History) prepare(g *group, m *measure) {
	spec, first := g.gang, &h.setup.Jobs[g.jobs[0]]
	g.want = gang.Group{
		Name: spec.Name, MinCount: spec.MinCount, Wishes: spec.Wishes, Losses: spec.Losses, Members: make([]gang.Member, len(g.jobs)),
	}
	if spec.Elastic != nil {
		g.sizing, g.want.MinCount = newSizing(spec.Elastic), spec.Elastic.Sizes[0]
	}
	if g.want.MinCount == 0 {
		g.want.MinCount = len(g.jobs)
	}
	least := make([]vgpu.MilliGPU, 0, len(g.jobs))
	for rank, job := range g.jobs {
		g.want.Members[rank].Rank, g.want.Members[rank].Kind = rank, h.setup.Jobs[job].Class
		least = append(least, m.least(&h.setup.Jobs[job].Request))
	}
	slices.Sort(least)
	for _, asked := range least[:g.want.MinCount] {
		g.least += asked
	}
	for _, key := range slices.Concat(spec.Wishes.Required, spec.Wishes.Preferred) {
		if key != gang.NVLink && !slices.ContainsFunc(g.levels, func(l gang.Level) bool { return l.Key == key }) {
			g.levels = append(g.levels, levelOf(h.levels, key, len(m.nodes)))
		}
	}
	g.since = first.Arrive
	h.Gangs = append(h.Gangs, GangOutcome{Name: spec.Name, Members: g.jobs, Arrived: first.Arrive})
}

func (e *engine) priority(g *group) int32 { return e.rank(g.jobs[0]) }
