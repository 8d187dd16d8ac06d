package shadow_test

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/tandem-gpu/tandem/pkg/interference"
	"github.com/tandem-gpu/tandem/pkg/placement"
	"github.com/tandem-gpu/tandem/pkg/shadow"
	"github.com/tandem-gpu/tandem/pkg/vgpu"
	"github.com/tandem-gpu/tandem/test/must"
)

// life is a pod's facts in seconds; below 0 stands for what has not happened.
type life struct {
	pod                   string
	slots                 vgpu.Slots
	created, bound, ended int
	node                  string
	change                func(*shadow.Pod)
}

// live tells a log the facts of some pods.
func live(t *testing.T, l *shadow.Log, all ...life) {
	t.Helper()
	for _, x := range all {
		p := shadow.Pod{Request: request("team/"+x.pod, x.slots), Created: at(x.created)}
		if x.change != nil {
			x.change(&p)
		}
		must.OK(t, l.Created(p))
		if x.bound >= 0 {
			l.Bound(p.Request.UID, x.node, vgpu.Assignment{}, at(x.bound))
		}
		if x.ended >= 0 {
			l.Ended(p.Request.UID, at(x.ended))
		}
	}
}

func report(t *testing.T, l *shadow.Log, seconds int) *shadow.Report {
	t.Helper()
	r, err := l.Report(at(seconds))
	must.OK(t, err)
	return r
}

// TestReport: on a node with two GPUs, b waits for a, and the other scheduler starts it 50 s late. In both worlds two GPUs are in use for
// 100 s and one for 100 s, of 300 s.
func TestReport(t *testing.T) {
	l := begun(t, config("tandem"), []*vgpu.Node{node(t, "n1", 2)})
	live(t, l, life{"a", 20, 0, 0, 100, "n1", nil}, life{"b", 10, 10, 150, 250, "n1", nil})
	r := report(t, l, 300)
	figures := func(wait int64) shadow.Figures {
		return shadow.Figures{
			Waiting: shadow.Waits{Pods: 2, MeanMillis: wait / 2, P99Millis: wait}, Touched: 2, InUse: 1, Allocated: 50, Slowdown: shadow.Slowdown{Mean: 1, KnownPercent: 100},
		}
	}
	want := &shadow.Report{
		From: at(0), To: at(300), Periods: 1, GPUs: 2, Pods: 2, Other: figures(140_000), Tandem: figures(90_000),
		Examples: []string{"team/b: the other scheduler started it after 2m20s; Tandem would have started it after 1m30s."},
		Unknown:  []shadow.Unknown{},
	}
	// Half of the usual requests want two GPUs, and lose the idle one while the other is in use: 500 of 2000 for 100 s of 300 s, from the
	// arrival of b on.
	want.Other.Fragmented, want.Tandem.Fragmented = r.Other.Fragmented, r.Tandem.Fragmented
	if diff := cmp.Diff(want, r); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if f := r.Other.Fragmented; f < 100*500./2000/3-tolerance || f > 100*500./2000/3+tolerance {
		t.Errorf("%v %% are fragmented", f)
	}
}

// TestSharesThatOwnersAllow: three pods have whole GPUs of two, and their owners say that three slots are enough. Tandem starts all at
// once; the third waits in reality, so that its length is not known.
func TestSharesThatOwnersAllow(t *testing.T) {
	share := func(p *shadow.Pod) {
		r := request(p.Request.Pod, 3)
		p.Would = &r
	}
	l := begun(t, config("packed"), []*vgpu.Node{node(t, "n1", 2)})
	live(t, l, life{"a", 10, 0, 0, -1, "n1", share}, life{"b", 10, 0, 0, -1, "n1", share}, life{"c", 10, 0, -1, -1, "", share})
	r := report(t, l, 100)
	if r.Shared != 3 || r.OnlyTandem != 1 || r.OnlyOther != 0 || r.Tandem.Waiting.Still != 0 || r.Other.Waiting.Still != 1 {
		t.Errorf("%+v", r)
	}
	if r.Other.InUse != 2 || r.Tandem.InUse != 1 || r.Tandem.Touched != 1 {
		t.Errorf("the other world uses %v GPUs, that of Tandem %v", r.Other.InUse, r.Tandem.InUse)
	}
	if want := []string{"team/c: the other scheduler has not started it after 1m40s; Tandem would have started it after 0s."}; !cmp.Equal(want, r.Examples) {
		t.Errorf("examples: %q", r.Examples)
	}
	if s := r.Tandem.Slowdown; s.Mean != 0 || s.KnownPercent != 0 || s.Why == "" {
		t.Errorf("the slowdown of pods without profiles is %+v", s)
	}
	if s := r.Other.Slowdown; s.Mean != 1 || s.KnownPercent != 100 || s.Why != "" {
		t.Errorf("the slowdown of pods with GPUs of their own is %+v", s)
	}
	wantUnknown(t, r, "1 pods that Tandem would have started and that wait in reality")
}

