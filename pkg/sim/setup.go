package sim

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/tandem-gpu/tandem/pkg/fragmentation"
	"github.com/tandem-gpu/tandem/pkg/placement"
	"github.com/tandem-gpu/tandem/pkg/vgpu"
)

// Job is one pod of a workload, by itself or as a member of a gang.
type Job struct {
	// Request is the request of the pod. Its UID is unique among the jobs; without containers it has no GPU.
	Request vgpu.Request
	// Arrive is the time at which it arrives, from the start of the simulation, 0 or more.
	Arrive time.Duration
	// Duration is the time that it runs; 0: it stays for ever.
	Duration time.Duration
	// DeclaresEnd says that the pod itself declares how long it runs, so that it may use the room of a drain and will
	// be gone in time.
	DeclaresEnd bool
	// Gang that the pod is a member of, nil for a single pod. Members of one gang arrive together, and are alike in Duration,
	// DeclaresEnd, Checkpoint and priority.
	Gang *Gang
	// Checkpoint is the amount of work after which, each time, the job saves its state. After an eviction it goes on
	// from there; 0: never, and it begins anew.
	Checkpoint time.Duration
	// Budget of the pod, nil for none.
	Budget *Budget
	// Class is the number by which Setup.Admits knows the job: the same nodes admit all jobs of one class.
	Class int
	// After is the UID of a job after whose end this one arrives, "" for none: Arrive counts from that end then. A gang comes after
	// one job, the same for all its members, and others come after the first member of a gang. Jobs after one that does not end never
	// arrive, and count as waiting.
	After vgpu.UID
	// At is where the pod has its place when the simulation begins, nil for a pod that arrives. Then Arrive is 0 and After "". All
	// members of a gang are there, or none; elastic gangs arrive.
	At *vgpu.Assignment
	// Ran is for how long the pod has run by then, as a part of Duration; 0 without At.
	Ran time.Duration
}

// Queue says what becomes of a pod that does not fit. In each queue, pods of a higher priority come first, those of one
// priority in the order in which they came or came back.
type Queue int

const (
	// Drop says that the pod is gone, and not tried again.
	Drop Queue = iota
	// FIFO says that the pod waits, and that those that come later wait behind it, unless their priority is higher.
	FIFO
	// Skip says that the pod waits, with another try whenever others end; those that fit overtake it.
	Skip
)

var queues = []string{Drop: "drop", FIFO: "fifo", Skip: "skip"}

// String returns the queue's name as in QueueByName.
func (q Queue) String() string {
	if q < 0 || int(q) >= len(queues) {
		return fmt.Sprintf("queue %d", int(q))
	}
	return queues[q]
}

// Queues returns the names that QueueByName knows.
func Queues() []string { return slices.Clone(queues) }

// QueueByName returns the queue with a name of Queues.
func QueueByName(name string) (Queue, error) {
	i := slices.Index(queues, name)
	if i < 0 {
		return 0, fmt.Errorf("choose queue: unknown name %q, known are %s", name, strings.Join(queues, ", "))
	}
	return Queue(i), nil
}

// Setup is all that a run depends on.
type Setup struct {
	// Nodes with their devices, with Room set to what the host has for pods, and with the assignments that are there
	// from the start and never end. Run changes none of them, so that several runs may share them.
	Nodes []*vgpu.Node
	// Jobs in any order of time; those of one instant arrive in the order of the slice.
	Jobs []Job
	// Policy ranks the placements; the zero value is placement's default.
	Policy placement.Policy
	// Queue says what becomes of a pod that does not fit.
	Queue Queue
	// Admits reports whether a node may take the jobs of a class, apart from its devices and its room; nil admits all jobs on all
	// nodes. It gives the same answer throughout a run. Runs with preemption or elastic gangs have none.
	Admits func(class int, node string) bool
	// Mix is the requests that usually arrive, all of them, for the policies that use them and for the measure of
	// fragmentation. nil means that the run learns them from the pods as they arrive.
	Mix *fragmentation.Mix
	// RenewMix is the longest time that an arrival stays out of the requests that the run learns, as in fragmentation.Learner, 0 or
	// more; 0 stands for the scheduler's. Each new mix makes the run score all nodes again.
	RenewMix time.Duration
	// Labels of the nodes, by the name of the node, then by key: the levels that gangs wish for. A node that has no label
	// Hostname has its name there.
	Labels map[string]map[string]string
	Gangs  GangConfig
	// Elastic is what the sizes of elastic gangs go by.
	Elastic ElasticConfig
	// Preemption chooses the victims for pods and gangs that find no room.
	Preemption PreemptionConfig
	// Seed is for the policies that draw.
	Seed int64
	// Progress is called by the run with the number of jobs that have arrived, about a hundred times; nil for no call.
	Progress func(done, total int)
}

