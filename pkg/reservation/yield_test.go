package reservation

import (
	"fmt"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/tandem-gpu/tandem/pkg/gang"
)

// TestOneGivesWay: of two running gangs of one priority that lack members exactly one gives way to the other, unless neither may
// preempt, and never before it has waited for the deadline.
func TestOneGivesWay(t *testing.T) {
	began := time.Unix(1_700_000_000, 0)
	rapid.Check(t, func(t *rapid.T) {
		s := New(Config{Deadline: 5 * time.Minute})
		count := rapid.IntRange(2, 6).Draw(t, "gangs")
		for i := range count {
			ref := Ref{Source: "label", Namespace: "ns", Name: fmt.Sprint("g", i)}
			r := &refused{Refusal: Refusal{Reason: gang.NoRoom, Lacking: rapid.IntRange(0, 1).Draw(t, "lacking")}}
			if rapid.Bool().Draw(t, "waits") {
				r.wait = &wait{since: began.Add(time.Duration(rapid.IntRange(0, 2).Draw(t, "since")) * time.Minute)}
			}
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
				gives, takes := s.Yields(a, b), s.Yields(b, a)
				want := g.waitsForRoom() && other.waitsForRoom() && g.priority == other.priority && !(g.never && other.never)
				if one := gives.IsZero() != takes.IsZero(); one != want {
					t.Fatalf("%s gives way at %v and %s at %v: %+v, %+v", a, gives, b, takes, g, other)
				}
				if !gives.IsZero() && gives.Sub(g.refused().wait.since) != s.cfg.Deadline {
					t.Fatalf("%s has waited since %v and gives way at %v", a, g.refused().wait.since, gives)
				}
				if !gives.IsZero() && !g.never && other.refused().wait.since.After(g.refused().wait.since) {
					t.Fatalf("%s has waited for longer than %s and gives way to it", a, b)
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
