package why_test

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/tandem-gpu/tandem/internal/testkit"
	"github.com/tandem-gpu/tandem/pkg/snapshot"
	"github.com/tandem-gpu/tandem/pkg/vgpu"
	"github.com/tandem-gpu/tandem/pkg/why"
	"github.com/tandem-gpu/tandem/test/must"
)

var job = snapshot.GangName{Source: "label", Namespace: "a", Name: "j"}

// waits returns a pod of a gang, or of none, that waits for a device.
func waits(name string, gang *snapshot.GangName) snapshot.Pending {
	request := &snapshot.Request{Containers: []snapshot.ContainerRequest{{Name: "main", Kind: "app", Slots: 10}}}
	return snapshot.Pending{Name: named(name), Gang: gang, Request: request, Refused: &snapshot.Refused{}}
}

func named(name string) snapshot.Name {
	return snapshot.Name{Namespace: "a", Name: name, UID: vgpu.UID(name)}
}

// kept is room of a device that the scheduler keeps for a pod until a time in minutes, 0 for not known.
func kept(name string, minutes int64) snapshot.Hold {
	c := snapshot.Container{Name: "main", Kind: "app", Devices: []vgpu.DeviceID{testkit.DeviceID("n1", 0)}, Slots: 10, ComputeLimit: vgpu.WholeGPU}
	h := snapshot.Hold{Pod: snapshot.Pod{Name: named(name), Containers: []snapshot.Container{c}}}
	if minutes > 0 {
		h.Until = time.Unix(60*minutes, 0).UTC()
	}
	return h
}

// TestCause: what keeps pods waiting beside devices, and when it alone does.
func TestCause(t *testing.T) {
	gang := func(phase, need string, members int, places ...snapshot.Place) *snapshot.Gang {
		return &snapshot.Gang{GangName: job, MinCount: 2, Members: members, Phase: phase, Need: need, Places: places}
	}
	first, second := snapshot.Place{Name: named("j-0"), Node: "n1"}, snapshot.Place{Name: named("j-1"), Node: "n1"}
	victim := snapshot.Place{Name: named("v"), Node: "n1"}
	single := named("p")
	for _, test := range []struct {
		name        string
		gang        *snapshot.Gang
		holds       []snapshot.Hold
		preemptions []snapshot.Preemption
		want        *why.Cause
	}{
		{name: "nothing is known of the gang"},
		{name: "no room was found", gang: gang("Unplaced", "Refused", 2)},
		{name: "a member does not exist", gang: gang("Unplaced", "Incomplete", 1), want: &why.Cause{Kind: why.Incomplete, Have: 1, Want: 2}},
		{
			name: "all places are planned", gang: gang("Planned", "Satisfied", 2, first, second),
			want: &why.Cause{Kind: why.BeingBound, Places: []snapshot.Place{first, second}},
		},
		{name: "one place is planned", gang: gang("Planned", "Satisfied", 2, first)},
		{
			name: "room is kept until a known time", gang: gang("Unplaced", "Reserving", 2, first, second),
			holds: []snapshot.Hold{kept("j-0", 3), kept("j-1", 2), kept("x", 9)},
			want:  &why.Cause{Kind: why.RoomKept, Places: []snapshot.Place{first, second}, Until: 180},
		},
		{
			name: "room is kept, of a part of it nobody knows how long", gang: gang("Unplaced", "Reserving", 2, first, second),
			holds: []snapshot.Hold{kept("j-0", 3), kept("j-1", 0)}, want: &why.Cause{Kind: why.RoomKept, Places: []snapshot.Place{first, second}},
		},
		{
			name: "room is made", gang: gang("Unplaced", "Preempting", 2, first),
			preemptions: []snapshot.Preemption{
				{Pod: &single, Phase: "Leaving"},
				{Gang: &job, Phase: "Leaving", Until: time.Unix(60, 0), Victims: []snapshot.Place{victim}},
			},
			want: &why.Cause{Kind: why.RoomMade, Places: []snapshot.Place{first}, Victims: []snapshot.Place{victim}, Until: 60},
		},
		{
			name: "the victims have left", gang: gang("Unplaced", "Preempting", 2, first),
			preemptions: []snapshot.Preemption{{Gang: &job, Phase: "Cleared", Until: time.Unix(60, 0), Victims: []snapshot.Place{victim}}},
			want:        &why.Cause{Kind: why.RoomKept, Places: []snapshot.Place{first}},
		},
	} {
		t.Run(test.name, func(t *testing.T) {
			s := &snapshot.Snapshot{
				Source: snapshot.FromScheduler, Pending: []snapshot.Pending{waits("j-0", &job), waits("j-1", &job)}, Preemptions: test.preemptions,
				Nodes: []snapshot.Node{snapshot.NodeOf(testkit.Node(t, "n1", testkit.A100, 1))},
			}
			s.Nodes[0].Holds = test.holds
			if test.gang != nil {
				s.Gangs = append(s.Gangs, *test.gang)
			}
			a, err := why.Gang(s, job)
			must.OK(t, err)
			if diff := cmp.Diff(test.want, a.Cause); diff != "" {
				t.Errorf("cause (-want +got):\n%s", diff)
			}
			alone := test.want != nil && (test.want.Kind == why.Incomplete || test.want.Kind == why.BeingBound)
			if tried := len(a.Nodes)+len(a.Fits)+len(a.Changes) > 0; tried == alone {
				t.Errorf("nodes or changes were tried: %v, want %v: %+v", tried, !alone, a)
			}
		})
	}
}

