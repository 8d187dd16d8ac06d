package resize

import (
	"errors"
	"flag"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/cockroachdb/datadriven"

	"github.com/tandem-gpu/tandem/pkg/elastic"
	"github.com/tandem-gpu/tandem/test/must"
)

var update = flag.Bool("update", false, "write docs/elastic-phases.md anew")

// TestScenarios tells the stories of testdata/scenarios, each of one gang:
//
//	gang 2,4,8 number=4 owner=4      its legal sizes, the number of its target, and that of the field of its owner
//	members 0+ 1+ 2 3-               those that exist, by index: with a node, waiting, ending
//	pass 4 Steady fails=write        a pass in which package elastic wants that, "none" where it is not asked, "broken" where it cannot decide; below stand the effects of
//	                                 each step that has any, and the phases that changed. Requests that fail: ask, write, race, evict,
//	                                 notify, target, status
//	wait 2m
//	offer                            the sizes from which package elastic may choose
//	no-notice 7                      somebody takes the notice of a member away
//	owner 2                          somebody else changes the field of the owner
//	lacks no node has a GPU          why further members have no places
//	fixed yes | unread yes           the number must not change, or the owner cannot be read
//	other-owner 4                    another object has the name of the owner
//	no-target                        a user deletes the target
//	restart                          another process begins
func TestScenarios(t *testing.T) {
	seen := map[transition]bool{}
	datadriven.Walk(t, filepath.Join("testdata", "scenarios"), func(t *testing.T, path string) {
		s := &story{seen: seen}
		datadriven.RunTest(t, path, func(t *testing.T, d *datadriven.TestData) string {
			s.t = t
			return s.run(d)
		})
	})
	if !t.Failed() {
		checkPage(t, seen)
	}
}

type story struct {
	*world
	t    *testing.T
	out  strings.Builder
	seen map[transition]bool
}

func (s *story) run(d *datadriven.TestData) string {
	words := strings.Fields(strings.TrimPrefix(d.Input, d.Cmd))
	for _, a := range d.CmdArgs {
		words = append(words, a.String())
	}
	s.out.Reset()
	switch d.Cmd {
	case "gang":
		s.declare(d)
	case "members":
		s.put(words...)
	case "pass":
		s.play(d)
	case "wait":
		s.now = s.now.Add(s.duration(words[0]))
	case "offer":
		fmt.Fprintln(&s.out, s.state.Offer(s.view()))
	case "no-notice":
		for _, m := range s.members {
			if m.id() == words[0] {
				m.leaves = time.Time{}
			}
		}
	case "owner":
		s.edit(s.whole(words[0]))
	case "other-owner":
		s.owner.UID += "'"
		s.edit(s.whole(words[0]))
	case "lacks":
		s.lacks = strings.Join(words, " ")
	case "fixed":
		s.fixed = words[0] == "yes"
	case "unread":
		s.unread = words[0] == "yes"
	case "no-target":
		s.number, s.since, s.condition = 0, time.Time{}, nil
	case "restart":
		s.restart()
	default:
		d.Fatalf(s.t, "unknown command %q", d.Cmd)
	}
	return s.out.String()
}

func (s *story) declare(d *datadriven.TestData) {
	var sizes []int
	for _, a := range d.CmdArgs {
		switch a.Key {
		case "number":
			s.number, s.since = s.whole(a.Vals[0]), s.now
		case "owner":
			s.owner = &Owner{UID: "job", Generation: 1, Number: s.whole(a.Vals[0])}
		case "sizes":
			for _, v := range a.Vals {
				sizes = append(sizes, s.whole(v))
			}
			s.world = newWorld(sizes...)
			s.after, s.world.seen = s.tell, s.seen
		}
	}
}

func (s *story) play(d *datadriven.TestData) {
	clear(s.fails)
	var target *elastic.Target
	for i, a := range d.CmdArgs {
		switch {
		case a.Key == "fails":
			for _, v := range a.Vals {
				s.fails[v] = true
			}
		case a.Key == "broken":
			target = &elastic.Target{Why: elastic.Invalid, Err: errors.New("the rates are wrong")}
		case i == 0 && a.Key != "none":
			target = &elastic.Target{Workers: s.whole(a.Key), Why: elastic.Why(d.CmdArgs[1].Key)}
		}
	}
	before := s.state.Phases()
	s.pass(target)
	for i, phase := range s.state.Phases() {
		if phase != before[i] {
			fmt.Fprintf(&s.out, "%s → %s\n", before[i], phase)
		}
	}
}