func wantUnknown(t *testing.T, r *shadow.Report, want ...string) {
	t.Helper()
	var got []string
	for _, u := range r.Unknown {
		if u.Why == "" {
			t.Errorf("%s: no reason", u.What)
		}
		got = append(got, u.What)
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("unknown (-want +got):\n%s", diff)
	}
}

// TestGangs: the other scheduler starts the second member of a gang 50 s after the first, so that one GPU is held for 50 s by half a
// gang. Tandem starts both at once; the gang runs for the 40 s for which it ran whole.
func TestGangs(t *testing.T) {
	member := func(p *shadow.Pod) { p.Gang = &shadow.Gang{Name: "team/g", MinCount: 2} }
	l := begun(t, config("tandem"), []*vgpu.Node{node(t, "n1", 2)})
	live(t, l, life{"g-0", 10, 0, 10, 100, "n1", member}, life{"g-1", 10, 0, 60, 100, "n1", member}, life{"b", 20, 1, 100, 110, "n1", nil})
	r := report(t, l, 200)
	if r.Gangs != 1 || r.Other.GangsWhole != 1 || r.Tandem.GangsWhole != 1 || r.Other.PartialGPUSeconds != 50 || r.Tandem.PartialGPUSeconds != 0 {
		t.Errorf("%+v", r)
	}
	_, tandem, err := l.Starts(at(200))
	must.OK(t, err)
	if b := tandem["team/b"]; b != 40*time.Second {
		t.Errorf("Tandem starts b at %v, want the end of the gang", b)
	}
}

// TestGangsThatNeverRan: half a gang that is gone is in neither world.
func TestGangsThatNeverRan(t *testing.T) {
	member := func(p *shadow.Pod) { p.Gang = &shadow.Gang{Name: "team/g", MinCount: 2} }
	l := begun(t, config("tandem"), []*vgpu.Node{node(t, "n1", 2)})
	live(t, l, life{"g-0", 10, 0, 10, 100, "n1", member}, life{"g-1", 10, 0, -1, 90, "", member})
	r := report(t, l, 200)
	if r.Pods != 0 || r.Gangs != 0 {
		t.Errorf("%+v", r)
	}
	wantUnknown(t, r, "1 cancelled pods", "1 gangs")
}

// TestPeriods: a new period begins with what is there. The running pod stays on its node in both worlds, the waiting one waits on in both
// although Tandem would have started it before, and neither is counted again.
func TestPeriods(t *testing.T) {
	nodes := []*vgpu.Node{node(t, "n1", 1), node(t, "n2", 1)}
	l := begun(t, config("tandem"), nodes)
	anywhere := func(p *shadow.Pod) { p.Class = 1 }
	live(t, l, life{"a", 10, 0, 5, -1, "n2", anywhere}, life{"b", 10, 0, -1, -1, "", nil})
	must.OK(t, l.Begin(at(100), shadow.Inventory{Nodes: append(nodes, node(t, "n3", 1)), Admits: map[int][]string{0: {"n2"}}}))
	l.Ended("team/a", at(150))
	r := report(t, l, 200)
	if r.Periods != 2 || r.GPUs != 3 || r.Pods != 2 || r.Other.Waiting.Pods != 2 {
		t.Errorf("%+v", r)
	}
	if r.Other.Waiting.P99Millis != 100_000 || r.Other.Waiting.Still != 1 || r.Tandem.Waiting.P99Millis != 0 || r.Tandem.Waiting.Still != 0 {
		t.Errorf("the other world waits %+v, that of Tandem %+v", r.Other.Waiting, r.Tandem.Waiting)
	}
	_, tandem, err := l.Starts(at(200))
	must.OK(t, err)
	if diff := cmp.Diff(map[vgpu.UID]time.Duration{"team/a": 0, "team/b": 50 * time.Second}, tandem); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	// The mean of GPUs in use is over both periods: one for 95 s, then one for 50 s, of 200 s.
	if r.Other.InUse != 145./200 {
		t.Errorf("%v GPUs are in use", r.Other.InUse)
	}
}

