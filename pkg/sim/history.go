package sim

import (
	"fmt"
	"slices"
	"time"

	"github.com/tandem-gpu/tandem/pkg/gang"
	"github.com/tandem-gpu/tandem/pkg/vgpu"
)

// History is what happened in a run. Callers do not modify it.
type History struct {
	// Capacity is the compute of all devices of the cluster, unhealthy ones included.
	Capacity vgpu.MilliGPU
	// Outcomes of the jobs, in the order of Setup.Jobs.
	Outcomes []Outcome
	// Gangs in the order of their first members.
	Gangs []GangOutcome
	// Preemptions in the order of the decisions.
	Preemptions []Preemption
	// Samples of the cluster by time. There is one after each arrival of a pod or a gang, and one for each instant with
	// ends of pods or a new drain, after the tries of those that wait.
	Samples []Sample

	setup   Setup
	log     []entry
	groups  []*group
	groupOf []*group // per job, nil for single pods
	levels  []gang.Level
	drains  [][]vgpu.Hold     // in the order of the log
	starts  []vgpu.Assignment // in the order of the log
	// nominations of Preemptions.
	nominations []*nomination
	// rooms of the hosts before the first job, and the jobs by UID, which find fills.
	rooms []vgpu.Room
	jobOf map[vgpu.UID]int
	// initial is the allocation before the first job.
	initial vgpu.MilliGPU
}

// State is what became of a job.
type State int

const (
	// Waiting says that it waits, and nothing is to come that could make room.
	Waiting State = iota
	// Dropped says that it did not fit when it arrived, or that its gang started or runs on without it, and is gone.
	Dropped
	// Running pods have a place and never end.
	Running
	// Finished pods did the work of their duration.
	Finished
	// Held says that the elastic gang of the pod runs without it, or ended without it.
	Held
)

var states = []string{Waiting: "waiting", Dropped: "dropped", Running: "running", Finished: "finished", Held: "held"}

// String returns the state in a word.
func (s State) String() string {
	if s < 0 || int(s) >= len(states) {
		return fmt.Sprintf("state %d", int(s))
	}
	return states[s]
}

// Placed reports whether the pod got a place.
func (s State) Placed() bool { return s == Running || s == Finished }

// Outcome is what became of one job.
type Outcome struct {
	UID vgpu.UID
	// Pod is "namespace/name", for people.
	Pod   string
	State State
	// Priority of its request.
	Priority int32
	// Arrived is the arrival of the pod, Started its last placement, Ended its end. Started and Ended are 0 where State
	// says that they never happen. Waited is how long it waited for places, all times together that came to an end.
	Arrived, Started, Ended, Waited time.Duration
	// Evictions counts how often it was evicted, and Lost is the work that was undone by that, in thousandths of a GPU times
	// seconds.
	Evictions int
	Lost      int64
	// Asked is the compute of the pod's request: on the first shape of device, by model, slots and memory, on which its
	// request is legal. Allocated is what it got.
	Asked, Allocated vgpu.MilliGPU
	// Assignment names the node and the devices of a placed pod. A pod without GPUs has no containers here.
	Assignment vgpu.Assignment
}

// Wait returns how long the pod waited for its places, all times together. The value has a meaning for placed pods
// only.
func (o *Outcome) Wait() time.Duration { return o.Waited }

// JCT returns the job's completion time: from its arrival to its end. The value has a meaning for finished pods only.
func (o *Outcome) JCT() time.Duration { return o.Ended - o.Arrived }

// Sample is the state of the cluster after an event.
type Sample struct {
	At time.Duration
	// Arrived is the compute of all requests so far, Allocated that of running pods.
	Arrived, Allocated vgpu.MilliGPU
	// Fragmentation is the free compute that the usual requests cannot use.
	Fragmentation vgpu.MilliGPU
	// Waiting and Running count pods now, Dropped those up to now.
	Waiting, Running, Dropped int
	// WaitingGangs counts the gangs whose members are among Waiting.
	WaitingGangs int
}

// start returns the cluster as it is before the first job.
func (h *History) start() (*vgpu.Cluster, error) {
	nodes := make([]*vgpu.Node, 0, len(h.setup.Nodes))
	for _, n := range h.setup.Nodes {
		nodes = append(nodes, n.Clone())
	}
	return vgpu.NewCluster(nodes...)
}

// replay plays the history again, as far as its caller wants, without deciding anything.
type replay struct {
	history *History
	cluster *vgpu.Cluster
	next    int
	drains  int                     // so far
	starts  int                     // so far
	made    int                     // preemptions so far
	waiting []int                   // in the order of tries; of a gang the first member
	places  map[int]vgpu.Assignment // of the jobs that have one
	since   map[int]time.Duration   // when they got it
	kept    map[int]*nomination     // by job
}

