package resize

import (
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"
)

// TestPauseLaw: while a gang is paused, its number stays, no member is told to leave or leaves, and no owner is asked or written; notices are taken
// back. Afterwards the gang gets the wanted size and rests, as after a restart.
func TestPauseLaw(t *testing.T) {
	rapid.Check(t, func(r *rapid.T) {
		h := newHistory(r)
		for range rapid.IntRange(0, 20).Draw(r, "events before") {
			h.event()
		}
		h.paused = true
		h.after = func(e Event, effects []Effect) {
			for _, e := range effects {
				switch e := e.(type) {
				case Withdraw:
				case Set:
					if h.number > 0 && e.Number != h.number {
						r.Fatalf("the number changes from %d to %d", h.number, e.Number)
					}
				default:
					r.Fatalf("%T %v in a pause", e, e)
				}
			}
		}
		for range rapid.IntRange(1, 20).Draw(r, "events in the pause") {
			h.event()
		}
		h.pass(nil)
		for _, m := range h.members {
			if m.mark == '+' && !m.leaves.IsZero() && !h.unread && !h.fails["target"] && !h.fails["status"] {
				r.Fatalf("member %s still has a notice", m.id())
			}
		}
		h.paused, h.after, h.unread, h.fixed = false, h.laws, false, false
		clear(h.told)
		for _, m := range h.members { // those of an owner that could not be read
			if !m.leaves.IsZero() {
				h.told[m.id()] = m.leaves
			}
		}
		clear(h.fails)
		wanted := h.size("wanted")
		for end := h.now.Add(time.Hour); h.now.Before(end); h.now = h.now.Add(time.Minute) {
			h.lacks = ""
			h.follow()
			h.pass(h.want(wanted))
		}
		if v := h.view(); h.number != wanted || v.Running != wanted {
			r.Fatalf("after the pause the number is %d, and %v exist, %d are wanted", h.number, h.marks(), wanted)
		}
	})
}

// TestPinLaw: whatever package elastic would choose, a gang that may be resized gets the pinned number, or the largest one for which it has members,
// and package elastic is offered no other one. The laws of all histories hold.
func TestPinLaw(t *testing.T) {
	rapid.Check(t, func(r *rapid.T) {
		h := newHistory(r)
		for range rapid.IntRange(0, 20).Draw(r, "events before") {
			h.event()
		}
		h.pin = h.size("pin")
		h.after = func(e Event, effects []Effect) {
			h.laws(e, effects)
			p, is := e.(Planned)
			if !is || p.Target == nil || !h.state.Resizable(p.View) {
				return
			}
			if offer := h.state.Offer(p.View); !slices.Equal(offer, []int{p.pinned()}) || p.pinned() > h.pin {
				r.Fatalf("offered are %v, pinned is %d", offer, h.pin)
			}
			for _, e := range effects {
				if set, is := e.(Set); is && set.Number != p.pinned() && !set.FirstGone {
					r.Fatalf("the number is %d, pinned is %d of %v", set.Number, h.pin, p.Possible)
				}
			}
		}
		for range rapid.IntRange(1, 20).Draw(r, "events") {
			h.event()
		}
		clear(h.fails)
		if h.lacks, h.fixed, h.unread = "", false, false; h.owner != nil {
			h.owner.Generation++
		}
		wanted := h.size("wanted")
		for end := h.now.Add(5 * time.Hour); h.now.Before(end); h.now = h.now.Add(time.Minute) {
			h.follow()
			h.pass(h.want(wanted))
		}
		if v := h.view(); h.number != h.pin || v.Running != h.pin {
			r.Fatalf("the number is %d, and %v exist, %d is pinned", h.number, h.marks(), h.pin)
		}
	})
}

// A gang that is paused and of which nothing runs keeps its number: others must not get the GPUs that its members will need when they are back.
func TestPausedKeepsItsNumber(t *testing.T) {
	for _, running := range []int{0, 2, 8} {
		v := &View{Sizes: []int{2, 4, 8}, Number: 4, Running: running, Paused: true}
		if got, want := v.Kept(), max(4, running); got != want {
			t.Errorf("with %d running members: %d, want %d", running, got, want)
		}
	}
}

// A pause forgets what has begun, and keeps what the status of the target still has to tell.
func TestPauseKeepsTheRecord(t *testing.T) {
	start := time.Unix(1_800_000_000, 0)
	s := New(Config{Notice: time.Minute, Within: time.Minute}, start)
	s.Step(Numbered{}, start)
	s.Step(Looked{&View{Paused: true}}, start.Add(time.Second))
	if at, moved := s.Moved(); !moved || !at.Equal(start) {
		t.Errorf("the number came at %v (%v), want %v", at, moved, start)
	}
}
