package reservation

import (
	"strings"
	"testing"
	"time"

	"github.com/cockroachdb/datadriven"
	"pgregory.net/rapid"

	"github.com/tandem-gpu/tandem/pkg/gang"
	"github.com/tandem-gpu/tandem/pkg/vgpu"
)

// TestDueProperty: after any events, Ticked ends all that is due within a few steps, and does nothing before the time that NextDue
// names then. So a caller that steps it at these times alone misses nothing.
func TestDueProperty(t *testing.T) {
	seen := 0
	rapid.Check(t, func(t *rapid.T) {
		h := newHistory(t, rapid.SampledFrom([]gang.Drains{gang.NoDrains, gang.AllDrains}).Draw(t, "drains"))
		for range rapid.IntRange(1, 40).Draw(t, "events") {
			h.once()
		}
		for range 2 { // the second time for what else the state takes over once what was due is done
			for name := range gangsOf {
				h.gangs[name].Problem = nil
				h.tick(name)
			}
			h.tickDue()
		}
		ref, at, some := h.state.NextDue(h.now)
		if !some {
			at = h.now.Add(1000 * time.Hour)
		} else {
			seen++
		}
		h.now = at.Add(-time.Nanosecond)
		for name := range gangsOf {
			before := h.show(name)
			if effects := h.tick(name); len(effects) > 0 && !h.woken(name) || h.show(name) != before {
				t.Fatalf("gang %s is the first for which something is due, at %v; for gang %s it is before that: %+v, it was\n%s and is\n%s",
					ref, at, name, effects, before, h.show(name))
			}
		}
	})
	if seen == 0 {
		t.Error("nothing is due in any history")
	}
}

// tick steps Ticked for a gang whose victims are still there. Bound members of half-bound gangs are evicted at once.
func (h *history) tick(name string) []Effect {
	effects := h.state.Step(Ticked{Gang: h.facts(name), VictimsLeft: true}, h.now)
	for _, effect := range effects {
		if _, ok := effect.(Evict); ok {
			h.gangs[name].Members = nil
			h.state.Step(Released{Gang: h.facts(name)}, h.now)
			h.state.Step(Changed{Gang: h.facts(name)}, h.now)
		}
	}
	return effects
}

// woken reports whether a gang is to be tried since it is its turn, which Ticked says again until it is.
func (h *history) woken(name string) bool {
	g := h.state.gangs[h.facts(name).Ref]
	return g != nil && g.refused() != nil && g.refused().wait != nil && !g.refused().wait.woken.IsZero()
}

// tickDue steps what is due until nothing is.
func (h *history) tickDue() {
	for range 20 {
		ref, at, some := h.state.NextDue(h.now)
		if !some || at.After(h.now) {
			return
		}
		h.tick(ref.Name)
	}
	ref, at, _ := h.state.NextDue(h.now)
	h.rapid.Fatalf("gang %s is still due at %v after 20 steps: %s", ref, at, h.show(ref.Name))
}

// TestDue tells when something is due for a gang that waits for room, and whose turn it is.
func TestDue(t *testing.T) {
	w := newWorld(t, gang.AllDrains)
	begin := w.now
	want := func(what string, name string, after time.Duration, turn string) {
		t.Helper()
		ref, at, some := w.state.NextDue(w.now)
		if !some || ref.Name != name || at.Sub(begin) != after {
			t.Errorf("%s: gang %q is due %v after the beginning (%v), want %q after %v", what, ref.Name, at.Sub(begin), some, name, after)
		}
		if ref, some := w.state.Turn(w.now); ref.Name != turn || some != (turn != "") {
			t.Errorf("%s: it is the turn of gang %q, want %q", what, ref.Name, turn)
		}
	}
	if ref, at, some := w.state.NextDue(w.now); some {
		t.Errorf("gang %q is due at %v, and there is none", ref.Name, at)
	}
	w.refuse("low", 0)
	w.now = begin.Add(10 * time.Second)
	w.refuse("high", 1)
	want("both wait", "low", time.Minute, "")
	w.now = begin.Add(time.Minute)
	want("the time of the first has come", "low", time.Minute, "low")
	w.tickOnly("low")
	want("it cannot be tried", "high", 70*time.Second, "low")
	w.now = begin.Add(70 * time.Second)
	want("the time of the one with the higher priority has come", "high", 70*time.Second, "high")
	w.refuse("high", 1)
	w.state.Step(RoomSought{Ref: w.facts("high").Ref, UID: "x", Found: &gang.Plan{}}, w.now)
	want("room is kept for it", "high", 70*time.Second+time.Hour, "")
	w.now = begin.Add(70*time.Second + time.Hour)
	w.tickOnly("high")
	want("the room is given up, and the other is tried, too", "low", 70*time.Second+time.Hour, "low")
}

