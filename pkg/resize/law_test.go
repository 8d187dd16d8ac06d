package resize

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/tandem-gpu/tandem/pkg/elastic"
)

// history plays random events on a world: plans, members that come, fail, end and return late, owners that refuse, do nothing or write the number
// back, requests that fail, and restarts.
type history struct {
	*world
	r *rapid.T
	// told is the first time in a notice of a member, by ID, as long as it stands.
	told map[string]time.Time
	// writes are the times of all writes of the field.
	writes []time.Time
}

func newHistory(r *rapid.T) *history {
	h := &history{world: newWorld(2, 4, 8), r: r, told: map[string]time.Time{}}
	if rapid.Bool().Draw(r, "owner") {
		h.owner = &Owner{UID: "job", Generation: 1, Number: h.size("field")}
	}
	for i := range 8 {
		if mark := rapid.SampledFrom([]string{"+", "+", "", "gone"}).Draw(r, "member"); mark != "gone" {
			h.put(append(h.marks(), fmt.Sprint(i, mark))...)
		}
	}
	h.after = h.laws
	return h
}

func (h *history) size(what string) int { return rapid.SampledFrom(h.sizes).Draw(h.r, what) }

// marks returns the members as put reads them.
func (h *history) marks() (all []string) {
	for _, m := range h.members {
		all = append(all, fmt.Sprintf("%d%c", m.index, m.mark))
	}
	return all
}

// event lets something happen.
func (h *history) event() {
	switch what := rapid.SampledFrom([]string{"pass", "pass", "pass", "pass", "members", "owner", "follow", "lacks", "fixed", "unread", "no target", "restart", "another owner"}).Draw(h.r, "event"); what {
	case "pass":
		h.now = h.now.Add(time.Duration(rapid.IntRange(1, 90).Draw(h.r, "seconds")) * time.Second)
		clear(h.fails)
		if rapid.IntRange(0, 3).Draw(h.r, "fails") == 0 {
			h.fails[rapid.SampledFrom([]string{"ask", "write", "race", "evict", "notify", "target", "status"}).Draw(h.r, "request")] = true
		}
		h.pass(h.plan())
	case "members":
		all := []string{}
		for i := range 8 {
			mark := rapid.SampledFrom([]string{"as it is", "as it is", "as it is", "+", "", "-", "gone"}).Draw(h.r, "member")
			at := slices.IndexFunc(h.members, func(m *member) bool { return m.index == i })
			switch {
			case mark == "as it is" && at >= 0:
				all = append(all, fmt.Sprintf("%d%c", i, h.members[at].mark))
			case mark != "as it is" && mark != "gone":
				all = append(all, fmt.Sprint(i, mark))
			}
		}
		h.put(all...)
	case "owner":
		if h.owner != nil {
			h.edit(h.size("field"))
		}
	case "another owner":
		if h.owner != nil {
			h.owner.UID += "'"
			h.edit(h.size("field"))
		}
	case "follow":
		h.follow()
	case "lacks":
		h.lacks = rapid.SampledFrom([]string{"", "no node has a GPU"}).Draw(h.r, "lacks")
	case "fixed":
		h.fixed = !h.fixed
	case "unread":
		h.unread = h.owner != nil && !h.unread
	case "no target":
		h.number, h.since, h.condition = 0, time.Time{}, nil
	case "restart":
		h.restart()
		for _, m := range h.members {
			if m.leaves.IsZero() { // another process knows of no notice that could not be written
				delete(h.told, m.id())
			}
		}
	}
}

// follow lets what makes the members do its work: all members exist that it counts, and those that end are gone. The scheduler gives nodes to
// as many as the number.
func (h *history) follow() {
	most := h.sizes[len(h.sizes)-1]
	if h.owner != nil {
		most = h.owner.Number
	}
	var all []*member
	for i := range most {
		m := &member{index: i, mark: ' '}
		if i < h.number || slices.ContainsFunc(h.members, func(o *member) bool { return o.index == i && o.mark == '+' }) {
			m.mark = '+'
		}
		all = append(all, m)
	}
	h.exist(all)
}

