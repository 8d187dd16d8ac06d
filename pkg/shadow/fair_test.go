package shadow_test

import (
	"strings"
	"testing"

	"github.com/tandem-gpu/tandem/pkg/placement"
	"github.com/tandem-gpu/tandem/pkg/shadow"
	"github.com/tandem-gpu/tandem/pkg/vgpu"
	"github.com/tandem-gpu/tandem/test/must"
)

// The figures favour neither world: each test shows a case in which one of them would have better figures than it deserves.

func inGang(least int) func(*shadow.Pod) {
	return func(p *shadow.Pod) { p.Gang = &shadow.Gang{Name: "team/g", MinCount: least} }
}

// A gang that waits in reality through several periods, and that Tandem starts in each, counts once.
func TestGangsCountInOnePeriod(t *testing.T) {
	nodes := []*vgpu.Node{node(t, "n1", 2)}
	l := begun(t, config("tandem"), nodes)
	live(t, l, life{"g-0", 10, 0, -1, -1, "", inGang(2)}, life{"g-1", 10, 0, -1, -1, "", inGang(2)})
	for i := 1; i <= 3; i++ {
		must.OK(t, l.Begin(at(100*i), shadow.Inventory{Nodes: nodes}))
	}
	if r := report(t, l, 400); r.Gangs != 1 || r.Pods != 2 || r.Tandem.GangsWhole != 1 || r.Other.GangsWhole != 0 {
		t.Errorf("%+v", r)
	}
}

// A gang whose members ran one after the other has never run.
func TestGangOneAfterTheOther(t *testing.T) {
	l := begun(t, config("tandem"), []*vgpu.Node{node(t, "n1", 2)})
	live(t, l, life{"g-0", 10, 0, 0, 60, "n1", inGang(2)}, life{"g-1", 10, 0, 100, 200, "n1", inGang(2)})
	if r := report(t, l, 300); r.Other.GangsWhole != 0 || r.Other.PartialGPUSeconds != 160 {
		t.Errorf("%+v", r.Other)
	}
}

// A gang that comes under the name of one that has ended is a gang of its own: its members start together, or none.
func TestGangOfTheNextNight(t *testing.T) {
	for name, began := range map[string]int{"within a period": -1, "after its begin": 100} {
		nodes := []*vgpu.Node{node(t, "n1", 2)}
		l := begun(t, config("tandem"), nodes)
		live(t, l, life{"a-0", 10, 0, 0, -1, "n1", inGang(2)}, life{"a-1", 10, 0, 0, -1, "n1", inGang(2)})
		if began >= 0 {
			must.OK(t, l.Begin(at(began), shadow.Inventory{Nodes: nodes}))
		}
		l.Ended("team/a-0", at(200))
		l.Ended("team/a-1", at(200))
		live(t, l, life{"busy", 10, 200, 200, -1, "n1", nil}, life{"b-0", 10, 300, 300, -1, "n1", inGang(2)}, life{"b-1", 10, 300, -1, -1, "", inGang(2)})
		r := report(t, l, 400)
		if want := map[bool]int{true: 2, false: 2}[began >= 0]; r.Gangs != want || r.Tandem.Waiting.Still != 2 || r.Tandem.PartialGPUSeconds != 0 {
			t.Errorf("%s: %d gangs, %+v", name, r.Gangs, r.Tandem)
		}
	}
}

// A pod that runs on through periods keeps what it has in reality, and counts in the one in which it came, also as a share.
func TestCarriedPodsCountOnce(t *testing.T) {
	nodes := []*vgpu.Node{node(t, "n1", 1)}
	l := begun(t, config("tandem"), nodes)
	share := func(p *shadow.Pod) {
		r := request(p.Request.Pod, 3)
		p.Would = &r
	}
	live(t, l, life{"a", 10, 0, 0, -1, "n1", share})
	for _, begin := range []int{100, 200} {
		must.OK(t, l.Begin(at(begin), shadow.Inventory{Nodes: nodes}))
	}
	live(t, l, life{"b", 10, 250, -1, -1, "", nil})
	if r := report(t, l, 300); r.Shared != 1 || r.Pods != 2 || r.OnlyTandem != 0 || r.Tandem.Waiting.Still != 1 {
		t.Errorf("%+v", r)
	}
}

// A pod that came in the second in which a period begins counts once.
func TestPodAtTheBegin(t *testing.T) {
	nodes := []*vgpu.Node{node(t, "n1", 1)}
	l := begun(t, config("tandem"), nodes)
	live(t, l, life{"a", 10, 100, -1, -1, "", nil})
	must.OK(t, l.Begin(at(100), shadow.Inventory{Nodes: nodes}))
	if r := report(t, l, 200); r.Pods != 1 || r.Other.Waiting.Pods != 1 {
		t.Errorf("%+v", r)
	}
}

// Two assignments of one device are a contradiction of a moment: the report goes on, and says it.
func TestContradictingAssignments(t *testing.T) {
	l := begun(t, config("tandem"), []*vgpu.Node{node(t, "n1", 1)})
	live(t, l, life{"a", 10, 0, -1, -1, "", nil}, life{"b", 10, 0, -1, -1, "", nil})
	for _, pod := range []string{"team/a", "team/b"} { // each as placement gives it on the empty node
		r := request(pod, 10)
		a, refusal := placement.Assign(node(t, "n1", 1), &r, placement.Policy{})
		if refusal != nil {
			t.Fatal(refusal)
		}
		l.Bound(r.UID, "n1", a, at(10))
	}
	r := report(t, l, 100)
	wantUnknown(t, r, "1 pods without GPUs in the ledger")
	if r.Other.InUse > 1 || r.Other.Waiting.Still != 0 {
		t.Errorf("%+v", r.Other)
	}
	if err := l.Begin(at(200), shadow.Inventory{Nodes: []*vgpu.Node{node(t, "n1", 1)}}); err != nil {
		t.Errorf("the period does not end: %v", err)
	}
}

// A pod of another scheduler that finds its GPU taken in the world of Tandem is told.
func TestForeignPodThatFindsNoRoom(t *testing.T) {
	l := begun(t, config("tandem"), []*vgpu.Node{node(t, "n1", 1)})
	foreign := func(p *shadow.Pod) { p.Foreign = true }
	live(t, l, life{"a", 10, 0, 50, 60, "n1", nil}, life{"f", 10, 5, 5, 40, "n1", foreign})
	r := report(t, l, 100)
	found := false
	for _, u := range r.Unknown {
		found = found || strings.HasPrefix(u.What, "1 pods that keep their node")
	}
	if !found {
		t.Errorf("unknown: %+v", r.Unknown)
	}
}
