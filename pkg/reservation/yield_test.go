package reservation

import (
	"fmt"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/tandem-gpu/tandem/pkg/gang"
	"github.com/tandem-gpu/tandem/pkg/vgpu"
)

// TestOneGivesWay: of two running gangs of one priority that lack members, the one that waits less gives way to the other when both
// have waited for the deadline, and the other one a deadline later; none gives way to one that may not preempt.
func TestOneGivesWay(t *testing.T) {
	began := time.Unix(1_700_000_000, 0)
	rapid.Check(t, func(t *rapid.T) {
		s := New(Config{Deadline: 5 * time.Minute})
		count := rapid.IntRange(2, 6).Draw(t, "gangs")
		for i := range count {
			ref := Ref{Source: "label", Namespace: "ns", Name: fmt.Sprint("g", i)}
			lacking := rapid.IntRange(0, 1).Draw(t, "lacking")
			reason := rapid.SampledFrom([]gang.Reason{gang.NoRoom, gang.NoRoom, gang.NeverFits, Malformed}).Draw(t, "reason")
			r := &refused{Refusal: Refusal{Reason: reason, Lacking: lacking}}
			r.lacks = began.Add(time.Duration(rapid.IntRange(0, 2).Draw(t, "since")) * time.Minute)
			g := &group{Ref: ref, phase: &running{plan: newPlan()}, need: r, priority: rapid.Int32Range(0, 1).Draw(t, "priority"), never: rapid.Bool().Draw(t, "never")}
			if rapid.IntRange(0, 4).Draw(t, "unplaced") == 0 {
				g.phase = unplaced{}
			}
			s.gangs[ref] = g
		}
		for a, g := range s.gangs {
			for b, other := range s.gangs {
				if a == b {
					continue
				}
				gives := s.Yields(a, b)
				if want := g.isBroken() && other.waitsForRoom() && g.priority == other.priority && !other.never; gives.IsZero() == want {
					t.Fatalf("%s gives way to %s at %v: %+v, %+v", a, b, gives, g, other)
				}
				if gives.IsZero() {
					continue
				}
				later := other.refused().lacks
				if own := g.refused().lacks; own.After(later) {
					later = own
				}
				want := 1
				if g.refused().Reason != gang.NeverFits && !g.never && compareBroken(g, other) < 0 { // the other one gives way first
					want = 2
				}
				if waited := gives.Sub(later); waited != time.Duration(want)*s.cfg.Deadline {
					t.Fatalf("%s gives way to %s when the later one has waited for %v, want %d deadlines", a, b, waited, want)
				}
			}
			to, at := s.YieldsTo(a)
			if want := s.Yields(a, to); !want.Equal(at) {
				t.Fatalf("%s gives way to %s at %v, want %v", a, to, at, want)
			}
		}
		// Before each gang that lacks members go those before it in the order of all.
		if refs := s.Broken(Ref{}); len(refs) > 1 {
			for i, ref := range refs {
				if got := s.Broken(ref); len(got) != i {
					t.Fatalf("%d gangs go before %s, the number %d of %v", len(got), ref, i, refs)
				}
			}
		}
	})
}

// TestMendedGangGivesWayToNone lowers the least number of a gang that was refused for the last member: it is whole, and nobody may
// evict it. When it lacks a member again, its wait begins anew.
func TestMendedGangGivesWayToNone(t *testing.T) {
	now := time.Unix(1_700_000_000, 0)
	s := New(Config{Deadline: 5 * time.Minute, Began: now})
	ref, other := Ref{Source: "label", Namespace: "ns", Name: "a"}, Ref{Source: "label", Namespace: "ns", Name: "b"}
	for i, r := range []Ref{ref, other} {
		refusal := &refused{Refusal: Refusal{Reason: gang.NoRoom, Lacking: 1}, lacks: now.Add(-time.Duration(i) * time.Hour), notified: map[vgpu.UID]bool{}}
		g := &group{Ref: r, phase: &running{plan: newPlan()}, need: refusal, pauses: newPauses()}
		g.members = members{bound: map[vgpu.UID]bool{}, leaving: map[vgpu.UID]string{}, repairs: map[vgpu.UID]Repair{}}
		s.gangs[r] = g
	}
	facts := Facts{Ref: ref, MinCount: 2, Members: []Member{{UID: "a-0", Node: "n1"}, {UID: "a-1"}}}
	s.Step(Ticked{Gang: facts}, now)
	if at := s.Yields(ref, other); !at.Equal(now.Add(5 * time.Minute)) {
		t.Fatalf("a gang that lacks a member gives way at %v", at)
	}
	fewer := facts
	fewer.MinCount = 1
	s.Step(Changed{Gang: fewer}, now)
	if got := s.Broken(Ref{}); len(got) != 1 || !s.Yields(ref, other).IsZero() {
		t.Fatalf("a whole gang gives way at %v, and %v lack members", s.Yields(ref, other), got)
	}
	later := now.Add(time.Hour)
	m := &move{State: s, now: later}
	m.refuseAll(s.gangs[ref], "a-1", Refusal{Reason: gang.NoRoom, Lacking: 1})
	if at := s.Yields(ref, other); !at.Equal(later.Add(5 * time.Minute)) {
		t.Errorf("a gang that lacks a member again gives way at %v, want five minutes after %v", at, later)
	}
}
