package learning

import (
	"math"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/tandem-gpu/tandem/internal/cluster/workloads"
	"github.com/tandem-gpu/tandem/pkg/api/v1alpha1"
	"github.com/tandem-gpu/tandem/test/fakegpu"
)

func near(t *testing.T, what string, got, want, by float64) {
	t.Helper()
	if math.IsNaN(got) || math.Abs(got-want) > by {
		t.Errorf("%s is %v, want %v ± %v", what, got, want, by)
	}
}

// two are jobs that slow each other down: by 1.5 and 1.2.
func two() (a, b *job) {
	a = &job{name: "a-0", cap: 1000, rate: 100, hidden: fakegpu.Hidden{SM: .8, Bandwidth: .4, Sensitivity: 1, Pressure: .4}}
	b = &job{name: "b-0", cap: 1000, rate: 7, hidden: fakegpu.Hidden{SM: .6, Bandwidth: .3, Sensitivity: .5, Pressure: .5}}
	return a, b
}

func (w *world) record(j *job) *record {
	return w.learner.workloads[w.number(j)].records[0]
}

func TestAloneIsLearned(t *testing.T) {
	w := newWorld(t, 2, Options{})
	a, b := two()
	b.cap = 500 // of the 0.6 that it wants: speed 0.5/0.6
	w.place(0, a)
	w.place(1, b)
	w.run(defaultWarmUp + time.Minute)
	if w.learner.counts.solo != 0 {
		t.Errorf("%d observations within the warm-up", w.learner.counts.solo)
	}
	w.run(10 * time.Minute)
	if n := w.record(a).solo; n < fewValues || n > 6 {
		t.Errorf("%d observations in 11 minutes", n)
	}
	near(t, "SM", w.record(a).sm.mean(), .8, .01)
	near(t, "bandwidth", w.record(a).bandwidth.mean(), .4, .01)
	near(t, "rate", w.record(a).under(1000).alone.mean(), 100, 1)
	near(t, "SM behind a cap", w.record(b).sm.mean(), 1, 0)
	near(t, "rate under a cap", w.record(b).under(500).alone.mean(), 7*.5/.6, .1)
	if got := w.record(a).memory; got != 1<<30 {
		t.Errorf("memory %v", got)
	}
	profile := w.learner.Snapshot().Tenant(w.number(a), a100, 1000)
	near(t, "SM in the snapshot", profile.SM, .8, .01)
	if profile.Guessed {
		t.Error("an observed profile is a guess")
	}
}

// A pod that is never alone has the bandwidth that the others leave, and the SM utilisation that the driver tells.
func TestBandwidthByDifference(t *testing.T) {
	w := newWorld(t, 1, Options{})
	a, b := two()
	w.place(0, a)
	w.run(15 * time.Minute)
	w.place(0, a, b)
	w.run(20 * time.Minute)
	r := w.record(b)
	if r.bandwidth.known() || r.sm.known() {
		t.Fatal("it was never alone")
	}
	// It takes 0.3/1.2 at its speed, which nobody knows: that is taken for its own.
	near(t, "bandwidth", r.bandwidthBeside.mean(), .25, .02)
	near(t, "SM", r.smBeside.mean(), .5, .02)
	w.place(0, b)
	w.run(15 * time.Minute)
	near(t, "bandwidth once alone", w.learner.learned(w.learner.workloads[w.number(b)], r).Bandwidth, .3, .01)
}

// Before the rate alone is known the speed is relative to a guess; then what was observed is corrected.
func TestLateRateAlone(t *testing.T) {
	w := newWorld(t, 2, Options{})
	a, b := two()
	w.place(0, b)
	w.run(20 * time.Minute)
	w.place(0, a, b)
	w.run(20 * time.Minute)
	before := w.predict(a, b)[0]
	w.place(1, a)
	w.place(0)
	w.run(20 * time.Minute)
	w.place(0, a, b)
	w.place(1)
	w.run(20 * time.Minute)
	after := w.predict(a, b)[0]
	if math.Abs(after-1.5) >= math.Abs(before-1.5) {
		t.Errorf("slowdown %v before the rate alone was known and %v after, 1.5 is true", before, after)
	}
	near(t, "slowdown", after, 1.5, .1)
}

// A declared throughput is the rate alone where nothing was measured, unless it is in another unit.
func TestDeclaredThroughput(t *testing.T) {
	for rate, sure := range map[string]bool{"100": true, "1M": false} {
		w := newWorld(t, 1, Options{})
		a, b := two()
		p := &v1alpha1.WorkloadProfile{ObjectMeta: metav1.ObjectMeta{Namespace: "team-a", Name: "a-0"}}
		p.Spec.Throughputs = []v1alpha1.ProfileThroughput{{Model: a100, SharePercent: 100, Rate: new(resource.MustParse(rate))}}
		w.learner.Profile(p)
		w.place(0, a, b)
		named := w.gpus[0].running[0].pod
		w.learner.PodGone(named.UID)
		named.Labels[v1alpha1.LabelProfile] = "a-0"
		w.learner.Pod(named)
		w.run(10 * time.Minute)
		number := w.learner.Snapshot().Number(named)
		r := w.learner.workloads[number].records[0]
		if got := r.rates[0].base == 100; got != sure {
			t.Errorf("declared %s: speeds are parts of %v", rate, r.rates[0].base)
		}
		if tr := w.learner.book.Traits(number, r.gpu); (tr.SureOffset > 0) != sure || tr.CoRuns == 0 {
			t.Errorf("declared %s: %+v", rate, tr)
		}
	}
}

