package experiment

import (
	"runtime"
	"syscall"
	"testing"
	"time"
)

// These bound the cost of a run of the published experiment on one core that does nothing else.
const (
	maxSeconds = 2   // 0.5 s of processor time were measured
	maxMiB     = 200 // 87 MiB were measured
)

// BenchmarkFilling is one run of the published experiment on one core: its time, and the peak memory of the process,
// traces and test included. It fails beyond what is allowed.
func BenchmarkFilling(b *testing.B) {
	for _, policy := range []string{"fgd", "tandem"} {
		b.Run(policy, func(b *testing.B) {
			defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1))
			f := openb(b, "default")
			f.Policies, f.Seeds = []string{policy}, []int64{42}
			began := time.Now()
			for b.Loop() {
				if _, err := f.Run(); err != nil {
					b.Fatal(err)
				}
			}
			seconds := time.Since(began).Seconds() / float64(b.N)
			var use syscall.Rusage
			if err := syscall.Getrusage(syscall.RUSAGE_SELF, &use); err != nil {
				b.Fatal(err)
			}
			mib := float64(use.Maxrss) / 1024
			b.ReportMetric(seconds, "s/run")
			b.ReportMetric(mib, "MiB-peak")
			if seconds > maxSeconds || mib > maxMiB {
				b.Errorf("a run takes %.2f s and %.0f MiB, allowed are %d s and %d MiB", seconds, mib, maxSeconds, maxMiB)
			}
		})
	}
}
