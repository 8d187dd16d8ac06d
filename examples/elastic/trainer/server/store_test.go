package server

import (
	"slices"
	"strings"
	"testing"

	"github.com/tandem-gpu/tandem/examples/elastic/trainer/group"
	"github.com/tandem-gpu/tandem/examples/elastic/trainer/model"
	"github.com/tandem-gpu/tandem/examples/elastic/trainer/wire"
	"github.com/tandem-gpu/tandem/test/must"
)

// halves makes a step of 1 of the gradient one of a half of the parameter.
var halves = model.Spec{Rate: 0.5}

// one is 1 of a gradient.
const one = model.Unit

func newTestStore(values ...float32) *store { return newStore(halves, values) }

func wantValues(t *testing.T, s *store, step int, want ...float32) {
	t.Helper()
	got, err := s.read(step, s.held)
	if err != nil || !slices.Equal(got, want) {
		t.Errorf("at step %d: %v, %v, want %v", step, got, err, want)
	}
}

func mustAdd(t *testing.T, s *store, step int, task group.TaskID, sum ...int32) {
	t.Helper()
	must.OK(t, s.add(step, task, s.held, sum))
}

// A step counts the tasks that are named, each once, and no other one, then or later.
func TestApply(t *testing.T) {
	s := newTestStore(10, 20)
	mustAdd(t, s, 0, 1, one, 2*one)
	mustAdd(t, s, 0, 1, one, 2*one) // the same once more
	mustAdd(t, s, 0, 2, one, 0)
	mustAdd(t, s, 0, 3, 4*one, 4*one) // of a worker that was lost
	must.OK(t, s.apply(0, []group.TaskID{1, 2}))
	wantValues(t, s, 1, 9, 19) // 10 - (1+1)/2, 20 - 2/2
	if err := s.apply(1, []group.TaskID{3}); err == nil {
		t.Error("a task of the step before counts")
	}
	if err := s.apply(0, nil); err == nil {
		t.Error("a step is applied twice")
	}
	wantValues(t, s, 1, 9, 19)
}

// The server refuses a message about another step or range, and says what it has.
func TestRefused(t *testing.T) {
	s := newTestStore(10, 20, 30)
	for _, c := range []struct {
		what    string
		message wire.Message
		numbers []byte
		want    string
	}{
		{"parameters of a step that is to come", wire.Message{Kind: wire.Read, Step: 1, Range: group.Range{To: 3}}, nil, "step 1 is not the present one, 0"},
		{"parameters of others", wire.Message{Kind: wire.Read, Range: group.Range{From: 2, To: 4}}, nil, "2..4 is not in 0..3"},
		{"negative parameters", wire.Message{Kind: wire.Read, Range: group.Range{From: -1, To: 2}}, nil, "-1..2 is not in 0..3"},
		{"no parameters", wire.Message{Kind: wire.Read, Range: group.Range{From: 2, To: 1}}, nil, "2..1 is not in 0..3"},
		{"gradients of another step", wire.Message{Kind: wire.Add, Step: 2, Range: group.Range{To: 3}}, make([]byte, 12), "step 2 is not the present one"},
		{"gradients of a part", wire.Message{Kind: wire.Add, Range: group.Range{To: 2}}, make([]byte, 8), "the server holds 0..3"},
		{"too few gradients", wire.Message{Kind: wire.Add, Range: group.Range{To: 3}}, make([]byte, 8), "not as many"},
		{"nonsense", wire.Message{Kind: "nonsense"}, nil, "unknown question \"nonsense\""},
	} {
		answer, _ := s.answer(c.message, c.numbers)
		if answer.Kind != wire.Refused || !strings.Contains(answer.Reason, c.want) {
			t.Errorf("%s: the answer is %+v, want a refusal with %q", c.what, answer, c.want)
		}
	}
}

// A part that grows takes what it has and what it fetched; until it is adopted, the server holds the old one. Gradients do not
// outlive the move.
func TestAdopt(t *testing.T) {
	s := newTestStore(10, 20, 30, 40)
	if err := s.adopt(2, 3, group.Range{From: 1, To: 3}); err != nil { // it lacks nothing
		t.Fatal(err)
	}
	wantValues(t, s, 3, 20, 30)
	mustAdd(t, s, 3, 1, one, one)

	s.prepare(3, group.Range{From: 0, To: 4}, map[group.Range][]float32{{From: 0, To: 1}: {11}, {From: 3, To: 4}: {41}})
	wantValues(t, s, 3, 20, 30)
	must.OK(t, s.adopt(3, 3, group.Range{From: 0, To: 4}))
	wantValues(t, s, 3, 11, 20, 30, 41)
	if err := s.apply(3, []group.TaskID{1}); err == nil {
		t.Error("gradients of the old layout count")
	}
}

// A layout that was given up does not come back, and nothing is adopted that is not there.
func TestAdoptWhatIsThere(t *testing.T) {
	s := newTestStore(10, 20)
	s.prepare(5, group.Range{To: 3}, map[group.Range][]float32{{From: 2, To: 3}: {35}})
	s.prepare(4, group.Range{To: 3}, map[group.Range][]float32{{From: 2, To: 3}: {34}})
	if err := s.adopt(4, 0, group.Range{To: 3}); err == nil {
		t.Error("an earlier layout was adopted")
	}
	must.OK(t, s.adopt(5, 0, group.Range{To: 3}))
	wantValues(t, s, 0, 10, 20, 35)
	s.prepare(4, group.Range{To: 4}, nil) // it comes too late
	if err := s.adopt(4, 0, group.Range{To: 4}); err == nil {
		t.Error("parameters were adopted that are not there")
	}
	wantValues(t, s, 0, 10, 20, 35)
}
