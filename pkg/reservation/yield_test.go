package reservation

import (
	"fmt"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/tandem-gpu/tandem/pkg/gang"
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
				gives := s.Yields(a, b)
				if want := g.isBroken() && other.waitsForRoom() && g.priority == other.priority && !other.never; gives.IsZero() == want {
					t.Fatalf("%s gives way to %s at %v: %+v, %+v", a, b, gives, g, other)
				}
				if gives.IsZero() {
					continue
				}
				longer := other.refused().wait.since
				if g.waitsForRoom() && g.refused().wait.since.After(longer) {
					longer = g.refused().wait.since
				}
				want := 1
				if g.waitsForRoom() && !g.never && compareWaiting(g, other) < 0 { // the other one gives way first
					want = 2
				}
				if waited := gives.Sub(longer); waited != time.Duration(want)*s.cfg.Deadline {
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
