package shadow_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/tandem-gpu/tandem/pkg/shadow"
	"github.com/tandem-gpu/tandem/pkg/sim"
	"github.com/tandem-gpu/tandem/pkg/vgpu"
)

// BenchmarkReport makes the report of a period of a week.
func BenchmarkReport(b *testing.B) {
	for _, size := range []struct{ nodes, pods int }{{100, 5000}, {500, 20000}} {
		b.Run(fmt.Sprintf("%d nodes, %d pods", size.nodes, size.pods), func(b *testing.B) {
			w := workload{jobs: size.pods, slots: []vgpu.Slots{3, 5, 10, 10, 20, 40, 80}, within: 7 * 24 * time.Hour}
			s := w.draw(1)
			for i := range size.nodes {
				s.Nodes = append(s.Nodes, node(b, fmt.Sprintf("n%04d", i), 8))
			}
			s.RenewMix = time.Hour
			other := run(b, s, "spread", sim.Skip)
			cfg := config("tandem")
			cfg.MaxPods, cfg.RenewMix = size.pods+1, time.Hour
			l := begun(b, cfg, s.Nodes)
			facts(b, l, &s, other, 8*24*time.Hour)
			b.ResetTimer()
			for range b.N {
				var r *shadow.Report
				r, err := l.Report(zero.Add(8 * 24 * time.Hour))
				if err != nil || r.Pods != size.pods {
					b.Fatal(err)
				}
			}
		})
	}
}
