package reservation

import (
	"maps"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/tandem-gpu/tandem/pkg/gang"
	"github.com/tandem-gpu/tandem/pkg/vgpu"
)

// TestHistories plays random events, likely ones and unlikely ones, on two gangs and two preemptors. After each it holds the machine to
// its laws: the held devices are those that it remembers to hold; a gate is opened when its plan ends; members may be bound only when
// all that must run are there; at most one gang has room kept while pods end; evictions that stop, or end, have begun; a member that
// the scheduler tries has one answer, and a refusal has a reason.
func TestHistories(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		h := newHistory(t, rapid.SampledFrom([]gang.Drains{gang.NoDrains, gang.AllDrains}).Draw(t, "drains"))
		for range rapid.IntRange(1, 40).Draw(t, "events") {
			h.once()
		}
	})
}

// history is a world of random events.
type history struct {
	*world
	rapid *rapid.T
	held  map[vgpu.UID]bool
	// closed are the gates that some plan has and that are not opened.
	closed map[Gate]bool
	// running are the evictions that have begun and are not over.
	running map[Evictions]evictions
}

// newHistory returns a history of two gangs and two preemptors in which nothing has happened.
func newHistory(t *rapid.T, drains gang.Drains) *history {
	h := &history{
		world: newWorld(t, drains), rapid: t, held: map[vgpu.UID]bool{}, closed: map[Gate]bool{}, running: map[Evictions]evictions{},
	}
	h.declareAll()
	return h
}

var gangsOf = map[string][]string{"big": {"a", "b", "c"}, "small": {"x", "y"}}

func (h *history) declareAll() {
	for name, all := range gangsOf {
		f := &Facts{Ref: Ref{Source: "label", Namespace: "default", Name: name}, MinCount: 2}
		for _, uid := range all {
			f.Members = append(f.Members, h.member(uid, nil))
			h.of[vgpu.UID(uid)] = name
		}
		h.gangs[name] = f
	}
}

// once has one thing happen.
func (h *history) once() {
	e, at := h.draw()
	h.check(e, h.state.Step(e, at))
}

// draw lets time pass and draws an event.
func (h *history) draw() (Event, time.Time) {
	name := rapid.SampledFrom([]string{"big", "small"}).Draw(h.rapid, "gang")
	if rapid.IntRange(0, 5).Draw(h.rapid, "change") == 0 {
		h.change(name)
	}
	h.now = h.now.Add(time.Duration(rapid.SampledFrom([]int{0, 0, 0, 1, 5, 61, 400, 4000}).Draw(h.rapid, "seconds")) * time.Second)
	uid := vgpu.UID(rapid.SampledFrom(gangsOf[name]).Draw(h.rapid, "member"))
	if rapid.IntRange(0, 2).Draw(h.rapid, "of a pod") == 0 {
		return h.randomOfPod(name), h.now
	}
	return h.random(h.facts(name), uid), h.now
}

// change changes what the API knows of a gang.
func (h *history) change(name string) {
	f := h.gangs[name]
	i := rapid.IntRange(0, len(gangsOf[name])-1).Draw(h.rapid, "which")
	at := slices.IndexFunc(f.Members, func(m Member) bool { return string(m.UID) == gangsOf[name][i] })
	switch change := rapid.SampledFrom([]string{"bind", "delete", "remove", "return", "problem", "lack", "mend"}).Draw(h.rapid, "what"); {
	case change == "problem":
		f.Problem = &Problem{Message: "it is malformed"}
	case change == "lack":
		f.Problem = &Problem{Message: "a member is missing", Waits: true}
	case change == "mend":
		f.Problem = nil
	case at < 0 && change == "return":
		f.Members = append(f.Members, h.member(gangsOf[name][i], nil))
	case at < 0:
	case change == "bind":
		f.Members[at].Node, f.Members[at].Scheduled = "n1", h.now.Unix()
	case change == "delete":
		f.Members[at].Deleted = true
	case change == "remove":
		f.Members = slices.Delete(slices.Clone(f.Members), at, at+1)
	}
}

