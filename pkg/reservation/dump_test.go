package reservation

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/tandem-gpu/tandem/pkg/gang"
	"github.com/tandem-gpu/tandem/test/must"
)

// A state that was dumped as JSON and restored takes the same events with the same effects, and dumps the same.
func TestRestoredStateDoesTheSame(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		h := newHistory(t, gang.AllDrains)
		for range rapid.IntRange(1, 25).Draw(t, "events before") {
			h.once()
		}
		twin := throughJSON(t, h.state)
		for range rapid.IntRange(1, 15).Draw(t, "events after") {
			e, at := h.draw()
			got, want := twin.Step(e, at), h.state.Step(e, at)
			if diff := cmp.Diff(fmt.Sprintf("%+v", want), fmt.Sprintf("%+v", got)); diff != "" {
				t.Fatalf("effects of %T (-state +restored):\n%s", e, diff)
			}
		}
		if diff := cmp.Diff(asJSON(t, h.state.Dump()), asJSON(t, twin.Dump())); diff != "" {
			t.Fatalf("(-state +restored):\n%s", diff)
		}
	})
}

func throughJSON(t fails, s *State) *State {
	var d Dump
	must.OK(t, json.Unmarshal([]byte(asJSON(t, s.Dump())), &d))
	restored, err := Restore(&d)
	must.OK(t, err)
	return restored
}

func asJSON(t fails, d Dump) string {
	data, err := json.MarshalIndent(d, "", "  ")
	must.OK(t, err)
	return string(data)
}

// A dump that was edited by hand is refused with what is wrong.
func TestRestoreRefuses(t *testing.T) {
	for name, x := range map[string]struct {
		dump Dump
		want string
	}{
		"unknown phase":        {Dump{Gangs: []GangDump{{Phase: "Asleep", Plan: &PlanDump{}}}}, `unknown phase "Asleep", known are`},
		"no plan":              {Dump{Gangs: []GangDump{{Phase: "Planned"}}}, `phase "Planned" without a plan`},
		"no refusal":           {Dump{Gangs: []GangDump{{Phase: "Unplaced", Need: "Refused"}}}, `need "Refused" is not one of`},
		"no room":              {Dump{Pods: []PodDump{{Phase: "Leaving"}}}, `phase "Leaving" without a room`},
		"unknown phase of pod": {Dump{Pods: []PodDump{{Phase: "Going", Room: &PodRoom{}}}}, `unknown phase "Going", known are`},
	} {
		if _, err := Restore(&x.dump); err == nil || !strings.Contains(err.Error(), x.want) {
			t.Errorf("%s: the error is %v, want %s", name, err, x.want)
		}
	}
}

// The dump is that of its time: later steps do not change it.
func TestDumpStays(t *testing.T) {
	s, now := New(Config{Deadline: time.Minute}), time.Unix(1e9, 0).UTC()
	pod := PodRef{UID: "high", Pod: "default/high"}
	s.Step(PodRoomMade{PodRef: pod, Room: PodRoom{Place: placeOf("high", "n1/g0").Assignment, Victims: []PodRef{refOf("a")}}, Until: now, Evict: []Chosen{{UID: "a"}}}, now)
	d := s.Dump()
	before := asJSON(t, d)
	s.Step(VictimWithdrawn{Preemptor: PodPreemptor("high"), UID: "a"}, now)
	s.Step(PodEnded{UID: "high", Gone: true}, now)
	if diff := cmp.Diff(before, asJSON(t, d)); diff != "" {
		t.Errorf("the dump has changed:\n%s", diff)
	}
}
