package learning

import (
	"fmt"
	"runtime"
	"testing"
	"time"

	"github.com/tandem-gpu/tandem/internal/cluster/workloads"
	"github.com/tandem-gpu/tandem/pkg/api/v1alpha1"
	"github.com/tandem-gpu/tandem/pkg/interference"
	"github.com/tandem-gpu/tandem/pkg/vgpu"
)

// keyOf is a workload of a Deployment.
func keyOf(i int) workloads.WorkloadKey {
	return workloads.WorkloadKey{
		Namespace: fmt.Sprintf("team-%d", i%50), OwnerKind: "Deployment.apps", OwnerName: fmt.Sprintf("inference-server-%d", i),
		Images: fmt.Sprintf("%q", fmt.Sprintf("registry.example.com/team/inference-server@sha256:%064d", i)),
	}
}

// profileOf is the WorkloadProfile that the scheduler wrote for a workload.
func profileOf(tb testing.TB, key workloads.WorkloadKey, models ...string) *v1alpha1.WorkloadProfile {
	tb.Helper()
	p, err := workloads.LearnedProfile(key)
	if err != nil {
		tb.Fatal(err)
	}
	var learned []workloads.Learned
	for _, m := range models {
		learned = append(learned, workloads.Learned{
			Model: m, Known: workloads.Known{SM: true, Bandwidth: true, Memory: true}, SM: .8, Bandwidth: .4, Memory: 8 << 30,
			SoloObservations: 20, SoloRate: 120 * unit, SoloShare: 500, Neighbours: 3, LastObserved: newClock().now.Add(-time.Hour),
			Traits: interference.Traits{Sensitivity: .3, Pressure: -.2, Offset: .01, SureSensitivity: .9, SurePressure: .8, SureOffset: .5, CoRuns: 40},
		})
	}
	p.Status = workloads.LearnedStatus(p.Status, learned)
	return p
}

// manyWorkloads returns a learner that knows so many workloads as well as it knows any: from WorkloadProfiles that it made, and
// with as many co-runs as it remembers.
func manyWorkloads(tb testing.TB, workloads int) *Learner {
	tb.Helper()
	l := New(Options{Model: model(tb, "default"), MaxProfiles: workloads, Clock: newClock().time})
	for i := range workloads {
		l.Profile(profileOf(tb, keyOf(i), a100))
	}
	l.Snapshot()
	for round := range 36 {
		for i := range workloads {
			a, b := interference.Workload(1+i), interference.Workload(1+(i+1+7*round)%workloads)
			if err := l.book.Observe(interference.Observation{
				GPU: 1, Owner: l.workloads[a].owner, Speed: .8, Of: interference.Runner{Workload: a, Cap: 500},
				Beside: []interference.Runner{{Workload: b, Cap: 500}},
			}); err != nil {
				tb.Fatal(err)
			}
		}
	}
	for _, w := range l.workloads {
		r := w.records[0]
		for range maxValues {
			r.sm.add(.8)
			r.bandwidth.add(.4)
			r.rates[0].alone.add(120)
		}
		l.dirty[w.number] = true
	}
	l.show()
	return l
}

// All that is kept of 10,000 workloads takes 24 MiB at most: names, estimates, book and snapshot. It is measured with 2,000
// workloads, since it grows in proportion.
func TestWorkloadsAreSmall(t *testing.T) {
	const workloads, most = 2000, 24 << 20 / 10_000
	var before, after runtime.MemStats
	manyWorkloads(t, 100)
	runtime.GC()
	runtime.GC()
	runtime.ReadMemStats(&before)
	l := manyWorkloads(t, workloads)
	runtime.GC()
	runtime.GC()
	runtime.ReadMemStats(&after)
	if s := l.Snapshot(); len(s.views) != workloads || l.book.Len() != workloads {
		t.Fatalf("%d views, %d in the book", len(s.views), l.book.Len())
	}
	bytes := (float64(after.HeapAlloc) - float64(before.HeapAlloc)) / workloads
	t.Logf("%.0f bytes per workload: %.1f MiB for 10,000", bytes, bytes*10_000/(1<<20))
	if bytes > most {
		t.Errorf("a workload takes %.0f bytes, legal are %d", bytes, most)
	}
	runtime.KeepAlive(l)
}

func TestTenantAllocatesNothing(t *testing.T) {
	s := manyWorkloads(t, 50).Snapshot()
	var out interference.Tenant
	for model, w := range map[string]interference.Workload{a100: 7, "unseen": 7, "": 0} {
		if n := testing.AllocsPerRun(100, func() { out = s.Tenant(w, model, 500) }); n != 0 {
			t.Errorf("%s: %v allocations", model, n)
		}
	}
	if out.Cap != .5 {
		t.Errorf("cap %v", out.Cap)
	}
}

func BenchmarkTenant(b *testing.B) {
	s := manyWorkloads(b, 2000).Snapshot()
	var out interference.Tenant
	w := interference.Workload(0)
	for b.Loop() {
		w = w%2000 + 1
		out = s.Tenant(w, a100, vgpu.MilliGPU(500))
	}
	_ = out
}

// BenchmarkShow: one workload among 10,000 was observed.
func BenchmarkShow(b *testing.B) {
	l := New(Options{Model: model(b, "default"), MaxProfiles: 10_000, Clock: newClock().time})
	for i := range 10_000 {
		l.Profile(profileOf(b, keyOf(i), a100))
	}
	l.Snapshot()
	for b.Loop() {
		l.dirty[1] = true
		l.show()
	}
}