// random draws an event about a gang and one of its members.
func (h *history) random(f Facts, uid vgpu.UID) Event {
	t := h.rapid
	yes := func(what string) bool { return rapid.Bool().Draw(t, what) }
	version := h.state.gangVersion(f.Ref)
	if rapid.IntRange(0, 9).Draw(t, "stale") == 0 {
		version--
	}
	switch rapid.IntRange(0, 20).Draw(t, "event") {
	case 0, 1:
		return Tried{Gang: f, UID: uid, Pod: "default/" + string(uid), Priority: int32(len(f.Members)), Grouped: f.Name == "small", Again: yes("again"), Stands: yes("stands")}
	case 2, 3, 4:
		return PlanFound{Gang: f, UID: uid, Version: version, Places: h.places(f), Have: 2}
	case 5, 6:
		reason := rapid.SampledFrom([]gang.Reason{gang.NoRoom, gang.NeverFits, Malformed}).Draw(t, "reason")
		brief, message := yes("brief") && reason == gang.NoRoom, "no"
		if brief {
			message = ""
		}
		return PlanRefused{Gang: f, UID: uid, Version: version, Refusal: Refusal{Reason: reason, Message: message, Lacking: 2},
			SkipExplanation: brief, Kept: KeptRoom{Stands: yes("stands"), Taken: []string{"n1"}[:rapid.IntRange(0, 1).Draw(t, "taken")]}}
	case 7:
		e := RoomSought{Ref: f.Ref, UID: uid}
		if yes("found") {
			e.Found = &gang.Plan{}
			for _, p := range h.places(f) {
				e.Found.Places = append(e.Found.Places, p.Assignment)
				e.Holds = append(e.Holds, vgpu.Hold{Assignment: p.Assignment})
			}
		}
		return e
	case 8, 9:
		return Reserved{Ref: f.Ref, UID: uid}
	case 10, 11:
		return Permitted{Gang: f, UID: uid}
	case 12:
		return Unreserved{Gang: f, UID: uid, Pod: "default/" + string(uid)}
	case 13:
		return Bound{Gang: f, UID: uid}
	}
	return h.rare(f, uid)
}

func (h *history) rare(f Facts, uid vgpu.UID) Event {
	t := h.rapid
	switch rapid.IntRange(0, 9).Draw(t, "rare") {
	case 0:
		return NodeRefused{Gang: f, UID: uid, Node: "n1", Limited: true, Why: "it lacks something"}
	case 1:
		return GroupRefused{Gang: f, Nodes: map[string]int{"n1": 1}}
	case 2:
		made := Made{Places: map[vgpu.UID]Place{}, Lacking: 2, Unbound: rapid.IntRange(0, 2).Draw(t, "unbound"), Until: h.now.Add(time.Minute)}
		for _, p := range h.places(f) {
			made.Places[p.UID] = p
		}
		return RoomMade{Gang: f, Room: made}
	case 3:
		return RoomGivenUp{Ref: f.Ref, Why: "no", Pause: time.Duration(rapid.IntRange(0, 1).Draw(t, "pause")) * time.Second}
	case 4:
		return Vacated{Ref: f.Ref, Members: []vgpu.UID{uid}}
	case 5:
		return Withdrawn{Gang: f, UID: uid}
	case 6:
		return Enqueued{Gang: f, UID: uid}
	case 7:
		return Released{Gang: f, Left: rapid.IntRange(0, 1).Draw(t, "left")}
	case 8:
		return Ticked{Gang: f}
	}
	return Changed{Gang: f}
}

// places draws places for members that wait and have none, each with a device.
func (h *history) places(f Facts) []Place {
	var all []Place
	for i := range f.Members {
		if _, has := h.state.Place(f.Ref, f.Members[i].UID); !has && f.Members[i].Waits() && rapid.IntRange(0, 3).Draw(h.rapid, "place") > 0 {
			all = append(all, placeOf(string(f.Members[i].UID), "n1/g0"))
		}
	}
	return all
}

// check holds the machine to its laws after an event.
func (h *history) check(e Event, effects []Effect) {
	h.rapid.Helper()
	h.checkAnswer(e, effects)
	for _, effect := range effects {
		switch effect := effect.(type) {
		case Hold:
			h.held[effect.Hold.UID] = true
		case Release:
			delete(h.held, effect.UID)
		case Start:
			if p, ok := e.(Permitted); ok {
				h.checkStart(&p)
			}
		case Open:
			if !h.closed[effect.Gate] {
				h.rapid.Fatalf("%T opens gate %d, which is no plan's", e, effect.Gate)
			}
			delete(h.closed, effect.Gate)
		}
	}
	if p, ok := e.(PlanFound); ok { // a plan has its gate from then on
		if g := h.state.gangs[p.Gang.Ref]; g != nil && g.phase.phase() == Planned {
			h.closed[g.phase.(*planned).gate] = true
		}
	}
	h.checkGates(e)
	h.checkHolds(e)
	h.checkPhases(e)
	h.checkEvictions(e, effects)
	h.checkPods(e)
}

