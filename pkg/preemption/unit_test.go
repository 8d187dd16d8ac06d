package preemption

import (
	"fmt"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/tandem-gpu/tandem/pkg/gang"
	"github.com/tandem-gpu/tandem/pkg/vgpu"
)

// randomCandidates draws candidates without a cluster, in gangs of all kinds and under budgets.
func randomCandidates(t *rapid.T) *question {
	number := func(label string, low, high int) int { return rapid.IntRange(low, high).Draw(t, label) }
	candidates := &Candidates{}
	for g := range number("gangs", 0, 3) {
		candidates.Gangs = append(candidates.Gangs, Gang{Name: fmt.Sprint("gang-", g), MinCount: number("min", 0, 4)})
	}
	for b := range number("budgets", 0, 2) {
		candidates.Budgets = append(candidates.Budgets, Budget{Name: fmt.Sprint("budget-", b), Allowed: number("allowed", 0, 2)})
	}
	for i := range number("pods", 1, 12) {
		p := Pod{
			UID: vgpu.UID(fmt.Sprint(i)), Name: fmt.Sprint("pod-", i), Gang: number("gang", -1, len(candidates.Gangs)-1),
			Priority: int32(number("priority", -3, 3)), Serving: rapid.Bool().Draw(t, "serving"), Slow: rapid.Bool().Draw(t, "slow"), Lost: int64(number("lost", 0, 9)),
			Share:   vgpu.MilliGPU(100 * number("share", 0, 20)),
			Leaving: number("leaving", 0, 9) == 0,
		}
		if number("guard", 0, 9) == 0 {
			p.Guard = Foreign
		}
		for b := range candidates.Budgets {
			if rapid.Bool().Draw(t, "under a budget") {
				p.Budgets = append(p.Budgets, b)
			}
		}
		candidates.Pods = append(candidates.Pods, p)
	}
	want := &gang.Group{Members: []gang.Member{{Request: vgpu.Request{UID: "new", Priority: 3}}}}
	return newQuestion(&gang.Cluster{}, want, candidates, Config{
		KeepBudgets: rapid.Bool().Draw(t, "keep budgets"),
		Prices: Prices{
			Violation: int64(number("violation", 0, 9)), Step: int64(number("step", 0, 9)), Broken: int64(number("broken", 0, 9)),
			Serving: int64(number("serves", 0, 9)), Victim: int64(number("victim", 0, 9)),
		},
	})
}

// adding returns the pods that may be added to a set.
func adding(q *question) (list []int32) {
	for p, may := range q.evictable {
		if may {
			list = append(list, int32(p))
		}
	}
	return list
}

// TestVictimSetUndoProperty: undo leaves no trace of what was added to a victim set. The cost is that of the units in
// any order, and it only grows. The cost of one pod alone is what costAlone returns.
func TestVictimSetUndoProperty(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		q := randomCandidates(t)
		list := adding(q)
		if len(list) == 0 {
			return
		}
		s := newVictimSet(q)
		var marks []mark
		var dumps []string
		for range rapid.IntRange(1, 20).Draw(t, "steps") {
			if len(marks) > 0 && rapid.Bool().Draw(t, "undo") {
				at := rapid.IntRange(0, len(marks)-1).Draw(t, "to")
				s.undo(marks[at])
				if diff := cmp.Diff(dumps[at], s.dump()); diff != "" {
					t.Fatalf("undo left a trace (-before +after):\n%s", diff)
				}
				marks, dumps = marks[:at], dumps[:at]
				continue
			}
			m, before := s.mark(), s.cost
			marks, dumps = append(marks, m), append(dumps, s.dump())
			p := rapid.SampledFrom(list).Draw(t, "pod")
			if !s.add(p) {
				s.undo(m)
				marks, dumps = marks[:len(marks)-1], dumps[:len(dumps)-1]
				continue
			}
			if len(s.trail) > m.trail && s.cost.Compare(before) <= 0 {
				t.Fatalf("%+v is not dearer than %+v", s.cost, before)
			}
			if m.trail == 0 && s.cost != q.costAlone(p) {
				t.Fatalf("alone %+v, lone says %+v", s.cost, q.costAlone(p))
			}
			s.recount(t)
		}
	})
}

func (s *victimSet) dump() string {
	return fmt.Sprintf("%+v %v %v %v %v %v", s.cost, s.evicted, s.trail, s.surplusEvicted, s.endedAt, s.counted)
}

// recount computes the units from scratch, in another order of additions.
func (s *victimSet) recount(t *rapid.T) {
	units := s.units()
	var pods []int32
	for _, u := range units {
		for _, p := range u.Pods {
			pods = append(pods, int32(p))
		}
	}
	if cost := s.q.costOf(units); cost != s.cost {
		t.Fatalf("units %+v cost %+v, noted %+v", units, cost, s.cost)
	}
	if names := s.names(nil); !slices.EqualFunc(names, units, func(name string, u Unit) bool { return name == u.Name }) {
		t.Fatalf("names %v of units %+v", names, units)
	}
	slices.Reverse(pods)
	other := newVictimSet(s.q)
	if !other.addAll(pods) {
		t.Fatalf("%+v may go in one order only", units)
	}
	if diff := cmp.Diff(units, other.units()); diff != "" || other.cost != s.cost {
		t.Fatalf("another order gives other units at %+v (-want +got):\n%s", other.cost, diff)
	}
}

// TestCostOrder: victims that end slowly come first, then the price, then the number of victims. Nothing else counts.
func TestCostOrder(t *testing.T) {
	ascending := []Cost{
		{},
		{Victims: 1, Broken: 9, Violations: 9, Serving: 9, Steps: 9, Lost: 9, Returns: 9},
		{Victims: 2},
		{Victims: 1, Price: 1},
		{Victims: 1, Price: 2},
		{Victims: 1, Slow: 1},
	}
	for i := range ascending {
		for j := range ascending {
			want := 0
			if i < j {
				want = -1
			} else if i > j {
				want = 1
			}
			if got := ascending[i].Compare(ascending[j]); got != want {
				t.Errorf("%+v against %+v: %d, want %d", ascending[i], ascending[j], got, want)
			}
		}
	}
}
