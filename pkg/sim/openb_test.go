package sim_test

import (
	"path/filepath"
	"testing"

	"github.com/tandem-gpu/tandem/evaluation/experiment"
	"github.com/tandem-gpu/tandem/internal/simulator/traces"
	"github.com/tandem-gpu/tandem/pkg/placement"
	"github.com/tandem-gpu/tandem/pkg/sim"
	"github.com/tandem-gpu/tandem/test/must"
	"github.com/tandem-gpu/tandem/test/published"
)

// openb returns Alibaba's openb trace (EXPERIMENTS E1) in the order of a seed, at 1.3 times the capacity.
func openb(tb testing.TB, seed int64) sim.Setup {
	tb.Helper()
	data := published.Data(tb)
	load := func(name string) *traces.Trace {
		t, err := traces.Load(filepath.Join(data, "openb_fgd", name))
		must.OK(tb, err)
		return t
	}
	f := experiment.Filling{
		Nodes: load("openb_node_list_gpu_node.csv").Hosts, Pods: load("openb_pod_list_default.csv").Jobs, Inflate: 1.3,
	}
	s, err := f.Setup(seed)
	must.OK(tb, err)
	return s
}

// BenchmarkOpenb is a run of E1 by every policy. Wanted are 2 s and 200 MiB.
func BenchmarkOpenb(b *testing.B) {
	s := openb(b, 42)
	for _, name := range placement.Policies() {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			p, err := placement.ByName(name)
			must.OK(b, err)
			s.Policy = p
			for b.Loop() {
				h, err := sim.Run(s)
				must.OK(b, err)
				allocated, _ := h.AllocatedAt(130)
				lost, _ := h.FragmentationAt(80)
				b.ReportMetric(allocated, "allocated-%")
				b.ReportMetric(lost, "fragmented-%")
			}
		})
	}
}
