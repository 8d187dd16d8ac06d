package reservation

import (
	"maps"
	"slices"
	"time"

	"github.com/tandem-gpu/tandem/pkg/gang"
	"github.com/tandem-gpu/tandem/pkg/vgpu"
)

// Dump is all that a State remembers, as plain data. A State that Restore makes from it has the same effects for the same
// events.
type Dump struct {
	Config    Config
	Reserving Ref
	Gates     Gate
	Versions  Version
	Gangs     []GangDump
	Pods      []PodDump
	Evictions []EvictionsDump
	Begun     Evictions
	Chosen    []Chosen
	Allowance AllowanceDump
}

// GangDump is what a State remembers of one gang. Dump sets Plan, Missing, Refused, Kept and Made only where they exist in the
// gang's phase and need.
type GangDump struct {
	Ref
	Version  Version
	Priority int32
	Grouped  bool
	Arrived  time.Time
	Phase    string
	Plan     *PlanDump `json:",omitempty"`
	Need     string
	// Missing says what an incomplete gang lacks.
	Missing *MissingDump `json:",omitempty"`
	Refused *RefusedDump `json:",omitempty"`
	Kept    *KeptDump    `json:",omitempty"`
	Made    *MadeDump    `json:",omitempty"`
	// Bound, Leaving and Repairs are about single members.
	Bound    []vgpu.UID          `json:",omitempty"`
	Leaving  map[vgpu.UID]string `json:",omitempty"`
	Repairs  map[vgpu.UID]Repair `json:",omitempty"`
	Pauses   PausesDump
	Vacating *VacatingDump `json:",omitempty"`
}

// PlanDump has the places of members before their binds. Since is when the plan began, or when the scheduler began to bind the
// members.
type PlanDump struct {
	Places    []Place
	Reserved  []vgpu.UID
	Preempted bool
	Gate      Gate
	Since     time.Time
}

// MissingDump says what an incomplete gang lacks, since when, and whether its members have got a notice of it.
type MissingDump struct {
	Why   string
	Since time.Time
	Told  bool
}

// RefusedDump says why a gang has no plan, and which members have got a notice of it.
type RefusedDump struct {
	Refusal
	Notified []vgpu.UID
	Turn     Turn
	At       time.Time
	Waits    bool
	// Since, Look, Later and Woken are zero unless the gang waits for room.
	Since, Look time.Time
	Later       string
	Woken       time.Time
}

// KeptDump is room that State keeps for a gang while pods end.
type KeptDump struct {
	Holds   []vgpu.Hold
	Room    gang.Kept
	Lacking int
	Since   time.Time
	Until   int64
}

// MadeDump is room that evictions make for a gang.
type MadeDump struct {
	Made
	Evictions Evictions
	Trial     bool
}

// PausesDump says when the scheduler tries a gang again, and what failed before.
type PausesDump struct {
	Retry    time.Time
	Failures int
	Limits   map[string]Limit `json:",omitempty"`
	Unlimit  time.Time
	InVain   int
	Failed   []string `json:",omitempty"`
	Ask      time.Time
	AskAgain bool
	Unhelped string
	Voids    int
	Asked    int
}

// VacatingDump has members that the scheduler is about to evict.
type VacatingDump struct {
	Members []vgpu.UID
	Until   time.Time
}

// PodDump is what State remembers of a single pod that is a preemptor. At is when its victims are gone at the latest, or since
// when they are.
type PodDump struct {
	PodRef
	PodPauses
	Phase     string
	Room      *PodRoom `json:",omitempty"`
	At        time.Time
	Withdrawn map[vgpu.UID]time.Time `json:",omitempty"`
	Evictions Evictions
}

// EvictionsDump are evictions under way.
type EvictionsDump struct {
	Preemptor
	Number Evictions
}

// AllowanceDump is the state of the bucket of evictions.
type AllowanceDump struct {
	Full   time.Time
	Claims []ClaimDump
}

// ClaimDump is a preemptor that waits for its turn.
type ClaimDump struct {
	Preemptor
	Count      int
	Priority   int32
	Since, Due time.Time
}

