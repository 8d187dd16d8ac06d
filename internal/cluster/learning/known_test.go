package learning

import (
	"math"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/tandem-gpu/tandem/pkg/api/v1alpha1"
	"github.com/tandem-gpu/tandem/pkg/interference"
	"github.com/tandem-gpu/tandem/pkg/vgpu"
	"github.com/tandem-gpu/tandem/test/fakegpu"
)

// A pod that holds memory and does nothing is no neighbour.
func TestIdleNeighbour(t *testing.T) {
	w := newWorld(t, 1, Options{})
	a, idle := two()
	idle.hidden = fakegpu.Hidden{}
	w.place(0, a, idle)
	w.run(15 * time.Minute)
	if got := w.record(a).solo; got < fewValues || w.coRuns(a) > 0 {
		t.Errorf("%d observations alone, %d co-runs", got, w.coRuns(a))
	}
}

// The rate that a pod with several devices reports is the rate of none of them.
func TestSeveralDevicesAlone(t *testing.T) {
	w := newWorld(t, 1, Options{})
	a, _ := two()
	w.place(0, a)
	p := w.learner.pods[w.gpus[0].running[0].pod.UID]
	p.shares = append(p.shares, share{"GPU-other", 1000})
	w.run(15 * time.Minute)
	if r := w.record(a); r.solo < fewValues || len(r.rates) > 0 {
		t.Errorf("%d observations, rates %v", r.solo, r.rates)
	}
}

// A fifth of the values may be anything.
func TestEstimatesLeaveOutOutliers(t *testing.T) {
	var e estimate
	var p part
	if e.known() || p.known() || e.mean() != 0 || p.mean() != 0 {
		t.Error("nothing is known")
	}
	for i := range 2 * maxValues {
		v, u := 100., .5
		if i%6 == 2 {
			v, u = 1e6, 1
		}
		e.add(v)
		p.add(u)
	}
	if e.mean() != 100 || p.mean() != .5 {
		t.Errorf("means %v and %v", e.mean(), p.mean())
	}
	for range maxValues {
		e.add(50)
		p.add(.25)
	}
	if e.mean() != 50 || p.mean() != .25 {
		t.Errorf("means %v and %v after a change", e.mean(), p.mean())
	}
}

// A workload that nobody knows counts as sensitive as those on its GPU model are.
func TestStrangersAreAsSensitiveAsOthers(t *testing.T) {
	l := New(Options{Model: model(t, "default"), MaxProfiles: 50, Clock: newClock().time})
	for i := range 50 {
		l.Profile(profileOf(t, keyOf(i), a100))
	}
	l.step(l.options.Clock())
	s := l.Snapshot()
	if got := s.Tenant(0, a100, 1000); got.Level <= .05 || got.Sensitivity != got.Level || !got.Guessed {
		t.Errorf("%+v", got)
	}
	if got := s.Tenant(0, "unseen", 1000); got.Level != 0 || got.Sensitivity != 0 {
		t.Errorf("%+v", got)
	}
}

