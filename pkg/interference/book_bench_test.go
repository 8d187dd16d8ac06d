package interference_test

import (
	"runtime"
	"testing"

	"github.com/tandem-gpu/tandem/pkg/interference"
	"github.com/tandem-gpu/tandem/pkg/vgpu"
	"github.com/tandem-gpu/tandem/test/must"
)

// full returns a book in which as many workloads have seen as many neighbourhoods as it keeps.
func full(tb testing.TB, workloads int) *interference.Book {
	tb.Helper()
	m, err := interference.ByName("default")
	must.OK(tb, err)
	book := interference.NewBook(m, workloads)
	for w := range workloads {
		must.OK(tb, book.Declare(interference.Workload(w+1), 1, interference.Profile{SM: .8, Bandwidth: .4}))
	}
	for round := range 36 {
		for w := range workloads {
			must.OK(tb, book.Observe(pairOf(w, (w+1+round*7)%workloads)))
		}
	}
	return book
}

// pairOf is a co-run of two workloads, counted from 0.
func pairOf(a, b int) interference.Observation {
	return interference.Observation{
		GPU: 1, Owner: interference.Owner(1 + a%5), Speed: .8,
		Of:     interference.Runner{Workload: interference.Workload(a + 1), Cap: vgpu.WholeGPU},
		Beside: []interference.Runner{{Workload: interference.Workload(b + 1), Cap: 500}},
	}
}

// BenchmarkObserve: one co-run among 10,000 workloads with full rows.
func BenchmarkObserve(b *testing.B) {
	const workloads = 10_000
	book := full(b, workloads)
	b.ReportAllocs()
	i := 0
	for b.Loop() {
		i++
		must.OK(b, book.Observe(pairOf(i%workloads, (i*31+7)%workloads)))
	}
}

// BenchmarkEvict: each co-run is one of new workloads, for which the book drops the oldest of 10,000.
func BenchmarkEvict(b *testing.B) {
	book := full(b, 10_000)
	b.ReportAllocs()
	i := 10_000
	for b.Loop() {
		i += 2
		must.OK(b, book.Observe(pairOf(i, i+1)))
	}
}

// bytesOf returns the bytes of the value that keep returns.
func bytesOf(tb testing.TB, keep func() any) float64 {
	tb.Helper()
	var before, after runtime.MemStats
	runtime.GC()
	runtime.GC()
	runtime.ReadMemStats(&before)
	kept := keep()
	runtime.GC()
	runtime.GC()
	runtime.ReadMemStats(&after)
	runtime.KeepAlive(kept)
	return float64(after.HeapAlloc) - float64(before.HeapAlloc)
}

// A workload of which all is full takes about 1,500 bytes. The promise of 24 MiB for 10,000 workloads is for all that is known of
// them, of which this is the greater part.
func TestBookIsSmall(t *testing.T) {
	const workloads, most = 2000, 1600
	bytes := bytesOf(t, func() any { return full(t, workloads) }) / workloads
	t.Logf("%.0f bytes per workload", bytes)
	if bytes > most {
		t.Errorf("a workload takes %.0f bytes, legal are %d", bytes, most)
	}
}
