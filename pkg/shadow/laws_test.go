package shadow_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/tandem-gpu/tandem/pkg/shadow"
	"github.com/tandem-gpu/tandem/pkg/sim"
	"github.com/tandem-gpu/tandem/pkg/vgpu"
	"github.com/tandem-gpu/tandem/test/must"
)

// tale is a sequence of facts, drawn without regard to what a scheduler would do: pods come, are bound and end at any times, nodes have
// unknown devices, periods begin in between.
type tale struct {
	tells []func(*shadow.Log) error
	until time.Time
}

func at(seconds int) time.Time { return zero.Add(time.Duration(seconds) * time.Second) }

// drawTale draws facts of up to twelve pods on nodes of four GPUs.
func drawTale(t *rapid.T, nodes []*vgpu.Node) tale {
	seconds := func(name string) int { return rapid.IntRange(0, 60).Draw(t, name) }
	var all tale
	tell := func(f func(*shadow.Log) error) { all.tells = append(all.tells, f) }
	for i := range rapid.IntRange(0, 12).Draw(t, "pods") {
		r := request(fmt.Sprintf("team/p%d", i), rapid.SampledFrom([]vgpu.Slots{2, 5, 10, 20}).Draw(t, "slots"))
		p := shadow.Pod{Request: r, Created: at(seconds("created")), Class: rapid.IntRange(0, 1).Draw(t, "class")}
		if rapid.IntRange(0, 3).Draw(t, "would share") == 0 {
			would := request(r.Pod, 3)
			p.Would = &would
		}
		if rapid.IntRange(0, 3).Draw(t, "gang") == 0 {
			p.Gang = &shadow.Gang{Name: fmt.Sprintf("team/g%d", i/4), MinCount: 2}
		}
		p.Foreign = rapid.IntRange(0, 5).Draw(t, "foreign") == 0
		tell(func(l *shadow.Log) error { return l.Created(p) })
		if rapid.IntRange(0, 3).Draw(t, "bound") > 0 {
			name, when := nodes[rapid.IntRange(0, len(nodes)-1).Draw(t, "node")].Name(), at(seconds("bound"))
			if rapid.IntRange(0, 9).Draw(t, "elsewhere") == 0 {
				name = "elsewhere"
			}
			tell(func(l *shadow.Log) error { l.Bound(r.UID, name, vgpu.Assignment{}, when); return nil })
		}
		if rapid.IntRange(0, 2).Draw(t, "ended") > 0 {
			when := at(seconds("end"))
			tell(func(l *shadow.Log) error { l.Ended(r.UID, when); return nil })
		}
	}
	for i := range rapid.IntRange(0, 2).Draw(t, "further periods") {
		place := rapid.IntRange(0, len(all.tells)).Draw(t, "place")
		begin := func(l *shadow.Log) error {
			if when := at(30 + 10*i); !when.Before(l.Began()) {
				return l.Begin(when, inventory(nodes))
			}
			return nil
		}
		all.tells = append(all.tells[:place:place], append([]func(*shadow.Log) error{begin}, all.tells[place:]...)...)
	}
	all.until = at(60 + seconds("until"))
	return all
}

// inventory lets pods of class 1 onto the first node only.
func inventory(nodes []*vgpu.Node) shadow.Inventory {
	return shadow.Inventory{Nodes: nodes, Admits: map[int][]string{1: {nodes[0].Name()}}}
}

// told returns a log with all facts of a tale.
func (x *tale) told(t *rapid.T, nodes []*vgpu.Node, queue sim.Queue) *shadow.Log {
	cfg := config("tandem")
	cfg.Queue, cfg.Gather = queue, 10*time.Second
	l, err := shadow.New(cfg)
	must.OK(t, err)
	must.OK(t, l.Begin(zero, inventory(nodes)))
	for _, tell := range x.tells {
		must.OK(t, tell(l))
	}
	return l
}

func small(t testing.TB) []*vgpu.Node { return []*vgpu.Node{node(t, "n1", 2), node(t, "n2", 2)} }

// TestReportLaws: whatever the facts, a report has no wait below zero and no GPU used twice, starts no pod before it came, and is the
// same each time, also for the same facts told anew.
func TestReportLaws(t *testing.T) {
	nodes := small(t)
	rapid.Check(t, func(t *rapid.T) {
		x := drawTale(t, nodes)
		queue := rapid.SampledFrom([]sim.Queue{sim.FIFO, sim.Skip}).Draw(t, "queue")
		l := x.told(t, nodes, queue)
		r, err := l.Report(x.until)
		must.OK(t, err)
		for name, f := range map[string]*shadow.Figures{"other": &r.Other, "tandem": &r.Tandem} {
			if f.Waiting.MeanMillis < 0 || f.Waiting.P50Millis < 0 || f.Waiting.Still < 0 || f.PartialGPUSeconds < 0 {
				t.Fatalf("%s: a figure is below zero: %+v", name, f)
			}
			if f.Allocated < 0 || f.Fragmented < 0 || f.Allocated+f.Fragmented > 100+tolerance || f.InUse > float64(r.GPUs)+tolerance || f.Touched > r.GPUs {
				t.Fatalf("%s: more is used than there is: %+v", name, f)
			}
			if f.Waiting.Pods != r.Pods {
				t.Fatalf("%s: %d of %d pods are in the figures of waiting", name, f.Waiting.Pods, r.Pods)
			}
		}
		if over := l.Overbooked(x.until); over != "" {
			t.Fatal(over)
		}
		for _, again := range []*shadow.Log{l, l.Clone(), x.told(t, nodes, queue)} {
			other, err := again.Report(x.until)
			must.OK(t, err)
			if diff := cmp.Diff(r, other); diff != "" {
				t.Fatalf("the same facts give another report:\n%s", diff)
			}
		}
	})
}

// TestIdleClusterProperty: where there is room for all pods at once, and the other scheduler starts each at once, both worlds do.
func TestIdleClusterProperty(t *testing.T) {
	nodes := small(t)
	rapid.Check(t, func(t *rapid.T) {
		l := begunFor(t, nodes)
		for i := range rapid.IntRange(1, 4).Draw(t, "pods") {
			r, when := request(fmt.Sprintf("team/p%d", i), 10), at(rapid.IntRange(0, 60).Draw(t, "created"))
			must.OK(t, l.Created(shadow.Pod{Request: r, Created: when}))
			l.Bound(r.UID, nodes[i%2].Name(), vgpu.Assignment{}, when)
			if rapid.Bool().Draw(t, "ends") {
				l.Ended(r.UID, when.Add(time.Duration(rapid.IntRange(0, 60).Draw(t, "runs"))*time.Second))
			}
		}
		r, err := l.Report(at(100))
		must.OK(t, err)
		for name, f := range map[string]*shadow.Figures{"other": &r.Other, "tandem": &r.Tandem} {
			if f.Waiting.P99Millis != 0 || f.Waiting.Still != 0 {
				t.Fatalf("%s: pods waited: %+v", name, f.Waiting)
			}
		}
		if r.OnlyOther+r.OnlyTandem != 0 || len(r.Examples) != 0 || len(r.Unknown) != 0 {
			t.Fatalf("the worlds differ: %+v", r)
		}
	})
}

func begunFor(t *rapid.T, nodes []*vgpu.Node) *shadow.Log {
	l, err := shadow.New(config("tandem"))
	must.OK(t, err)
	must.OK(t, l.Begin(zero, shadow.Inventory{Nodes: nodes}))
	return l
}
