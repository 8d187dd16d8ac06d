package outlook

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"github.com/tandem-gpu/tandem/pkg/fragmentation"
	"github.com/tandem-gpu/tandem/pkg/placement"
	"github.com/tandem-gpu/tandem/pkg/sim"
	"github.com/tandem-gpu/tandem/pkg/snapshot"
	"github.com/tandem-gpu/tandem/pkg/vgpu"
)

// Rules are what the decisions go by.
type Rules struct {
	Policy placement.Policy
	Seed   int64
	// Mix is the usual requests, nil for those of the pods in the snapshot.
	Mix        *fragmentation.Mix
	Gangs      sim.GangConfig
	Preemption sim.PreemptionConfig
	// Preferred are the levels that gangs prefer.
	Preferred []string
}

// Longest is the longest time that Play looks ahead.
const Longest = 366 * 24 * time.Hour

// Outlook is what becomes of a cluster within a time.
type Outlook struct {
	// Pods are those that wait in the snapshot, in the order of the queue.
	Pods []Wait `json:"pods"`
	// Preempted are the pods that leave for others, in the order of the decisions.
	Preempted []Preempted `json:"preempted"`
	// Figures at the end.
	Figures Figures `json:"figures"`
	// After is the cluster at the end.
	After *snapshot.Snapshot `json:"-"`
	// Gaps of the snapshot, with the number of pods, gangs, nodes or shares that each is about.
	Gaps map[Gap]int `json:"gaps"`
}

// Wait is what becomes of a pod that waits.
type Wait struct {
	snapshot.Name
	Gang *snapshot.GangName `json:"gang,omitempty"`
	// Node that the pod gets, "" where it still waits at the end.
	Node string `json:"node,omitempty"`
	// AfterSeconds is when it gets the node, from the snapshot on; WaitedSeconds how long it has waited then, or at the end.
	AfterSeconds  int64 `json:"afterSeconds"`
	WaitedSeconds int64 `json:"waitedSeconds"`
}

// Preempted is a pod that leaves for another.
type Preempted struct {
	snapshot.Name
	Node string `json:"node"`
	// AfterSeconds is when that is decided, from the snapshot on. For is the pod, or the gang, that gets the room.
	AfterSeconds int64  `json:"afterSeconds"`
	For          string `json:"for"`
	// Back is the node that the pod has at the end, "" where it waits.
	Back string `json:"back,omitempty"`
}

// Play plays a snapshot for a time. The error names what is broken in the snapshot, or in the rules.
func Play(s *snapshot.Snapshot, r Rules, length time.Duration) (*Outlook, error) {
	return play(s, r, length, nil)
}

// play is Play with the usual requests that fragmentation is measured against, nil for those of the snapshot.
func play(s *snapshot.Snapshot, r Rules, length time.Duration, usual *fragmentation.Mix) (*Outlook, error) {
	if length <= 0 || length > Longest {
		return nil, fmt.Errorf("play snapshot: for %v, legal is more than 0s, up to %v", length, Longest)
	}
	w, err := worldOf(s)
	if err != nil {
		return nil, fmt.Errorf("play snapshot: %w", err)
	}
	h, err := sim.Run(w.setup(&r))
	if err != nil {
		return nil, fmt.Errorf("play snapshot: %w", err)
	}
	if usual == nil {
		usual = w.measure()
	}
	return w.outlook(h, length, usual)
}

// setup returns what the simulator plays. Pods that do not fit wait, and others may overtake them, as in the scheduler.
func (w *world) setup(r *Rules) sim.Setup {
	if s := w.s; s.Redacted {
		w.gaps[Names]++
	}
	w.gaps[HostUse] = len(w.there)
	mix := r.Mix
	if mix == nil {
		mix = w.usual()
	}
	return sim.Setup{
		Nodes: w.nodes, Jobs: w.jobs(r.Preferred), Policy: r.Policy, Seed: r.Seed, Mix: mix, Queue: sim.Skip, Gangs: r.Gangs, Preemption: r.Preemption,
	}
}

// halfLife is the time after which a pod counts half among the usual ones, in seconds: the default of the scheduler.
const halfLife = 24 * 60 * 60

// usual returns the usual requests as far as the pods of the snapshot show them.
func (w *world) usual() *fragmentation.Mix {
	all := append(slices.Clone(w.there), w.waits...)
	slices.SortStableFunc(all, func(a, b pod) int { return cmp.Or(a.since.Compare(b.since), cmp.Compare(a.UID, b.UID)) })
	learner := fragmentation.NewLearner(halfLife)
	for i := range all {
		kind, since := fragmentation.KindOf(&all[i].request), all[i].since
		if all[i].at != nil {
			kind.Models = "" // the model that it has is not all that it may have
		}
		if since.IsZero() {
			since = w.s.At
		}
		learner.Observe(all[i].Namespace, kind, max(0, since.Unix()))
	}
	return learner.Usual(max(0, w.s.At.Unix()))
}

