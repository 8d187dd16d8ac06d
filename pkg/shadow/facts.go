package shadow

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/tandem-gpu/tandem/pkg/gang"
	"github.com/tandem-gpu/tandem/pkg/placement"
	"github.com/tandem-gpu/tandem/pkg/sim"
	"github.com/tandem-gpu/tandem/pkg/vgpu"
)

// Config is what the world of Tandem is decided by, and how much a report holds.
type Config struct {
	// Policy ranks the placements; the zero value is placement's default.
	Policy placement.Policy
	// Queue says whether pods that fit overtake those that wait: sim.Skip, as the scheduler does it, or sim.FIFO.
	Queue sim.Queue
	Gangs sim.GangConfig
	// Neighbours predicts the slowdown of pods that share a device; nil knows no workload.
	Neighbours *placement.Neighbours
	// RenewMix is as in sim.Setup: a longer time makes reports faster, and Tandem follow a new kind of requests later.
	RenewMix time.Duration
	// Gather is how long after its first member a gang's members still join it, 0 or more. Later ones are pods by themselves.
	Gather time.Duration
	// Keep is how long a period stays in the reports after its end, above 0.
	Keep time.Duration
	// MaxPods bounds the pods that come in a period, and those of all periods together at ten times as many, 1 or more. More pods
	// give longer periods, take more memory, and make a report slower.
	MaxPods int
	// MaxExamples bounds the examples of a report, 0 or more.
	MaxExamples int
}

// validate returns which setting is not legal.
func (c *Config) validate() error {
	switch {
	case c.Queue != sim.Skip && c.Queue != sim.FIFO:
		return fmt.Errorf("queue %v, legal are %v and %v", c.Queue, sim.Skip, sim.FIFO)
	case c.RenewMix < 0:
		return fmt.Errorf("renew mix %v, legal is 0s or more", c.RenewMix)
	case c.Gather < 0:
		return fmt.Errorf("gather %v, legal is 0s or more", c.Gather)
	case c.Keep <= 0:
		return fmt.Errorf("keep %v, legal is above 0s", c.Keep)
	case c.MaxPods < 1:
		return fmt.Errorf("max pods %d, legal is 1 or more", c.MaxPods)
	case c.MaxExamples < 0:
		return fmt.Errorf("max examples %d, legal is 0 or more", c.MaxExamples)
	}
	return nil
}

// Pod is a pod with a request for GPUs.
type Pod struct {
	// Request is what the pod asks for in reality. Its UID is unique for ever.
	Request vgpu.Request
	// Would is what Tandem would have given it, where its owner said that a share of a device is enough; nil for Request.
	Would *vgpu.Request
	// Created is the time of its creation.
	Created time.Time
	// Class is the number by which Inventory.Admits knows the pod: the same nodes take all pods of one class.
	Class int
	// Gang of the pod, nil for a single pod.
	Gang *Gang
	// Foreign says that the pod is not the other scheduler's: it is on its real node in both worlds and in no figure of waiting.
	Foreign bool
}

// Gang is what a pod says of its gang.
type Gang struct {
	// Name is "namespace/name".
	Name string
	// MinCount is the least number of members that may run, 0 for all.
	MinCount int
	Wishes   gang.Wishes
	Losses   []gang.Loss
}

// Inventory is what there is during a period.
type Inventory struct {
	// Nodes with empty ledgers. Their room is what the host has for pods with GPUs.
	Nodes []*vgpu.Node
	// Labels of the nodes, by the name of the node, then by key: the levels that gangs wish for.
	Labels map[string]map[string]string
	// Admits are the names of the nodes that take the pods of a class, by the class; a class without an entry goes anywhere.
	Admits map[int][]string
	// Unknown says what is not known of the cluster.
	Unknown []Unknown
}

// Unknown is something that the figures leave out, with the reason.
type Unknown struct {
	// What is left out: "node n1".
	What string `json:"what"`
	// Why is the reason.
	Why string `json:"why"`
}

// fact is what is known of a pod.
type fact struct {
	Pod
	// node is where the other scheduler bound it, "" before.
	node string
	// assignment has the devices where they are known, else no containers.
	assignment   vgpu.Assignment
	bound, ended time.Time // zero before
}

// would returns the request that Tandem would have placed.
func (f *fact) would() *vgpu.Request {
	if f.Would != nil {
		return f.Would
	}
	return &f.Request
}

// cancelled says that the pod was gone before it ran.
func (f *fact) cancelled() bool { return f.node == "" && !f.ended.IsZero() }

// Log keeps the facts of the present period and the figures of earlier ones. It is for one goroutine.
type Log struct {
	cfg       Config
	inventory Inventory
	began     time.Time
	facts     []*fact // in the order in which they came
	carried   int     // of facts, those from before the period
	byUID     map[vgpu.UID]*fact
	closed    []*period
	dropped   int // periods that are no longer kept
}