// A wrong report teaches nothing, is counted, and ends neither the process nor what was known.
func TestAbsurdTelemetry(t *testing.T) {
	w := newWorld(t, 1, Options{})
	a, b := two()
	w.place(0, a, b)
	w.run(4 * time.Minute)
	base := w.current(0, w.gpus[0])
	send := func(change func(*v1alpha1.GPUDevice)) {
		d := *base.DeepCopy()
		change(&d)
		g := &v1alpha1.GPUNode{ObjectMeta: metav1.ObjectMeta{Name: "n1"}}
		g.Status.Devices = []v1alpha1.GPUDevice{d}
		w.learner.GPUNode(g)
		w.clock.now = w.clock.now.Add(time.Minute)
		w.learner.step(w.clock.now)
	}
	rate := func(s string) func(*v1alpha1.GPUDevice) {
		return func(d *v1alpha1.GPUDevice) { d.Tenants[0].Rate = new(resource.MustParse(s)) }
	}
	for reason, change := range map[string]func(*v1alpha1.GPUDevice){
		"a rate of 0": rate("0"), "a negative rate": rate("-5"), "a huge rate": rate("1e300"), "a rate of 1E": rate("1E"),
		"SM above 100": func(d *v1alpha1.GPUDevice) { d.Tenants[0].SMUtilizationPercent = new(int32(101)) },
		"SM below 0":   func(d *v1alpha1.GPUDevice) { d.Usage.MemoryBandwidthPercent = -1 },
		"more memory than there is": func(d *v1alpha1.GPUDevice) {
			d.Tenants[0].MemoryUsed = resource.NewQuantity(2*memory, resource.BinarySI)
		},
		"less than none": func(d *v1alpha1.GPUDevice) { d.Tenants[0].MemoryUsed = resource.NewQuantity(-1, resource.BinarySI) },
	} {
		before := w.learner.counts.dropped[dropAbsurd] + w.learner.counts.dropped[dropZero]
		send(change)
		if w.learner.counts.dropped[dropAbsurd]+w.learner.counts.dropped[dropZero] == before {
			t.Errorf("%s is not counted", reason)
		}
	}
	send(func(d *v1alpha1.GPUDevice) { d.Tenants, d.Usage = nil, nil })
	send(func(d *v1alpha1.GPUDevice) { d.Tenants = append(d.Tenants, d.Tenants...) })
	for _, r := range w.learner.workloads {
		for _, r := range r.records {
			if k := r.memory; k > memory || k < 0 {
				t.Errorf("memory %v", k)
			}
		}
	}
	for _, slowdown := range w.predict(a, b) {
		if math.IsNaN(slowdown) || slowdown < 1 || slowdown > 10 {
			t.Errorf("slowdown %v", slowdown)
		}
	}
}

// An interval that is not about known pods alone, or is too old, teaches nothing.
func TestIntervalsThatTeachNothing(t *testing.T) {
	a, b := two()
	c := &job{name: "c-0", cap: 1000, rate: 3, hidden: fakegpu.Hidden{SM: .2, Bandwidth: .1, Sensitivity: .5, Pressure: .2}}
	for reason, prepare := range map[string]func(*world){
		dropUnknownPod: func(w *world) { w.place(0, a, b); w.learner.PodGone(w.gpus[0].running[0].pod.UID) },
		dropOtherNode: func(w *world) {
			w.place(0, a, b)
			elsewhere := w.gpus[0].running[0].pod.DeepCopy()
			elsewhere.Spec.NodeName = "n2"
			w.learner.Pod(elsewhere)
		},
		dropCrowded: func(w *world) { w.place(0, a, b, a, b, c, c) },
		dropNoRate: func(w *world) {
			silent := *a
			silent.rate = 0
			w.place(0, &silent, b)
		},
		dropForeign: func(w *world) {
			w.place(0, a, b)
			w.foreign = memory / 2
		},
		dropSeveral: func(w *world) {
			w.place(0, a, b)
			p := w.learner.pods[w.gpus[0].running[0].pod.UID]
			p.shares = append(p.shares, share{"GPU-other", 1000})
		},
	} {
		w := newWorld(t, 1, Options{})
		prepare(w)
		w.run(10 * time.Minute)
		if w.learner.counts.dropped[reason] == 0 {
			t.Errorf("%s is not counted: %v", reason, w.learner.counts)
		}
		if got := w.coRuns(a); got > 0 {
			t.Errorf("%s: %d co-runs", reason, got)
		}
	}
}