// TestGangsAcrossPeriods: a gang that runs with one of two members when a period begins gets its other member once there is room.
func TestGangsAcrossPeriods(t *testing.T) {
	nodes := []*vgpu.Node{node(t, "n1", 1)}
	member := func(p *shadow.Pod) { p.Gang = &shadow.Gang{Name: "team/g", MinCount: 2} }
	l := begun(t, config("tandem"), nodes)
	live(t, l, life{"g-0", 10, 0, 5, -1, "n1", member}, life{"g-1", 10, 0, -1, -1, "", member})
	must.OK(t, l.Begin(at(100), shadow.Inventory{Nodes: append(nodes, node(t, "n2", 1))}))
	if r := report(t, l, 200); r.OnlyTandem != 1 || r.Tandem.Waiting.Still != 0 {
		t.Errorf("%+v", r)
	}
}

// TestLateMembers: a pod that comes long after the first member of its gang is a pod by itself.
func TestLateMembers(t *testing.T) {
	member := func(p *shadow.Pod) { p.Gang = &shadow.Gang{Name: "team/g", MinCount: 1} }
	cfg := config("tandem")
	cfg.Gather = time.Minute
	l := begun(t, cfg, []*vgpu.Node{node(t, "n1", 3)})
	live(t, l, life{"g-0", 10, 0, 70, -1, "n1", member}, life{"g-1", 10, 60, 70, -1, "n1", member}, life{"g-2", 10, 61, 70, -1, "n1", member})
	r := report(t, l, 200)
	_, tandem, err := l.Starts(at(200))
	must.OK(t, err)
	want := map[vgpu.UID]time.Duration{"team/g-0": time.Minute, "team/g-1": time.Minute, "team/g-2": 61 * time.Second}
	if diff := cmp.Diff(want, tandem); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	wantUnknown(t, r, "1 late members of gangs")
}

