package command_test

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/tandem-gpu/tandem/internal/cluster/snapshotjson"
	"github.com/tandem-gpu/tandem/pkg/gang"
	"github.com/tandem-gpu/tandem/pkg/placement"
	"github.com/tandem-gpu/tandem/pkg/snapshot"
	"github.com/tandem-gpu/tandem/pkg/vgpu"
	"github.com/tandem-gpu/tandem/pkg/why"
	"github.com/tandem-gpu/tandem/test/must"
)

// carryOut carries out each change that a command "why" found: it makes the change in the snapshot and asks the scheduler's decisions,
// not package why, whether the pods fit then. They must not fit as they are, must fit after the change, and must not fit a step short
// of it. It writes what it tried.
func carryOut(t *testing.T, raw, asked string) string {
	code, out, errs := run(raw, append(strings.Fields(asked), "--snapshot", "-", "--kubeconfig", "/dev/null", "-o", "json")...)
	if code != 0 {
		t.Fatalf("%s: %s", asked, errs)
	}
	var found struct{ Waits []*why.Answer }
	must.OK(t, json.Unmarshal([]byte(out), &found))
	var b strings.Builder
	for _, a := range found.Waits {
		w := trial{t: t, raw: raw, answer: a}
		if len(a.Changes) > 0 && w.fits(w.snapshot()) {
			t.Errorf("%s fits as it is, and changes are named", a.Pods[0].Path())
		}
		for i := range a.Changes {
			w.carry(&b, &a.Changes[i])
		}
		if a.Cause == nil && len(a.Fits) > 0 != w.fits(w.snapshot()) {
			t.Errorf("%s has room: the answer says %v", a.Pods[0].Path(), len(a.Fits) > 0)
		}
		if len(a.Changes) == 0 {
			b.WriteString("there is no change to carry out\n")
		}
	}
	return b.String()
}

// trial carries out the changes of one answer.
type trial struct {
	t      *testing.T
	raw    string
	answer *why.Answer
}

// step is a snapshot after a change, or just short of it.
type step struct {
	name string
	s    *snapshot.Snapshot
}

func (w *trial) carry(b *strings.Builder, c *why.Change) {
	after, short := w.steps(c)
	if !w.fits(after.s) {
		w.t.Errorf("it does not fit %s: %+v", after.name, c)
	}
	fmt.Fprintf(b, "%s it fits", after.name)
	for _, s := range short {
		if w.fits(s.s) {
			w.t.Errorf("it fits %s already: %+v", s.name, c)
		}
		fmt.Fprintf(b, "; %s it does not", s.name)
	}
	b.WriteString("\n")
}

// snapshot returns a new copy.
func (w *trial) snapshot() *snapshot.Snapshot {
	s, err := snapshotjson.Read([]byte(w.raw))
	must.OK(w.t, err)
	return s
}

// with returns a step.
func (w *trial) with(name string, change func(s *snapshot.Snapshot)) step {
	s := w.snapshot()
	change(s)
	return step{name, s}
}

// each changes the requests of the pods that wait.
func (w *trial) each(name string, change func(p *snapshot.Pending)) step {
	return w.with(name, func(s *snapshot.Snapshot) {
		for i := range s.Pending {
			if w.asks(&s.Pending[i]) {
				change(&s.Pending[i])
			}
		}
	})
}

func (w *trial) asks(p *snapshot.Pending) bool {
	return slices.ContainsFunc(w.answer.Pods, func(n snapshot.Name) bool {
		return n.UID == p.UID || strings.HasPrefix(string(p.UID), string(n.UID)+"-")
	})
}

// steps returns the snapshots after a change, and those just short of it.
func (w *trial) steps(c *why.Change) (after step, short []step) {
	switch c.Kind {
	case why.LessMemory:
		return w.memory(c.Memory), []step{w.memory(c.Memory + vgpu.GiB)}
	case why.FewerSlots:
		for k := c.Slots + 1; k < w.slotsAsked(); k++ {
			short = append(short, w.slots(k))
		}
		return w.slots(c.Slots), short
	case why.AsGang:
		return w.asGang(c), nil
	case why.LessHost:
		return w.hosts(c)
	case why.AnyModel:
		return w.each("on any model", func(p *snapshot.Pending) { p.Request.Models = nil }), nil
	case why.FewerMembers:
		return w.members(c.Members), []step{w.members(c.Members + 1)}
	case why.DevicesRecover:
		return w.parts(c.Devices, recoverDevice)
	case why.NodesReturn:
		var names []string
		for _, n := range c.Nodes {
			names = append(names, n.Name)
		}
		return w.parts(names, openNode)
	}
	return w.leave(c)
}