// New returns a log without nodes and pods. The error names the setting that is not legal.
func New(cfg Config) (*Log, error) {
	if err := cfg.validate(); err != nil {
		return nil, fmt.Errorf("make shadow: %w", err)
	}
	return &Log{cfg: cfg, byUID: map[vgpu.UID]*fact{}}, nil
}

// Begin ends the period, if any, and begins another one with what is there then. Pods that have not ended are carried over. Begin
// refuses a time before that of the present period, and an inventory without nodes.
func (l *Log) Begin(at time.Time, inv Inventory) error {
	if len(inv.Nodes) == 0 {
		return errors.New("begin period: the cluster has no node with known GPUs")
	}
	if !l.began.IsZero() {
		if at.Before(l.began) {
			return fmt.Errorf("begin period: %v is before %v, when the present one began", at, l.began)
		}
		p, err := l.play(at)
		if err != nil {
			return fmt.Errorf("end period: %w", err)
		}
		l.close(p)
	}
	l.began, l.inventory = at, inv
	l.inventory.Admits = maps.Clone(inv.Admits)
	l.facts = slices.DeleteFunc(l.facts, func(f *fact) bool {
		if !f.ended.IsZero() {
			delete(l.byUID, f.Request.UID)
		}
		return !f.ended.IsZero()
	})
	l.carried = len(l.facts)
	return nil
}

// Admit says which nodes take the pods of a class that is new in the period. Begin has said it of the others.
func (l *Log) Admit(class int, nodes []string) {
	if l.inventory.Admits == nil {
		l.inventory.Admits = map[int][]string{}
	}
	l.inventory.Admits[class] = nodes
}

// close keeps a period that has ended, and drops those that are too old or too many.
func (l *Log) close(p *period) {
	p.members, p.other.starts, p.tandem.starts = nil, nil, nil
	l.closed = append(l.closed, p)
	pods := 0
	for i := len(l.closed) - 1; i >= 0; i-- {
		pods += l.closed[i].pods
		if p.to.Sub(l.closed[i].to) > l.cfg.Keep || pods > 10*l.cfg.MaxPods {
			l.dropped += i + 1
			l.closed = slices.Delete(l.closed, 0, i+1)
			return
		}
	}
}

// Clone returns a log with the same facts, for a report beside further facts.
func (l *Log) Clone() *Log {
	out := *l
	out.facts, out.byUID, out.closed = make([]*fact, 0, len(l.facts)), make(map[vgpu.UID]*fact, len(l.facts)), slices.Clone(l.closed)
	out.inventory.Admits = maps.Clone(l.inventory.Admits)
	gangs := map[*Gang]*Gang{}
	for _, f := range l.facts {
		same := *f
		if f.Gang != nil {
			if gangs[f.Gang] == nil {
				g := *f.Gang
				gangs[f.Gang] = &g
			}
			same.Gang = gangs[f.Gang]
		}
		out.facts, out.byUID[f.Request.UID] = append(out.facts, &same), &same
	}
	return &out
}

// Began returns when the present period began, the zero time before the first one.
func (l *Log) Began() time.Time { return l.began }

// Full reports whether as many pods have come in the period as may: the caller begins another one.
func (l *Log) Full() bool { return len(l.facts)-l.carried >= l.cfg.MaxPods }

// Created notes a pod. A pod that is known changes nothing. The error is a broken request.
func (l *Log) Created(p Pod) error {
	if l.byUID[p.Request.UID] != nil {
		return nil
	}
	for _, r := range []*vgpu.Request{&p.Request, p.Would} {
		if r == nil || len(r.Containers) == 0 && r.UID != "" {
			continue
		}
		if err := r.Validate(); err != nil {
			return fmt.Errorf("note pod: %w", err)
		}
	}
	if p.Would != nil && p.Would.UID != p.Request.UID {
		return fmt.Errorf("note pod %s: the request that Tandem would place has the UID %q, the pod has %q", p.Request.Pod, p.Would.UID, p.Request.UID)
	}
	f := &fact{Pod: p}
	l.facts, l.byUID[p.Request.UID] = append(l.facts, f), f
	return nil
}

// Knows reports whether a pod is in the log.
func (l *Log) Knows(uid vgpu.UID) bool { return l.byUID[uid] != nil }

// Bound notes that the other scheduler bound a pod to a node. The assignment has the pod's devices where they are known; without
// containers they are not. Only the first bind of a pod counts. Pods that are not known change nothing.
func (l *Log) Bound(uid vgpu.UID, node string, a vgpu.Assignment, at time.Time) {
	if f := l.byUID[uid]; f != nil && f.node == "" && f.ended.IsZero() {
		f.node, f.assignment, f.bound = node, a, latest(at, f.Created)
	}
}

// Ended notes that a pod has ended, or is gone. Only the first end of a pod counts.
func (l *Log) Ended(uid vgpu.UID, at time.Time) {
	if f := l.byUID[uid]; f != nil && f.ended.IsZero() {
		f.ended = at
	}
}

// latest returns the later of two times: the clocks of a cluster differ a little, and no pod is bound before it was created.
func latest(a, b time.Time) time.Time {
	if a.Before(b) {
		return b
	}
	return a
}