// outlook reads a history.
func (w *world) outlook(h *sim.History, length time.Duration, usual *fragmentation.Mix) (*Outlook, error) {
	after, err := h.SnapshotAt(length)
	if err != nil {
		return nil, fmt.Errorf("play snapshot: %w", err)
	}
	w.restore(after, length)
	o := &Outlook{Pods: []Wait{}, Preempted: []Preempted{}, After: after, Gaps: w.gaps}
	holdings, firsts, last := h.Holdings(), map[vgpu.UID]sim.Holding{}, map[vgpu.UID]string{}
	for _, held := range holdings {
		uid := held.Assignment.UID
		if _, known := firsts[uid]; !known && held.From <= length {
			firsts[uid] = held
		}
	}
	for i := range after.Nodes {
		for k := range after.Nodes[i].Pods {
			last[after.Nodes[i].Pods[k].UID] = after.Nodes[i].Name
		}
	}
	o.Pods = w.fates(firsts, length)
	o.Preempted = preempted(h, holdings, last, length)
	o.Figures, err = w.figures(after, usual)
	w.gaps[Slowdowns] = o.Figures.UnknownSlowdowns
	for gap, count := range w.gaps {
		if count == 0 {
			delete(w.gaps, gap)
		}
	}
	return o, err
}

// restore puts into the snapshot of the end what the simulator does not know.
func (w *world) restore(after *snapshot.Snapshot, length time.Duration) {
	shift := w.s.At.Sub(time.Unix(0, 0))
	after.Source, after.Redacted, after.At = w.s.Source, w.s.Redacted, w.s.At.Add(length)
	for i := range after.Nodes {
		n, was := &after.Nodes[i], &w.s.Nodes[i]
		n.Problem, n.StraySlots, n.Devices = was.Problem, was.StraySlots, was.Devices
		for k := range n.Pods {
			n.Pods[k].Since = n.Pods[k].Since.Add(shift)
			if !n.Pods[k].EndsBy.IsZero() {
				n.Pods[k].EndsBy = n.Pods[k].EndsBy.Add(shift)
			}
		}
		for k := range n.Holds {
			if !n.Holds[k].Until.IsZero() {
				n.Holds[k].Until = n.Holds[k].Until.Add(shift)
			}
		}
	}
	since := map[vgpu.UID]time.Time{}
	for i := range w.waits {
		since[w.waits[i].UID] = w.waits[i].since
	}
	for i := range after.Pending {
		p := &after.Pending[i]
		p.Since = p.Since.Add(shift)
		if was, known := since[p.UID]; known {
			p.Since = was
		}
	}
}

// fates returns what becomes of the pods that wait.
func (w *world) fates(firsts map[vgpu.UID]sim.Holding, length time.Duration) []Wait {
	pods := slices.Concat(w.waits, w.stays)
	slices.SortFunc(pods, func(a, b pod) int { return a.compare(&b) })
	all := make([]Wait, 0, len(pods))
	for i := range pods {
		p := &pods[i]
		out, until := Wait{Name: p.Name, Gang: p.gang}, length
		if held, bound := firsts[p.UID]; bound {
			out.Node, out.AfterSeconds, until = held.Assignment.Node, int64(held.From/time.Second), held.From
		}
		out.WaitedSeconds = int64((w.s.At.Sub(p.since) + until) / time.Second)
		all = append(all, out)
	}
	return all
}

// preempted returns the pods that leave for others.
func preempted(h *sim.History, holdings []sim.Holding, last map[vgpu.UID]string, length time.Duration) []Preempted {
	all := []Preempted{}
	for i := range h.Preemptions {
		p := &h.Preemptions[i]
		if p.At > length {
			break
		}
		by := h.Outcomes[p.Job].Pod
		for k := range h.Gangs {
			if slices.Contains(h.Gangs[k].Members, p.Job) {
				by = "gang " + nameOf(h.Gangs[k].Name)
			}
		}
		for _, victim := range slices.Concat(p.Evicted...) {
			o := &h.Outcomes[victim]
			all = append(all, Preempted{
				Name: snapshot.NameOf(o.Pod, o.UID), Node: nodeOf(holdings, victim, p.At), AfterSeconds: int64(p.At / time.Second), For: by, Back: last[o.UID],
			})
		}
	}
	return all
}

// nodeOf returns the node that a job had before a time.
func nodeOf(holdings []sim.Holding, job int, at time.Duration) string {
	node := ""
	for _, held := range holdings {
		if held.Job == job && held.From <= at {
			node = held.Assignment.Node
		}
	}
	return node
}