func (w *trial) leave(c *why.Change) (after step, short []step) {
	var uids []string
	for i := range c.Leave {
		uids = append(uids, string(c.Leave[i].UID))
	}
	if c.Kind == why.HoldsEnd {
		return w.parts(uids, endHold)
	}
	after, short = w.parts(uids, removePod)
	if c.Kind == why.PodsEnd {
		short = append(short, w.with("a second earlier", func(s *snapshot.Snapshot) { endBy(s, time.Unix(c.At-1, 0)) }))
	}
	return after, short
}

// parts returns the snapshot with all parts of a change, and those with one part less.
func (w *trial) parts(names []string, change func(s *snapshot.Snapshot, name string)) (after step, short []step) {
	all := func(but string) func(s *snapshot.Snapshot) {
		return func(s *snapshot.Snapshot) {
			for _, name := range names {
				if name != but {
					change(s, name)
				}
			}
		}
	}
	for _, name := range names {
		short = append(short, w.with("but for "+name, all(name)))
	}
	return w.with("after "+strings.Join(names, ", "), all("")), short
}

func (w *trial) memory(m vgpu.Bytes) step {
	at := w.largest(func(c *snapshot.ContainerRequest) int64 { return int64(c.MemoryBytes) })
	return w.each(fmt.Sprintf("with %v", m), func(p *snapshot.Pending) {
		if own := p.Request.Containers[at].MemoryBytes; own == 0 || own > m {
			p.Request.Containers[at].MemoryBytes = m
		}
	})
}

func (w *trial) slots(k vgpu.Slots) step {
	at := w.largest(func(c *snapshot.ContainerRequest) int64 { return int64(c.Slots) })
	return w.each(fmt.Sprintf("with %d slots", k), func(p *snapshot.Pending) {
		p.Request.Containers[at].Slots = min(p.Request.Containers[at].Slots, k)
	})
}

func (w *trial) slotsAsked() vgpu.Slots {
	p := w.first()
	return p.Request.Containers[w.largest(func(c *snapshot.ContainerRequest) int64 { return int64(c.Slots) })].Slots
}

func (w *trial) first() *snapshot.Pending {
	s := w.snapshot()
	return &s.Pending[slices.IndexFunc(s.Pending, func(p snapshot.Pending) bool { return p.UID == w.answer.Pods[0].UID })]
}

// largest returns the container of the first pod that asks for the most.
func (w *trial) largest(measure func(c *snapshot.ContainerRequest) int64) int {
	at, p := 0, w.first()
	for i := range p.Request.Containers {
		if measure(&p.Request.Containers[i]) > measure(&p.Request.Containers[at]) {
			at = i
		}
	}
	return at
}

// hosts returns the snapshot with less CPU and memory of the host, and those with a bit more of each.
func (w *trial) hosts(c *why.Change) (after step, short []step) {
	with := func(cpu int64, memory vgpu.Bytes) step {
		return w.each(fmt.Sprintf("with %dm of CPU and %v of memory of the host", cpu, memory), func(p *snapshot.Pending) {
			p.Request.MilliCPU, p.Request.MemoryBytes = min(p.Request.MilliCPU, cpu), min(p.Request.MemoryBytes, memory)
		})
	}
	r := w.first().Request
	cpu, memory := r.MilliCPU, r.MemoryBytes
	if c.MilliCPU > 0 {
		cpu = c.MilliCPU
	}
	if c.HostMemory > 0 {
		memory = c.HostMemory
	}
	if c.MilliCPU > 0 {
		short = append(short, with(cpu+1, memory))
	}
	if c.HostMemory > 0 {
		short = append(short, with(cpu, memory+vgpu.MiB))
	}
	return with(cpu, memory), short
}

// members returns the snapshot where the gang needs another number of members.
// asGang puts members with a part of the request each in place of the pod.
func (w *trial) asGang(c *why.Change) step {
	return w.with(fmt.Sprintf("as a gang of %d with %d slots each", c.Members, c.Slots), func(s *snapshot.Snapshot) {
		at := slices.IndexFunc(s.Pending, w.asksFor)
		whole := s.Pending[at]
		s.Pending = nil
		for i := range c.Members {
			p, request := whole, *whole.Request
			p.UID, p.Name.Name, p.Request = vgpu.UID(fmt.Sprintf("%s-%d", whole.UID, i)), fmt.Sprintf("%s-%d", whole.Name.Name, i), &request
			request.Containers = slices.Clone(request.Containers)
			request.Containers[0].Slots, request.Containers[0].MemoryBytes = c.Slots, request.Containers[0].MemoryBytes/vgpu.Bytes(c.Members)
			s.Pending = append(s.Pending, p)
		}
	})
}