func (h *History) replay() (*replay, error) {
	c, err := h.start()
	return &replay{history: h, cluster: c, places: map[int]vgpu.Assignment{}, since: map[int]time.Duration{}, kept: map[int]*nomination{}}, err
}

// step plays the next entry of the log.
func (p *replay) step() error {
	e := &p.history.log[p.next]
	p.next++
	r := &p.history.setup.Jobs[e.job].Request
	switch e.what {
	case starts:
		p.served(e.job)
		p.cluster.Release(r.UID)
		return p.enter(e, r)
	case leftOut:
		p.served(e.job)
		p.cluster.Release(r.UID)
	case ends, leaves:
		a := p.places[e.job]
		leave(p.cluster, &a, r)
		delete(p.places, e.job)
		delete(p.since, e.job)
	case refused, queued:
		if !p.dropped(e.job) {
			p.wait(e.job)
		}
	case returns:
		p.wait(e.job)
	case preempts:
		return p.nominate(e.job)
	case letsGo:
		p.endPreemption(e.job)
	case drains:
		p.drains++
		return p.hold(p.history.drains[p.drains-1])
	case givesUp:
		for _, member := range p.history.groupOf[e.job].jobs {
			p.cluster.Release(p.history.setup.Jobs[member].Request.UID)
		}
	}
	return nil
}

// dropped reports whether a refusal drops a pod, or a gang, on arrival.
func (p *replay) dropped(job int) bool {
	if g := p.history.groupOf[job]; g != nil {
		return p.history.Gangs[g.number].State == Dropped
	}
	return p.history.Outcomes[job].State == Dropped
}

// enter gives a job its next place.
func (p *replay) enter(e *entry, r *vgpu.Request) error {
	a := p.history.starts[p.starts]
	p.starts++
	p.places[e.job], p.since[e.job] = a, e.at
	return enter(p.cluster, &a, r)
}

// nominate keeps the room that is kept for a job by the next preemption.
func (p *replay) nominate(job int) error {
	n := p.history.nominations[p.made]
	p.made++
	p.kept[job] = n
	for i := range n.rooms {
		n.rooms[i].take(p.cluster)
	}
	return p.hold(n.holds)
}

// endPreemption ends the room of a job's preemption.
func (p *replay) endPreemption(job int) {
	n := p.kept[job]
	for i := range n.holds {
		p.cluster.Release(n.holds[i].UID)
	}
	n.giveBack(p.cluster)
	delete(p.kept, job)
}

// wait puts a job, or a gang, among those that wait.
func (p *replay) wait(job int) {
	rank := func(job int) int32 { return p.history.setup.Jobs[job].Request.Priority }
	i := len(p.waiting)
	for i > 0 && rank(p.waiting[i-1]) < rank(job) {
		i--
	}
	p.waiting = slices.Insert(p.waiting, i, job)
}

func (p *replay) hold(holds []vgpu.Hold) error {
	for i := range holds {
		p.cluster.Release(holds[i].UID)
		if err := p.cluster.Hold(holds[i]); err != nil {
			return err
		}
	}
	return nil
}

// Refusals says, by index of the job, why single pods did not fit on any node when they arrived. Pods that came when
// others waited before them have none, unless the queue skips. Refusals plays the whole history again.
func (h *History) Refusals() (map[int]*Refusal, error) {
	all := map[int]*Refusal{}
	return all, h.explain(func(p *replay, e *entry) error {
		if h.groupOf[e.job] == nil {
			r := h.setup.requestAt(e.job, e.at)
			all[e.job] = Explain(h.setup.admitting(e.job, p.cluster.Nodes()), &r)
		}
		return nil
	})
}

// GangRefusals is Refusals for the gangs, by index in Gangs.
func (h *History) GangRefusals() (map[int]*gang.Refusal, error) {
	all := map[int]*gang.Refusal{}
	return all, h.explain(func(p *replay, e *entry) error {
		g := h.groupOf[e.job]
		if g == nil {
			return nil
		}
		refusal, err := p.refusal(g, e.at)
		all[g.number] = refusal
		return err
	})
}

// explain plays the history again and shows it before each refusal on arrival.
func (h *History) explain(visit func(*replay, *entry) error) error {
	p, err := h.replay()
	for err == nil && p.next < len(h.log) {
		if e := &h.log[p.next]; e.what == refused {
			err = visit(p, e)
		}
		if err == nil {
			err = p.step()
		}
	}
	if err != nil {
		return fmt.Errorf("explain history: %w", err)
	}
	return nil
}

// refusal says why a gang has no place now, nil where it has one.
func (p *replay) refusal(g *group, at time.Duration) (*gang.Refusal, error) {
	s := &p.history.setup
	policy := s.Policy
	if s.Mix != nil {
		policy = policy.With(s.Mix, s.Seed)
	}
	plan, err := gang.Place(g.on(p.cluster), g.at(s, at), gang.Config{Policy: policy, MaxDomains: s.Gangs.MaxDomains})
	return plan.Refused, err
}