// refuse has a gang of one member tried and refused.
func (w *world) refuse(name string, priority int32) {
	w.gangs[name] = &Facts{Ref: Ref{Source: "label", Namespace: "default", Name: name}, MinCount: 1, Members: []Member{{UID: vgpu.UID(name)}}}
	f := w.facts(name)
	w.state.Step(Tried{Gang: f, UID: f.Members[0].UID, Priority: priority, Grouped: true}, w.now)
	w.state.Step(PlanRefused{
		Gang: f, UID: f.Members[0].UID, Version: w.state.gangVersion(f.Ref), Refusal: Refusal{Reason: gang.NoRoom, Lacking: 1},
	}, w.now)
}

func (w *world) tickOnly(name string) { w.state.Step(Ticked{Gang: w.facts(name)}, w.now) }

// If drains are off, no gang has a turn, and nothing is due for gangs that wait for room.
func TestDueWithoutDrains(t *testing.T) {
	w := newWorld(t, gang.NoDrains)
	w.refuse("low", 0)
	for range 2 {
		if ref, at, some := w.state.NextDue(w.now); some {
			t.Errorf("gang %s is due at %v", ref, at)
		}
		if ref, some := w.state.Turn(w.now); some {
			t.Errorf("it is the turn of gang %s", ref)
		}
		w.now = w.now.Add(time.Hour)
	}
}

// TestDueOfOne tells what is due first for single gangs, besides what waits for a turn.
func TestDueOfOne(t *testing.T) {
	for name, test := range map[string]struct {
		commands string
		gang     string
		want     time.Duration // from the last command
	}{
		"a member pauses": {
			"gang a min=2 x y; try x; plan x x=n1 y=n1; reserve x; reserve y; permit y; unreserve x", "a", time.Second,
		},
		"the first of two members pauses": {
			"gang a min=3 x y z; try x; plan x x=n1 y=n1 z=n1; reserve x; reserve y; reserve z; permit z; unreserve x; wait 400ms; unreserve y", "a", 600 * time.Millisecond,
		},
		"a node is limited": {
			"gang a min=1 x; try x; plan x x=n1; node-refused x node=n1 limited; wait 1s; try x; refuse x why=NoRoom lacking=1; tick a", "a", 30 * time.Second,
		},
		"pods are evicted for it, and it would have its turn before": {
			"gang a min=1 x; try x; refuse x why=NoRoom lacking=1; make-room a lacking=1 x=n1", "a", 6*time.Minute + moment,
		},
		"one that comes behind kept room is not looked at": {
			"gang a min=1 x; gang b min=1 y; try x; refuse x why=NoRoom lacking=1; wait 1m; try x; refuse x why=NoRoom lacking=1; sought x x=n1;" +
				"try y; refuse y why=NoRoom lacking=1", "a", time.Hour,
		},
		"one that comes before kept room is looked at": {
			"gang a min=1 x; gang b min=1 y; try x; refuse x why=NoRoom lacking=1; wait 1m; try x; refuse x why=NoRoom lacking=1; sought x x=n1;" +
				"try y priority=5; refuse y why=NoRoom lacking=1", "b", time.Minute,
		},
		"pods to evict are sought again": {
			"gang a min=1 x; try x; refuse x why=NoRoom lacking=1; give-up a pause=5s", "a", 5 * time.Second,
		},
		"pods to evict are sought again for one that never fits": {
			"gang a min=1 x; try x; refuse x why=NeverFits lacking=1; give-up a pause=5s", "a", 5 * time.Second,
		},
		"the turn of another is first": {
			"gang a min=1 x; gang b min=1 y; try x; refuse x why=NoRoom lacking=1; try y priority=5; refuse y why=NoRoom lacking=1; wait 1m", "b", 0,
		},
		"two at the same time": {
			"gang a min=2 x; gang b min=2 y; try x; plan x x=n1; try y; plan y y=n1", "a", 5*time.Minute + moment,
		},
	} {
		for range 60 { // maps have no order, and mostly the same one
			w := newWorld(t, gang.AllDrains)
			for _, command := range strings.Split(test.commands, ";") {
				words := strings.Fields(command)
				d := &datadriven.TestData{Cmd: words[0]}
				for _, word := range words[1:] {
					key, value, has := strings.Cut(word, "=")
					arg := datadriven.CmdArg{Key: key}
					if has {
						arg.Vals = []string{value}
					}
					d.CmdArgs = append(d.CmdArgs, arg)
				}
				w.run(d)
			}
			if ref, at, some := w.state.NextDue(w.now); !some || ref.Name != test.gang || at.Sub(w.now) != test.want {
				t.Errorf("%s: gang %q is due in %v, want %q in %v", name, ref.Name, at.Sub(w.now), test.gang, test.want)
			}
		}
	}
}