// tell tells the effects of a step.
func (s *story) tell(_ Event, effects []Effect) {
	for _, e := range effects {
		switch e := e.(type) {
		case Set:
			fmt.Fprintf(&s.out, "set %d %s", e.Number, e.Why)
			if e.Bar != nil {
				fmt.Fprintf(&s.out, ", %d not before %s", e.Bar.Size, s.clock(e.Bar.Until))
			}
			if e.FirstGone {
				fmt.Fprint(&s.out, ", the first are gone")
			}
			fmt.Fprintln(&s.out)
		case Notify:
			fmt.Fprintf(&s.out, "notify %s: it leaves at %s\n", e.ID, s.clock(e.At))
		case Warn:
			fmt.Fprintf(&s.out, "warn: %s\n", e.Why)
		case LeaveOwner:
			fmt.Fprintf(&s.out, "leave the owner alone until %s: %d to %d was undone %d times\n", s.clock(e.Refusal.Until), e.Refusal.From, e.Refusal.To, e.Refusal.Times)
		default:
			fmt.Fprintf(&s.out, "%s %s\n", strings.ToLower(strings.TrimPrefix(fmt.Sprintf("%T", e), "resize.")), strings.Trim(fmt.Sprint(e), "{}"))
		}
	}
}

func (s *story) clock(at time.Time) string { return at.Sub(begin).String() }

func (s *story) whole(text string) int {
	n, err := strconv.Atoi(text)
	must.OK(s.t, err)
	return n
}

func (s *story) duration(text string) time.Duration {
	d, err := time.ParseDuration(text)
	must.OK(s.t, err)
	return d
}

// checkPage fails where docs/elastic-phases.md does not show the transitions of the scenarios.
func checkPage(t *testing.T, seen map[transition]bool) {
	page := filepath.Join("..", "..", "docs", "elastic-phases.md")
	want := phasesPage(seen)
	if *update {
		must.OK(t, os.WriteFile(page, []byte(want), 0o644)) //nolint:gosec // a page that all may read
	}
	got, err := os.ReadFile(page)
	must.OK(t, err)
	if string(got) != want {
		t.Error("docs/elastic-phases.md is not what the scenarios show: run go test ./pkg/resize -run TestScenarios -update")
	}
}

// phasesPage returns docs/elastic-phases.md.
func phasesPage(seen map[transition]bool) string {
	var b strings.Builder
	b.WriteString(`# The phases of elastic gangs

Package [elastic](../pkg/elastic/doc.go) decides how many members an elastic gang should have. Package [resize](../pkg/resize/doc.go)
remembers how the members follow that number, in the controller and in the simulator. It changes what it remembers only in ` + "`State.Step`" + `,
which takes an event and returns effects. This page is generated from the scenarios under ` + "`pkg/resize/testdata`" + `, each of which tells a
short story with its effects: ` + "`go test ./pkg/resize -run TestScenarios -update`" + ` writes it.

The state of a gang has four parts.
`)
	for _, p := range []struct {
		title  string
		phases [][2]string
	}{
		{"The members", [][2]string{
			{string(Following), "The members follow the number, or will once they have places."},
			{string(FirstGone), "The number counts members that do not exist, so that too few of the others may run. After a while it counts more."},
			{string(Leaving), "Members beyond the number have a notice, and still run."},
		}},
		{"The owner, whose field says how many members there are", [][2]string{
			{string(Unread), "A new process has not read the owner yet."},
			{string(Unasked), "The field says what it should, or waits to be written. Gangs that are resized without an owner stay here."},
			{string(Asked), "The field is written, and the owner's controller has made or deleted no member since."},
			{string(Returning), "The owner's controller has not followed in time, and the old number goes back into the field."},
			{string(Refused), "The field is left alone, until a time or until the owner changes."},
		}},
		{"The sizes that may be tried", [][2]string{
			{string(Free), "Any legal size may be tried."},
			{string(Barred), "A size found no places. Neither this one nor a larger one is tried for a while."},
			{string(Retrying), "That time is over. If the size finds no places again, it is barred for twice as long."},
		}},
		{"The record in the target's status", [][2]string{
			{string(Recorded), "The status tells when the target got its number."},
			{string(Moved), "The target has got a number, and its status does not tell so yet."},
		}},
	} {
		fmt.Fprintf(&b, "\n## %s\n\n| phase | what it means |\n|---|---|\n", p.title)
		var names []Phase
		for _, phase := range p.phases {
			fmt.Fprintf(&b, "| %s | %s |\n", phase[0], phase[1])
			names = append(names, Phase(phase[0]))
		}
		transitionsTable(&b, seen, names)
	}
	return b.String()
}

// transitionsTable writes the transitions between some phases, by the events that make them.
func transitionsTable(b *strings.Builder, seen map[transition]bool, names []Phase) {
	by := map[[2]int][]string{}
	for t := range seen {
		if from := slices.Index(names, t.from); from >= 0 {
			pair := [2]int{from, slices.Index(names, t.to)}
			by[pair] = append(by[pair], t.by)
		}
	}
	fmt.Fprint(b, "\n| from | to | events of the scenarios that do it |\n|---|---|---|\n")
	for _, pair := range slices.SortedFunc(maps.Keys(by), func(x, y [2]int) int { return slices.Compare(x[:], y[:]) }) {
		slices.Sort(by[pair])
		fmt.Fprintf(b, "| %s | %s | %s |\n", names[pair[0]], names[pair[1]], strings.Join(by[pair], ", "))
	}
}