// checkAnswer checks that a member that the scheduler tries gets an answer to go on with: a place, a question, or a refusal in words.
func (h *history) checkAnswer(e Event, effects []Effect) {
	answers := 0
	for _, effect := range effects {
		switch effect := effect.(type) {
		case Give, Plan, SeekRoom:
			answers++
		case Refuse:
			answers++
			if effect.Why == "" {
				h.rapid.Fatalf("%T is refused without a reason", e)
			}
		}
	}
	switch e.(type) {
	case Tried, PlanFound, PlanRefused, RoomSought:
		if answers != 1 {
			h.rapid.Fatalf("%T has %d answers: %v", e, answers, effects)
		}
	}
}

func (h *history) checkGates(e Event) {
	gates := map[Gate]bool{}
	for _, g := range h.state.gangs {
		if made, ok := g.phase.(*planned); ok {
			gates[made.gate] = true
		}
	}
	if !maps.Equal(gates, h.closed) {
		h.rapid.Fatalf("after %T the gates of plans are %v, and %v are closed", e, gates, h.closed)
	}
}

func (h *history) checkHolds(e Event) {
	want := map[vgpu.UID]bool{}
	for _, g := range h.state.gangs {
		for uid, at := range g.places() {
			if at.Held() {
				want[uid] = true
			}
		}
		if n := g.reserving(); n != nil {
			for i := range n.holds {
				want[n.holds[i].UID] = true
			}
		}
		if n := g.preempting(); n != nil {
			for uid := range n.Places {
				want[uid] = true
			}
		}
	}
	for uid, p := range h.state.pods {
		if p.room() != nil {
			want[uid] = true
		}
	}
	for uid := range h.held {
		if slices.Contains(preemptors, uid) {
			h.checkPodHold(e, uid, want[uid])
			continue
		}
		name := h.of[uid]
		at := slices.IndexFunc(h.gangs[name].Members, func(m Member) bool { return m.UID == uid })
		if !want[uid] && at >= 0 && h.gangs[name].Members[at].Node == "" {
			h.rapid.Fatalf("after %T devices are held for %s, and the machine does not know it", e, uid)
		}
		if !want[uid] { // GPUShare ends the hold of a pod that is bound or gone
			delete(h.held, uid)
		}
	}
	for uid := range want {
		if !h.held[uid] {
			h.rapid.Fatalf("after %T the machine keeps devices for %s that are not held", e, uid)
		}
	}
}

func (h *history) checkPhases(e Event) {
	count := 0
	for ref, g := range h.state.gangs {
		if g.reserving() != nil {
			count++
			if h.state.reserving != ref {
				h.rapid.Fatalf("after %T gang %s has room kept, and it is not its turn", e, ref)
			}
		}
		for uid := range g.reserves() {
			if _, has := g.places()[uid]; !has {
				h.rapid.Fatalf("after %T member %s is reserved and has no place", e, uid)
			}
		}
		h.checkKept(e, g)
		if g.phase.phase() == Planned && len(g.places()) == 0 && len(g.reserves()) > 0 {
			h.rapid.Fatalf("after %T gang %s has a plan without places", e, ref)
		}
	}
	if count > 1 || count == 0 && h.state.reserving != (Ref{}) {
		h.rapid.Fatalf("after %T %d gangs have room kept, and it is the turn of %q", e, count, h.state.reserving.Name)
	}
}

// checkKept: room is kept only for a gang that waits for room, and for members without a place.
func (h *history) checkKept(e Event, g *group) {
	n := g.reserving()
	if n == nil {
		return
	}
	if n.wait == nil {
		h.rapid.Fatalf("after %T gang %s has room kept and does not wait for room", e, g.Ref)
	}
	for i := range n.holds {
		if _, has := g.places()[n.holds[i].UID]; has {
			h.rapid.Fatalf("after %T member %s has a place, and room is kept for it", e, n.holds[i].UID)
		}
	}
}

// checkStart: members may be bound only when as many as must run are bound or at their places.
func (h *history) checkStart(e *Permitted) {
	g := h.state.gangs[e.Gang.Ref]
	if count := g.boundOf(&e.Gang) + len(g.reserves()); count < e.Gang.MinCount {
		h.rapid.Fatalf("members may be bound of a gang that needs %d and has %d", e.Gang.MinCount, count)
	}
}

// gangVersion returns the version of a gang, 0 for none.
func (s *State) gangVersion(ref Ref) Version {
	if g := s.gangs[ref]; g != nil {
		return g.version
	}
	return 0
}