// Dump returns all that the State remembers. The result shares nothing that a later step changes.
func (s *State) Dump() Dump {
	d := Dump{Config: s.cfg, Reserving: s.reserving, Gates: s.gates, Versions: s.versions, Begun: s.begun}
	for _, ref := range s.refs() {
		d.Gangs = append(d.Gangs, s.gangs[ref].dump())
	}
	for _, uid := range sorted(s.pods) {
		d.Pods = append(d.Pods, s.pods[uid].dump())
	}
	for _, id := range slices.SortedFunc(maps.Keys(s.evictions), Preemptor.Compare) {
		d.Evictions = append(d.Evictions, EvictionsDump{id, s.evictions[id]})
	}
	for _, uid := range sorted(s.chosen) {
		d.Chosen = append(d.Chosen, s.chosen[uid])
	}
	d.Allowance.Full = s.allowance.full
	for _, id := range slices.SortedFunc(maps.Keys(s.allowance.claims), Preemptor.Compare) {
		c := s.allowance.claims[id]
		d.Allowance.Claims = append(d.Allowance.Claims, ClaimDump{id, c.count, c.priority, c.since, c.due})
	}
	return d
}

// Gang returns what the State remembers of one gang, and whether it remembers it.
func (s *State) Gang(ref Ref) (GangDump, bool) {
	g := s.gangs[ref]
	if g == nil {
		return GangDump{Ref: ref, Phase: Unplaced.String(), Need: Satisfied.String()}, false
	}
	return g.dump(), true
}

// Preemptors returns the single pods that the State remembers as preemptors, in order.
func (s *State) Preemptors() []vgpu.UID { return sorted(s.pods) }

// Preemptor returns what the State remembers of such a pod, and whether it remembers it.
func (s *State) Preemptor(uid vgpu.UID) (PodDump, bool) {
	p := s.pods[uid]
	if p == nil {
		return PodDump{}, false
	}
	return p.dump(), true
}

func (g *group) dump() GangDump {
	p, n := g.phase.phase(), Satisfied
	if g.need != nil {
		n = g.need.need()
	}
	d := GangDump{
		Ref: g.Ref, Version: g.version, Priority: g.priority, Grouped: g.grouped, Arrived: g.arrived, Phase: p.String(), Need: n.String(),
		Bound: sorted(g.bound), Leaving: maps.Clone(g.leaving), Repairs: maps.Clone(g.repairs), Plan: g.dumpPlan(),
		Pauses: PausesDump{
			Retry: g.retry, Failures: g.failures, Limits: maps.Clone(g.limits), Unlimit: g.unlimit, InVain: g.inVain,
			Failed: slices.Sorted(maps.Keys(g.failed)), Ask: g.seekVictimsAt, AskAgain: g.retriesToSeek, Unhelped: g.noVictimsReason, Voids: g.voidRooms, Asked: g.fruitlessSearches,
		},
	}
	if g.vacating != nil {
		d.Vacating = &VacatingDump{slices.Clone(g.vacating.members), g.vacating.until}
	}
	g.dumpNeed(&d)
	return d
}

func (g *group) dumpPlan() *PlanDump {
	p := g.plan()
	if p == nil {
		return nil
	}
	d := &PlanDump{Reserved: sorted(p.reserved), Preempted: p.preempted}
	for _, uid := range sorted(p.places) {
		d.Places = append(d.Places, p.places[uid])
	}
	switch phase := g.phase.(type) {
	case *planned:
		d.Gate, d.Since = phase.gate, phase.made
	case *binding:
		d.Since = phase.since
	}
	return d
}

func (g *group) dumpNeed(d *GangDump) {
	if n, ok := g.need.(*incomplete); ok {
		d.Missing = &MissingDump{n.why, n.since, n.notified}
	}
	if r := g.refused(); r != nil {
		d.Refused = &RefusedDump{Refusal: r.Refusal, Notified: sorted(r.notified), Turn: r.turn, At: r.at, Waits: r.wait != nil}
		if w := r.wait; w != nil {
			d.Refused.Since, d.Refused.Look, d.Refused.Later, d.Refused.Woken = w.since, w.look, w.later, w.woken
		}
	}
	if n := g.reserving(); n != nil {
		d.Kept = &KeptDump{slices.Clone(n.holds), n.room, n.lacking, n.since, n.until}
	}
	if n := g.preempting(); n != nil {
		made := n.Made
		made.Places, made.Victims = maps.Clone(made.Places), maps.Clone(made.Victims)
		d.Made = &MadeDump{made, n.evictions, n.dryRun}
	}
}

func (p *preemptor) dump() PodDump {
	d := PodDump{PodRef: p.PodRef, PodPauses: p.PodPauses, Phase: Roomless.String()}
	if r := p.room(); r != nil {
		room := *r
		room.Victims, room.withdrawn = slices.Clone(r.Victims), nil
		d.Phase, d.Room, d.Withdrawn, d.Evictions = p.phase.phase().String(), &room, maps.Clone(r.withdrawn), r.evictions
	}
	switch phase := p.phase.(type) {
	case *leavingRoom:
		d.At = phase.until
	case *clearedRoom:
		d.At = phase.since
	}
	return d
}