func (w *trial) asksFor(p snapshot.Pending) bool { return w.asks(&p) }

func (w *trial) members(n int) step {
	return w.with(fmt.Sprintf("as a gang of %d", n), func(s *snapshot.Snapshot) {
		for i := range s.Gangs {
			if s.Gangs[i].GangName == *w.answer.Gang {
				s.Gangs[i].MinCount = n
			}
		}
	})
}

func recoverDevice(s *snapshot.Snapshot, name string) {
	for i := range s.Nodes {
		for k := range s.Nodes[i].Devices {
			d := &s.Nodes[i].Devices[k]
			d.Healthy = d.Healthy || string(d.ID) == name
		}
	}
}

func openNode(s *snapshot.Snapshot, name string) {
	for i := range s.Nodes {
		if s.Nodes[i].Name == name {
			s.Nodes[i].Problem = ""
		}
	}
}

func endHold(s *snapshot.Snapshot, uid string) {
	for i := range s.Nodes {
		s.Nodes[i].Holds = slices.DeleteFunc(s.Nodes[i].Holds, func(h snapshot.Hold) bool { return string(h.UID) == uid })
	}
}

func removePod(s *snapshot.Snapshot, uid string) {
	for i := range s.Nodes {
		s.Nodes[i].Pods = slices.DeleteFunc(s.Nodes[i].Pods, func(p snapshot.Pod) bool { return string(p.UID) == uid })
	}
}

// endBy removes the pods that have ended by a time.
func endBy(s *snapshot.Snapshot, at time.Time) {
	for i := range s.Nodes {
		s.Nodes[i].Pods = slices.DeleteFunc(s.Nodes[i].Pods, func(p snapshot.Pod) bool { return !p.EndsBy.IsZero() && !p.EndsBy.After(at) })
	}
}

// fits asks the scheduler's decisions whether the pods of the answer have places on a snapshot.
func (w *trial) fits(s *snapshot.Snapshot) bool {
	c, err := s.Cluster()
	must.OK(w.t, err)
	var members []gang.Member
	for i := range s.Pending {
		if p := &s.Pending[i]; w.asks(p) {
			members = append(members, gang.Member{Request: *s.ToPlace(p, s.At.Unix()), Rank: i})
		}
	}
	var open []*vgpu.Node
	for i, n := range c.Nodes() {
		r, free := &members[0].Request, -s.Nodes[i].StraySlots
		for k := range n.Devices() {
			free += n.FreeFor(k, r).Slots
		}
		if s.Nodes[i].Problem == "" && (s.Nodes[i].StraySlots == 0 || w.answer.Gang == nil && free >= r.PeakSlots()) {
			open = append(open, n)
		}
	}
	if w.answer.Gang == nil && len(members) > 1 { // a pod that became a gang
		plan, err := gang.Place(&gang.Cluster{Nodes: open}, &gang.Group{Name: "gang", Members: members, MinCount: len(members)}, gang.Config{})
		must.OK(w.t, err)
		return plan.Places != nil
	}
	if w.answer.Gang == nil {
		r := &members[0].Request
		return slices.ContainsFunc(open, func(n *vgpu.Node) bool { return r.Host.Within(n.Room()) && placement.Fit(n, r) == nil })
	}
	return w.placed(s, open, members)
}

// placed reports whether a gang has enough places.
func (w *trial) placed(s *snapshot.Snapshot, open []*vgpu.Node, members []gang.Member) bool {
	g := &gang.Group{Name: "gang", Members: members, MinCount: 1}
	for i := range s.Nodes {
		for _, p := range s.Nodes[i].Pods {
			for _, n := range open {
				for _, a := range n.Assignments() {
					if p.UID == a.UID && p.Gang != nil && *p.Gang == *w.answer.Gang {
						g.Placed = append(g.Placed, a)
					}
				}
			}
		}
	}
	for i := range s.Gangs {
		if s.Gangs[i].GangName == *w.answer.Gang {
			g.MinCount = s.Gangs[i].MinCount
		}
	}
	plan, err := gang.Place(&gang.Cluster{Nodes: open}, g, gang.Config{})
	must.OK(w.t, err)
	return plan.Places != nil
}