// A declaration is in the snapshot when Profile returns; a deleted one is forgotten with what was learned.
func TestDeclarations(t *testing.T) {
	l := New(Options{Model: model(t, "default"), MaxProfiles: 10, Clock: newClock().time})
	if s := l.Snapshot(); !s.Empty() || s.Known(1) || s.Known(0) || s.Number(&v1.Pod{}) != 0 {
		t.Error("an empty snapshot knows something")
	}
	a, _ := two()
	p := podOf(t, a, 1, "")
	p.Labels[v1alpha1.LabelProfile] = "bert"
	wp := &v1alpha1.WorkloadProfile{ObjectMeta: metav1.ObjectMeta{Namespace: p.Namespace, Name: "bert"}}
	wp.Spec.Uses = []v1alpha1.DeclaredUse{{Model: "*", SMUtilizationPercent: new(int32(30)), MemoryBandwidthPercent: new(int32(20)), Memory: new(resource.MustParse("3Gi"))}}
	l.Profile(wp)
	s := l.Snapshot()
	n := s.Number(p)
	if got := s.Tenant(n, a100, vgpu.WholeGPU); n == 0 || got.SM != .3 || got.Bandwidth != .2 || got.Guessed || !s.Known(n) {
		t.Fatalf("workload %d: %+v", n, got)
	}
	if memory, ok := s.Memory(n, a100); !ok || memory != 3<<30 || s.Workload(n) == nil {
		t.Errorf("memory %v, %v", memory, ok)
	}
	l.Pod(p)
	if l.Snapshot().Number(p) != n {
		t.Error("the number changed when the pod was seen")
	}
	l.ProfileGone(p.Namespace, "bert")
	if later := l.Snapshot(); later.Known(n) || later.Version() <= s.Version() || !s.Known(n) {
		t.Error("a deleted profile is known, or an old snapshot changed")
	}
	p = p.DeepCopy()
	delete(p.Labels, v1alpha1.LabelProfile)
	l.Pod(p)
	l.step(l.options.Clock())
	if got := l.Snapshot().Number(p); got == n || got == 0 {
		t.Errorf("without its label the pod is workload %d", got)
	}
	if _, ok := l.numbers.number(p.Namespace + "/bert"); ok {
		t.Error("a workload without pods and profile is remembered")
	}
}

// Workloads without pods and profiles are bounded, those observed longest ago go first.
func TestPrune(t *testing.T) {
	w := newWorld(t, 1, Options{MaxProfiles: 3})
	var jobs []*job
	for i := range 6 {
		j, _ := two()
		j.name = string(rune('a'+i)) + "-0"
		jobs = append(jobs, j)
		w.place(0, j)
		w.run(12 * time.Minute)
	}
	w.place(0)
	w.run(20 * time.Minute)
	s := w.learner.Snapshot()
	for i, j := range jobs {
		if got, want := s.Known(w.number(j)), i >= 3; got != want {
			t.Errorf("job %d: known %v, want %v", i, got, want)
		}
	}
	if len(w.learner.pods) != 0 || len(w.learner.workloads) != 3 || w.learner.book.Len() > 6 {
		t.Errorf("%d pods, %d workloads, %d in the book", len(w.learner.pods), len(w.learner.workloads), w.learner.book.Len())
	}
}

func TestCollector(t *testing.T) {
	w := newWorld(t, 1, Options{})
	a, b := two()
	w.place(0, a, b)
	w.run(10 * time.Minute)
	problems, err := testutil.CollectAndLint(w.learner.Collector())
	if err != nil || len(problems) > 0 {
		t.Errorf("%v, %v", problems, err)
	}
	if n := testutil.CollectAndCount(w.learner.Collector(), prefix+"observations_total"); n != 2 {
		t.Errorf("%d series", n)
	}
	for _, f := range Families() {
		if testutil.CollectAndCount(w.learner.Collector(), f.Name) == 0 {
			t.Errorf("%s is in the table and is not told", f.Name)
		}
	}
}

// A workload's claim to suffer makes neighbours be refused up to three times as early as its profile says, and no more.
func TestLiarIsBelievedInPart(t *testing.T) {
	w := newWorld(t, 2, Options{})
	a, b := two()
	a.lie = func(*job) float64 { return .1 }
	w.place(0, a)
	w.place(1, b)
	w.run(20 * time.Minute)
	w.place(1)
	w.place(0, a, b)
	w.run(2 * time.Hour)
	s := w.learner.Snapshot()
	liar, other := s.Tenant(w.number(a), a100, 1000), s.Tenant(w.number(b), a100, 1000)
	honest := liar
	honest.Traits, honest.Pairs = interference.Traits{Sensitivity: liar.Level, Level: liar.Level}, nil
	m := w.learner.options.Model
	loss := func(of interference.Tenant) float64 {
		return -math.Log(m.Predict([]interference.Tenant{of, other}, nil)[0].Speed)
	}
	// The pair itself may add 0.18 at most.
	if got, most := loss(liar.Believed()), 3*loss(honest)+.18; got > most {
		t.Errorf("the liar is believed to lose %v, most is %v", got, most)
	}
}