// plan returns what package elastic may say: one of the sizes from which it may choose, or none.
func (h *history) plan() *elastic.Target {
	why := rapid.SampledFrom([]elastic.Why{elastic.Steady, elastic.Settling, elastic.Idle, elastic.ForWaiting, elastic.AtMost, elastic.Waits, "not asked"}).Draw(h.r, "why")
	v := h.view()
	switch {
	case why == "not asked":
		return nil
	case why == elastic.Waits && v.Running > 0:
		why = elastic.Steady
	case why == elastic.Waits:
		return &elastic.Target{Why: why}
	}
	return &elastic.Target{Why: why, Workers: rapid.SampledFrom(h.state.Offer(v)).Draw(h.r, "workers")}
}

// laws hold after each step.
func (h *history) laws(_ Event, effects []Effect) {
	evicted, v := 0, h.view()
	for _, e := range effects {
		switch e := e.(type) {
		case Set:
			if !slices.Contains(h.sizes, e.Number) {
				h.r.Fatalf("the number is %d, legal are %v", e.Number, h.sizes)
			}
		case Ask:
			h.inFlight(e.Number)
		case Notify:
			if !h.fails["notify"] {
				h.notified(e)
			}
		case Withdraw:
			delete(h.told, e.ID)
		case Evict:
			evicted++
			h.over(e.ID)
		case Write:
			h.inFlight(e.Number)
			h.writes = append(h.writes, h.now)
			for _, m := range v.Beyond(e.Number) {
				if e.Number < h.owner.Number && h.state.owner.phase() != Returning {
					h.over(m.ID)
				}
			}
		}
	}
	if evicted > 0 && v.Running-evicted < h.sizes[0] {
		h.r.Fatalf("%d of %d members are evicted, and %d must run", evicted, v.Running, h.sizes[0])
	}
}

// inFlight fails where an owner is asked for the number that it has been asked for.
func (h *history) inFlight(number int) {
	if number == h.owner.Number || !slices.Contains(h.sizes, number) {
		h.r.Fatalf("%d is asked for, the field says %d, legal are %v", number, h.owner.Number, h.sizes)
	}
}

// notified fails where the time in a notice is another one than before, or too soon.
func (h *history) notified(e Notify) {
	first, again := h.told[e.ID]
	if again && !e.At.Equal(first) || !again && e.At.Before(h.now.Add(h.rules.Notice-time.Second)) {
		h.r.Fatalf("member %s is told at %v that it leaves at %v, before at %v", e.ID, h.now, e.At, first)
	}
	h.told[e.ID] = e.At
}

// over fails where a member leaves before the time in its notice. One whose notice could not be written stays, whatever its effect says.
func (h *history) over(id string) {
	if at, told := h.told[id]; !h.fails["notify"] && (!told || h.now.Before(at)) {
		h.r.Fatalf("member %s leaves at %v, and was told %v", id, h.now, at)
	}
}

// TestHistoryLaw: whatever happens, the number is a legal one, no member leaves before the time of its notice, as many run as must, and no owner is
// asked for what it has been asked for.
func TestHistoryLaw(t *testing.T) {
	rapid.Check(t, func(r *rapid.T) {
		h := newHistory(r)
		for range rapid.IntRange(1, 40).Draw(r, "events") {
			h.event()
		}
	})
}

// TestRestLaw: whatever happened, once nothing fails, owners follow and their objects have changed, the gang gets the wanted size, and nothing changes any more. So a
// restart at any time has lost nothing that matters.
func TestRestLaw(t *testing.T) {
	rapid.Check(t, func(r *rapid.T) {
		h := newHistory(r)
		for range rapid.IntRange(1, 30).Draw(r, "events") {
			h.event()
		}
		clear(h.fails)
		h.lacks, h.fixed, h.unread = "", false, false
		if h.owner != nil { // what an API server refuses lasts until somebody changes the object
			h.owner.Generation++
		}
		wanted, rest := h.size("wanted"), h.now.Add(4*time.Hour)
		h.after = func(e Event, effects []Effect) {
			h.laws(e, effects)
			for _, e := range effects {
				if set, is := e.(Set); h.now.After(rest) && (!is || set.Number != wanted) {
					r.Fatalf("%T %v after hours in which nothing changed", e, e)
				}
			}
		}
		for end := rest.Add(time.Hour); h.now.Before(end); h.now = h.now.Add(time.Minute) {
			h.follow()
			h.pass(h.want(wanted))
		}
		if v := h.view(); h.number != wanted || v.Running != wanted || h.owner != nil && h.owner.Number != wanted {
			r.Fatalf("the number is %d, and %v exist, %d are wanted", h.number, h.marks(), wanted)
		}
	})
}