// TestReserved: the members of a gang that have devices and are not bound wait for nothing else; with them all, nothing is tried.
func TestReserved(t *testing.T) {
	pod := kept("j-0", 0).Pod
	pod.Gang, pod.Reserved = &job, true
	n := snapshot.NodeOf(testkit.Node(t, "n1", testkit.A100, 1))
	n.Pods = []snapshot.Pod{pod}
	s := &snapshot.Snapshot{Source: snapshot.FromScheduler, Nodes: []snapshot.Node{n}, Pending: []snapshot.Pending{waits("j-0", &job)}}
	want := &why.Answer{
		Pods: []snapshot.Name{named("j-0")}, Gang: &job, Nodes: []snapshot.RefusedNodes{}, Changes: []why.Change{},
		Cause: &why.Cause{Kind: why.BeingBound, Places: []snapshot.Place{{Name: named("j-0"), Node: "n1"}}},
	}
	got, err := why.Gang(s, job)
	must.OK(t, err)
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("answer (-want +got):\n%s", diff)
	}
}

// TestAlike: pods that differ in anything that an answer depends on have answers of their own.
func TestAlike(t *testing.T) {
	for _, test := range []struct {
		name   string
		change func(s *snapshot.Snapshot, p *snapshot.Pending)
		want   bool
	}{
		{"equal but for the name", func(*snapshot.Snapshot, *snapshot.Pending) {}, true},
		{"slots", func(_ *snapshot.Snapshot, p *snapshot.Pending) { p.Request.Containers[0].Slots = 9 }, false},
		{"priority", func(_ *snapshot.Snapshot, p *snapshot.Pending) { p.Request.Priority = 1 }, false},
		{"models", func(_ *snapshot.Snapshot, p *snapshot.Pending) {
			p.Request.Models = []snapshot.ModelRequest{{Model: "T4"}}
		}, false},
		{"host", func(_ *snapshot.Snapshot, p *snapshot.Pending) { p.Request.MilliCPU = 1 }, false},
		{"malformed", func(_ *snapshot.Snapshot, p *snapshot.Pending) { p.Request = nil }, false},
		{"workload", func(_ *snapshot.Snapshot, p *snapshot.Pending) { p.Workload = "w" }, false},
		{"gates", func(_ *snapshot.Snapshot, p *snapshot.Pending) { p.Gates = []string{"g"} }, false},
		{"gang", func(_ *snapshot.Snapshot, p *snapshot.Pending) { p.Gang = &job }, false},
		{"not tried", func(_ *snapshot.Snapshot, p *snapshot.Pending) { p.Refused = nil }, false},
		{"refused by another plugin", func(_ *snapshot.Snapshot, p *snapshot.Pending) {
			p.Refused.Nodes = []snapshot.RefusedNodes{{Reason: "NodeAffinity", Nodes: 1}}
		}, false},
		{"other promise", func(_ *snapshot.Snapshot, p *snapshot.Pending) {
			p.Refused.Nearest = &snapshot.Refusal{Reason: vgpu.PromiseBroken}
		}, false},
		{"being bound", func(s *snapshot.Snapshot, p *snapshot.Pending) {
			s.Nodes = []snapshot.Node{{Pods: []snapshot.Pod{{Name: p.Name, Reserved: true}}}}
		}, false},
		{"room is kept", func(s *snapshot.Snapshot, p *snapshot.Pending) {
			s.Nodes = []snapshot.Node{{Holds: []snapshot.Hold{kept(p.Name.Name, 1)}}}
		}, false},
		{"room is made", func(s *snapshot.Snapshot, p *snapshot.Pending) {
			s.Preemptions = []snapshot.Preemption{{Pod: &p.Name}}
		}, false},
	} {
		a, b, s := waits("p", nil), waits("q", nil), &snapshot.Snapshot{}
		test.change(s, &b)
		if got := why.Alike(s, &a, &b); got != test.want {
			t.Errorf("%s: alike is %v", test.name, got)
		}
		if got := why.Alike(s, &b, &a); got != test.want {
			t.Errorf("%s, the other way round: alike is %v", test.name, got)
		}
	}
}