// TestShortPods: a pod that ends in the second in which it was bound is no pod that stays for ever.
func TestShortPods(t *testing.T) {
	l := begun(t, config("tandem"), []*vgpu.Node{node(t, "n1", 1)})
	live(t, l, life{"a", 10, 0, 5, 5, "n1", nil}, life{"b", 10, 6, 7, -1, "n1", nil})
	_, tandem, err := l.Starts(at(100))
	must.OK(t, err)
	if diff := cmp.Diff(map[vgpu.UID]time.Duration{"team/a": 0, "team/b": 6 * time.Second}, tandem); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// TestFull: pods that came before the period do not fill it.
func TestFull(t *testing.T) {
	cfg := config("tandem")
	cfg.MaxPods = 2
	nodes := []*vgpu.Node{node(t, "n1", 1)}
	l := begun(t, cfg, nodes)
	live(t, l, life{"a", 10, 0, -1, -1, "", nil})
	if l.Full() {
		t.Error("one pod of two fills the period")
	}
	live(t, l, life{"b", 10, 1, -1, -1, "", nil})
	if !l.Full() {
		t.Error("two pods of two do not fill the period")
	}
	if err := l.Begin(at(10), shadow.Inventory{Nodes: nodes}); err != nil || l.Full() {
		t.Errorf("the pods of the period before fill this one, %v", err)
	}
}

// TestOldPeriodsGo: a period that ended longer ago than Keep is in no figure, and the report says that there was one.
func TestOldPeriodsGo(t *testing.T) {
	cfg := config("tandem")
	cfg.Keep = 90 * time.Second
	nodes := []*vgpu.Node{node(t, "n1", 1)}
	l := begun(t, cfg, nodes)
	live(t, l, life{"a", 10, 0, 20, 30, "n1", nil})
	for _, begin := range []int{50, 100, 150} {
		must.OK(t, l.Begin(at(begin), shadow.Inventory{Nodes: nodes}))
	}
	r := report(t, l, 200)
	if r.Periods != 3 || r.Dropped != 1 || r.Pods != 0 || !r.From.Equal(at(50)) {
		t.Errorf("%+v", r)
	}
}

// TestUnknown: a pod on a node without known GPUs, and a share without known GPUs that no GPU of its node has free.
func TestUnknown(t *testing.T) {
	l, err := shadow.New(config("tandem"))
	must.OK(t, err)
	bare := shadow.Unknown{What: "node n9", Why: "it has no label nvidia.com/gpu.count"}
	must.OK(t, l.Begin(at(0), shadow.Inventory{Nodes: []*vgpu.Node{node(t, "n1", 1)}, Unknown: []shadow.Unknown{bare}}))
	live(t, l, life{"a", 10, 0, 0, -1, "n9", nil}, life{"b", 6, 0, 0, -1, "n1", nil}, life{"c", 6, 0, 0, -1, "n1", nil})
	r := report(t, l, 100)
	wantUnknown(t, r, "node n9", "1 pods on other nodes", "1 pods without GPUs in the ledger")
	if r.Other.Allocated != 60 || r.OnlyOther != 1 {
		t.Errorf("%+v", r)
	}
}

// TestForeignPods: a pod of a third scheduler has its GPU in both worlds, and is in no figure of waiting.
func TestForeignPods(t *testing.T) {
	l := begun(t, config("tandem"), []*vgpu.Node{node(t, "n1", 1)})
	live(t, l, life{"f", 10, 0, 10, 60, "n1", func(p *shadow.Pod) { p.Foreign = true }}, life{"a", 10, 20, 80, -1, "n1", nil})
	r := report(t, l, 100)
	if r.Pods != 1 || r.Other.Waiting.P99Millis != 60_000 || r.Tandem.Waiting.P99Millis != 40_000 {
		t.Errorf("%+v", r)
	}
}

// TestSlowdown: two workloads with profiles share a GPU, and a third pod has one alone.
func TestSlowdown(t *testing.T) {
	cfg := config("packed")
	model, err := interference.ByName("default")
	must.OK(t, err)
	profile := interference.Profile{SM: .9, Bandwidth: .9}
	cfg.Neighbours = &placement.Neighbours{
		Model: model,
		Tenant: func(_ interference.Workload, _ string, part vgpu.MilliGPU) interference.Tenant {
			return profile.On(part)
		},
	}
	of := func(w uint32) func(*shadow.Pod) { return func(p *shadow.Pod) { p.Request.Workload = w } }
	l := begun(t, cfg, []*vgpu.Node{node(t, "n1", 2)})
	live(t, l, life{"a", 5, 0, 0, -1, "n1", of(1)}, life{"b", 5, 0, 0, -1, "n1", of(2)}, life{"c", 10, 0, 0, -1, "n1", nil})
	s := report(t, l, 100).Other.Slowdown
	if s.Mean <= 1 || s.KnownPercent != 100 || s.Why != "" {
		t.Errorf("the slowdown is %+v", s)
	}
}

func TestBadInput(t *testing.T) {
	for _, c := range []struct {
		change func(*shadow.Config)
		want   string
	}{
		{func(c *shadow.Config) { c.Queue = 0 }, "queue drop, legal are skip and fifo"},
		{func(c *shadow.Config) { c.RenewMix = -1 }, "renew mix -1ns, legal is 0s or more"},
		{func(c *shadow.Config) { c.Gather = -1 }, "gather -1ns, legal is 0s or more"},
		{func(c *shadow.Config) { c.Keep = 0 }, "keep 0s, legal is above 0s"},
		{func(c *shadow.Config) { c.MaxPods = 0 }, "max pods 0, legal is 1 or more"},
		{func(c *shadow.Config) { c.MaxExamples = -1 }, "max examples -1, legal is 0 or more"},
	} {
		cfg := config("tandem")
		c.change(&cfg)
		if _, err := shadow.New(cfg); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("want %q, got %v", c.want, err)
		}
	}
	l, err := shadow.New(config("tandem"))
	must.OK(t, err)
	if _, err := l.Report(at(0)); err == nil {
		t.Error("there is a report before the first period")
	}
	if err := l.Begin(at(0), shadow.Inventory{}); err == nil {
		t.Error("a period begins without nodes")
	}
	l = begun(t, config("tandem"), []*vgpu.Node{node(t, "n1", 1)})
	if err := l.Created(shadow.Pod{Request: request("team/a", 0)}); err == nil {
		t.Error("a pod asks for no slots")
	}
	other := request("team/b", 1)
	if err := l.Created(shadow.Pod{Request: request("team/a", 1), Would: &other}); err == nil {
		t.Error("Tandem would place another pod")
	}
	if _, err := l.Report(at(-1)); err == nil {
		t.Error("there is a report of a time before the period")
	}
	if err := l.Begin(at(-1), shadow.Inventory{Nodes: []*vgpu.Node{node(t, "n1", 1)}}); err == nil {
		t.Error("a period begins before the present one")
	}
}

// TestClone: a clone does not have what is told later.
func TestClone(t *testing.T) {
	nodes := []*vgpu.Node{node(t, "n1", 2)}
	l := begun(t, config("tandem"), nodes)
	gang := &shadow.Gang{Name: "team/g", MinCount: 1}
	live(t, l, life{"a", 10, 0, -1, -1, "", func(p *shadow.Pod) { p.Gang = gang }})
	same := l.Clone()
	before := report(t, same, 100)
	gang.MinCount = 2
	live(t, l, life{"b", 10, 0, 0, 50, "n1", nil})
	l.Bound("team/a", "n1", vgpu.Assignment{}, at(10))
	l.Admit(0, nil)
	if diff := cmp.Diff(before, report(t, same, 100)); diff != "" {
		t.Errorf("the clone has changed:\n%s", diff)
	}
}
