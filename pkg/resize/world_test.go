package resize

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/tandem-gpu/tandem/pkg/elastic"
)

// world is what one gang lives in: the API as it shows the gang, and what answers its requests. It does what the controller does with effects.
type world struct {
	state *State
	rules Config
	now   time.Time
	sizes []int
	// number and since are those of the target, status says that its status tells them.
	number int
	since  time.Time
	status bool
	// members have an index, and are in its order. made counts the pods of each index.
	members []*member
	made    map[int]int
	owner   *Owner
	lacks   string
	fixed   bool
	unread  bool
	paused  bool
	pin     int
	// condition is the refusal that the status of the target tells.
	condition *Refusal
	// fails names the requests that fail: "ask", "write", "race", "evict", "notify", "target", "status".
	fails map[string]bool
	// seen are the transitions so far, and after is called after each step.
	seen  map[transition]bool
	after func(Event, []Effect)
}

type member struct {
	index  int
	run    int // counts the earlier pods with this index
	mark   rune
	leaves time.Time
}

func (m *member) id() string { return fmt.Sprint(m.index) + strings.Repeat("'", m.run) }

// transition is a change of a phase.
type transition struct {
	from, to Phase
	by       string
}

var begin = time.Unix(1_000_000, 0).UTC()

func newWorld(sizes ...int) *world {
	w := &world{rules: Config{Notice: 30 * time.Second, Within: 2 * time.Minute}, now: begin, sizes: sizes, fails: map[string]bool{}, made: map[int]int{}, seen: map[transition]bool{}}
	w.restart()
	return w
}

// restart starts a process that remembers nothing.
func (w *world) restart() { w.state = New(w.rules, w.now) }

// put says which members exist: "0+ 1+ 2 3-" have an index and a node, wait, or end. A member that is not named is gone.
func (w *world) put(text ...string) {
	var all []*member
	for _, word := range text {
		m := &member{}
		if _, err := fmt.Sscanf(word, "%d%c", &m.index, &m.mark); err != nil {
			m.mark = ' '
		}
		all = append(all, m)
	}
	w.exist(all)
}

// exist says which members exist. Those that existed before keep their notices.
func (w *world) exist(all []*member) {
	for _, m := range all {
		at := slices.IndexFunc(w.members, func(o *member) bool { return o.index == m.index && (o.mark != '-' || m.mark == '-') })
		if at >= 0 {
			m.run, m.leaves = w.members[at].run, w.members[at].leaves
		} else {
			m.run = w.made[m.index]
			w.made[m.index]++
		}
	}
	w.members = all
}

// view is what the API shows.
func (w *world) view() *View {
	v := &View{Sizes: w.sizes, Possible: w.sizes, Number: w.number, Since: w.since, Lacks: w.lacks, Fixed: w.fixed || w.unread, Unread: w.unread, Paused: w.paused, Pin: w.pin}
	if w.owner != nil && !w.fixed && !w.unread {
		o := *w.owner
		v.Owner, v.Before = &o, w.condition
	}
	for _, m := range w.members {
		shown := Member{ID: m.id(), Running: m.mark == '+', Waits: m.mark == ' ', Unfinished: m.mark == '-', Notified: !m.leaves.IsZero(), Leaves: m.leaves}
		if shown.Running {
			v.Running++
		}
		if v.Owner != nil {
			shown.Within = m.index + 1
		} else if shown.Running {
			shown.Within = v.Running
		}
		v.Members = append(v.Members, shown)
	}
	if len(w.members) >= w.sizes[0] {
		v.Reach = w.members[w.sizes[0]-1].index + 1
	}
	for len(v.Possible) > 1 && w.owner == nil && v.Possible[len(v.Possible)-1] > len(w.members) {
		v.Possible = v.Possible[:len(v.Possible)-1]
	}
	return v
}

// step takes an event, and notes the transitions.
func (w *world) step(e Event) []Effect {
	before := w.state.Phases()
	effects := w.state.Step(e, w.now)
	for i, phase := range w.state.Phases() {
		if phase != before[i] {
			w.seen[transition{before[i], phase, strings.TrimPrefix(fmt.Sprintf("%T", e), "resize.")}] = true
		}
	}
	if w.after != nil {
		w.after(e, effects)
	}
	return effects
}

// pass is one pass of the controller with what package elastic wants, nil where it is not asked.
func (w *world) pass(target *elastic.Target) {
	w.step(Looked{w.view()})
	w.condition = nil
	if r := w.state.Refusal(); r != nil {
		said := *r
		w.condition = &said
	}
	set, ask := Set{}, false
	for _, e := range w.step(Planned{w.view(), target}) {
		switch e := e.(type) {
		case Ask:
			ask = true
		case Set:
			set = e
		}
	}
	if ask && w.fails["ask"] {
		set = w.step(NotTaken{w.view(), w.refusal()})[0].(Set)
	}
	if w.fails["target"] {
		return
	}
	if w.number != set.Number {
		w.number, w.status = set.Number, false
		w.step(Numbered{})
	}
	if w.fails["status"] {
		return
	}
	if at, is := w.state.Moved(); is {
		w.since = at
	}
	w.status = true
	w.step(Told{})
	w.carryOut(set.Number)
}

// refusal is the answer of an API server that does not take a number of the owner as it is.
func (w *world) refusal() Refusal {
	return Refusal{Kind: ByServer, Code: "ChangeRefused", Text: "immutable", Generation: w.owner.Generation}
}

// carryOut brings the members to a number.
func (w *world) carryOut(number int) {
	by := map[string]*member{}
	for _, m := range w.members {
		by[m.id()] = m
	}
	failed, kept, view := false, "", w.view()
	for _, e := range w.step(Due{view, number}) {
		switch e := e.(type) {
		case Notify:
			if w.fails["notify"] {
				failed = true
				w.step(Untold{e.ID})
			} else {
				by[e.ID].leaves = e.At
			}
		case Withdraw:
			by[e.ID].leaves = time.Time{}
		case Evict:
			switch {
			case w.fails["notify"]:
			case w.fails["evict"]:
				kept = "a budget keeps " + e.ID
			default:
				by[e.ID].mark = '-'
			}
		case Write:
			if !failed {
				w.write(view, e.Number)
			}
		}
	}
	if !view.Unread {
		w.step(Evicted{number, kept})
	}
}

// write writes the field of the owner.
func (w *world) write(view *View, number int) {
	switch {
	case w.fails["race"]:
	case w.fails["write"]:
		w.step(NotTaken{view, w.refusal()})
	default:
		w.owner.Number = number
		w.owner.Generation++
		w.step(Written{view, number, w.owner.Generation})
	}
}

// edit has somebody else change the field of the owner.
func (w *world) edit(number int) {
	w.owner.Number = number
	w.owner.Generation++
}