// latest bounds times of arrival and durations: half of what a time.Duration can be, 146 years.
const latest = time.Duration(1) << 62

// validate returns what is wrong with the setup.
func (s *Setup) validate() error {
	switch {
	case len(s.Nodes) == 0:
		return errors.New("the cluster has no nodes")
	case s.Queue < Drop || s.Queue > Skip:
		return fmt.Errorf("unknown %v, known are %s", s.Queue, strings.Join(queues, ", "))
	}
	if s.RenewMix < 0 {
		return fmt.Errorf("the learned requests are renewed every %v, legal is 0s or more", s.RenewMix)
	}
	seen := make(map[vgpu.UID]int, len(s.Jobs))
	names := make(map[string]bool, len(s.Nodes))
	for _, n := range s.Nodes {
		names[n.Name()] = true
		for _, a := range n.Assignments() {
			seen[a.UID] = -1
		}
	}
	for i := range s.Jobs {
		if err := s.Jobs[i].validate(); err != nil {
			return fmt.Errorf("job %d (pod %s): %w", i, s.Jobs[i].Request.Pod, err)
		}
		uid := s.Jobs[i].Request.UID
		if other, double := seen[uid]; double && other < 0 {
			return fmt.Errorf("job %d (pod %s): UID %q is on a node from the start", i, s.Jobs[i].Request.Pod, uid)
		} else if double {
			return fmt.Errorf("job %d (pod %s): UID %q is that of job %d too", i, s.Jobs[i].Request.Pod, uid, other)
		}
		seen[uid] = i
		if at := s.Jobs[i].At; at != nil && (at.UID != uid || !names[at.Node]) {
			return fmt.Errorf("job %d (pod %s): its place is of UID %q on node %q, which is another pod or no node", i, s.Jobs[i].Request.Pod, at.UID, at.Node)
		}
	}
	if err := s.validateOrder(seen); err != nil {
		return err
	}
	if err := s.validateAdmission(); err != nil {
		return err
	}
	if err := s.validatePreemption(); err != nil {
		return err
	}
	return s.validateGangs()
}

func (j *Job) validate() error {
	switch {
	case j.Arrive < 0 || j.Arrive > latest:
		return fmt.Errorf("arrives at %v, legal is 0s to %v", j.Arrive, latest)
	case j.Duration < 0 || j.Duration > latest:
		return fmt.Errorf("runs for %v, legal is 0s (for ever) to %v", j.Duration, latest)
	case j.DeclaresEnd && j.Duration == 0:
		return errors.New("declares its end and stays for ever")
	case j.Checkpoint < 0 || j.Checkpoint > latest:
		return fmt.Errorf("saves its work every %v, legal is 0s (never) to %v", j.Checkpoint, latest)
	case j.At != nil && (j.Arrive != 0 || j.After != ""):
		return errors.New("is there from the start and arrives later")
	case j.Ran < 0 || j.Ran > latest || j.Ran > 0 && j.At == nil || j.Duration > 0 && j.Ran >= j.Duration:
		return fmt.Errorf("has run for %v, legal is 0s, and less than its duration for a pod that is there from the start", j.Ran)
	case j.Request.Host.MilliCPU < 0 || j.Request.Host.Memory < 0:
		return fmt.Errorf("asks its host for %v, legal is 0 or more", j.Request.Host)
	case j.Request.UID == "":
		return errors.New("has no UID")
	case len(j.Request.Containers) == 0:
		return nil
	}
	return j.Request.Validate()
}