// TestPutBackLaw: an owner that does nothing gets the number of its members back, whatever requests failed before. A restart loses the old number of a shrink alone.
func TestPutBackLaw(t *testing.T) {
	rapid.Check(t, func(r *rapid.T) {
		h := newHistory(r)
		from, to := h.size("from"), h.size("to")
		h.owner, h.number, h.since, h.members = &Owner{UID: "job", Generation: 1, Number: from}, from, h.now, nil
		for i := range from {
			h.put(append(h.marks(), fmt.Sprint(i, "+"))...)
		}
		pass := func(atMost int) {
			h.now = h.now.Add(time.Duration(rapid.IntRange(10, atMost).Draw(r, "seconds")) * time.Second)
			h.pass(h.want(to))
		}
		for range rapid.IntRange(1, 30).Draw(r, "passes") {
			clear(h.fails)
			if fails := rapid.SampledFrom([]string{"", "", "write", "race", "target", "status", "restart"}).Draw(r, "fails"); fails != "restart" {
				h.fails[fails] = true
			} else if to < from {
				h.restart()
			}
			pass(60)
		}
		clear(h.fails)
		for range 20 {
			pass(30)
		}
		if phase := h.state.owner.phase(); phase != Asked && h.owner.Number != from {
			r.Fatalf("the field says %d, there are %d members, and the owner is %s", h.owner.Number, from, phase)
		}
	})
}

// want returns what package elastic says where it wants a size as long as nothing changes.
func (h *history) want(size int) *elastic.Target {
	v := h.view()
	offer := h.state.Offer(v)
	size = elastic.SizeBelow(offer, size)
	switch {
	case size == v.Size():
		return &elastic.Target{Workers: size, Why: elastic.Steady}
	case size < v.Size():
		return &elastic.Target{Workers: size, Why: elastic.ForWaiting}
	}
	return &elastic.Target{Workers: size, Why: elastic.Idle}
}

// TestOtherWriterLaw: somebody who writes the number back again and again, however soon, sees at most three writes in any hour. A restart while the
// field is left alone changes nothing.
func TestOtherWriterLaw(t *testing.T) {
	rapid.Check(t, func(r *rapid.T) {
		h := newHistory(r)
		h.owner, h.number = &Owner{UID: "job", Generation: 1, Number: 2}, 2
		undo := time.Duration(rapid.IntRange(1, 2000).Draw(r, "undone after seconds")) * time.Second
		every := time.Duration(rapid.IntRange(10, 60).Draw(r, "seconds")) * time.Second
		restarts := rapid.SliceOfN(rapid.IntRange(1, 480), 0, 4).Draw(r, "restarts after minutes")
		slices.Sort(restarts)
		undoAt, end := time.Time{}, h.now.Add(8*time.Hour)
		h.put("0+", "1+")
		for h.now.Before(end) {
			h.now = h.now.Add(every)
			if undoAt.IsZero() && h.owner.Number == 8 {
				undoAt = h.now.Add(undo)
			}
			if h.owner.Number == 8 && !h.now.Before(undoAt) {
				h.edit(2)
				undoAt = time.Time{}
			}
			h.put("0+", "1+")
			if h.owner.Number == 8 {
				h.follow()
			}
			h.pass(h.want(8))
			if len(restarts) > 0 && h.state.owner.phase() == Refused && h.now.Sub(begin) > time.Duration(restarts[0])*time.Minute {
				h.restart()
				restarts = restarts[1:]
			}
		}
		for i := 3; i < len(h.writes); i++ {
			if h.writes[i].Sub(h.writes[i-3]) < time.Hour {
				r.Fatalf("writes at %v", h.writes)
			}
		}
		if len(h.writes) < 3 {
			r.Fatalf("%d writes", len(h.writes))
		}
	})
}