// A node that falls silent teaches until what it said is stale, and a clock that jumps teaches nothing.
func TestSilenceAndClocks(t *testing.T) {
	w := newWorld(t, 1, Options{})
	a, b := two()
	w.place(0, a, b)
	w.run(10 * time.Minute)
	quiet := func(d time.Duration) {
		for ; d > 0; d -= tick {
			w.clock.now = w.clock.now.Add(tick)
			w.learner.step(w.clock.now)
		}
	}
	quiet(time.Hour)
	most := w.coRuns(a)
	if most == 0 || most > int((10*time.Minute+defaultStale)/defaultInterval) {
		t.Fatalf("%d co-runs", most)
	}
	quiet(time.Hour)
	w.clock.now = w.clock.now.Add(-5 * time.Hour)
	quiet(time.Hour)
	// Once the node speaks again it teaches again.
	behind := w.coRuns(a)
	for range 4 {
		w.publish()
		quiet(5 * time.Minute)
	}
	if got := w.coRuns(a); got < behind+5 {
		t.Errorf("%d co-runs within 20 minutes after the clock went back", got-behind)
	}
	most = w.coRuns(a)
	w.clock.now = w.clock.now.Add(24 * 365 * time.Hour)
	quiet(20 * time.Second)
	if got := w.coRuns(a); got > most+int(defaultStale/defaultInterval) {
		t.Errorf("%d co-runs, %d before the clock jumped", got, most)
	}
	// A node that is not ready, or is gone, says nothing.
	w.learner.GPUNode(&v1alpha1.GPUNode{ObjectMeta: metav1.ObjectMeta{Name: "n1"}, Status: v1alpha1.GPUNodeStatus{
		Devices: []v1alpha1.GPUDevice{w.current(0, w.gpus[0])}, Conditions: []metav1.Condition{{Type: "Ready", Status: "False"}},
	}})
	if len(w.learner.devices) != 0 {
		t.Error("devices of a node that is not ready are known")
	}
	w.publish()
	w.learner.GPUNodeGone("n1")
	if len(w.learner.devices) != 0 {
		t.Error("devices of a node that is gone are known")
	}
}

// A pod that counts in another unit is learned anew; its neighbour stays known.
func TestAnotherUnit(t *testing.T) {
	w := newWorld(t, 2, Options{})
	a, b := two()
	w.place(0, a)
	w.place(1, b)
	w.run(20 * time.Minute)
	w.place(1)
	w.place(0, a, b)
	w.run(20 * time.Minute)
	known := w.coRuns(b)
	a.rate *= 1000
	w.run(40 * time.Minute)
	if w.learner.counts.restarts != 1 || w.learner.counts.dropped[dropFar] < unitSure {
		t.Errorf("%+v", w.learner.counts)
	}
	if w.coRuns(b) <= known {
		t.Error("the neighbour was forgotten")
	}
	near(t, "harm to the neighbour", w.predict(a, b)[1], 1.2, .05)
}

// The WorkloadProfile has what was learned: a new process predicts the same, and goes on from there.
func TestRestart(t *testing.T) {
	w := newWorld(t, 2, Options{})
	a, b := two()
	w.place(0, a)
	w.place(1, b)
	w.run(20 * time.Minute)
	w.place(1)
	w.place(0, a, b)
	w.run(2 * time.Hour)
	before := w.predict(a, b)
	again := newWorld(t, 2, Options{})
	var written *v1alpha1.WorkloadProfile
	for _, j := range []*job{a, b} {
		old := w.learner.workloads[w.number(j)]
		p, err := workloads.LearnedProfile(workloads.WorkloadOf(podOf(t, j, 0, "")))
		if err != nil {
			t.Fatal(err)
		}
		p.Status = workloads.LearnedStatus(p.Status, w.learner.allLearned(old))
		again.learner.Profile(p)
		written = p
	}
	after := again.predict(a, b)
	near(t, "slowdown after a restart", after[0], before[0], .05)
	near(t, "the other one", after[1], before[1], .05)
	again.place(0, a, b)
	again.run(20 * time.Minute)
	after = again.predict(a, b)
	near(t, "slowdown after a restart and a co-run", after[0], before[0], .05)
	near(t, "the other one", after[1], before[1], .05)
	again.learner.Profile(written)
	if got := again.coRuns(b); got <= w.coRuns(b) {
		t.Errorf("%d co-runs, %d before the restart", got, w.coRuns(b))
	}
}

// A frozen learner takes what is declared and what was learned before, and no more.
func TestFrozen(t *testing.T) {
	w := newWorld(t, 1, Options{Frozen: true})
	w.learner.Profile(profileOf(t, keyOf(1), a100))
	a, b := two()
	w.place(0, a, b)
	w.run(time.Hour)
	s := w.learner.Snapshot()
	if w.learner.counts.coRuns+w.learner.counts.solo != 0 || !s.Known(1) || s.Tenant(1, a100, 1000).CoRuns != 40 {
		t.Errorf("%+v, known %v", w.learner.counts, s.Tenant(1, a100, 1000))
	}
}
