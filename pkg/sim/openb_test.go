package sim_test

import (
	"cmp"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/tandem-gpu/tandem/internal/traces"
	"github.com/tandem-gpu/tandem/pkg/fragmentation"
	"github.com/tandem-gpu/tandem/pkg/placement"
	"github.com/tandem-gpu/tandem/pkg/sim"
	"github.com/tandem-gpu/tandem/pkg/vgpu"
)

// openb returns the nodes and pods of Alibaba's openb trace (EXPERIMENTS E1) in the order of a seed, at 1.3 times the
// capacity.
func openb(tb testing.TB, seed int64) sim.Setup {
	tb.Helper()
	data := os.Getenv("TANDEM_DATA")
	if data == "" {
		tb.Skip("TANDEM_DATA names no folder with the openb trace")
	}
	load := func(name string) *traces.Trace {
		t, err := traces.Load(filepath.Join(data, "openb_fgd", name))
		if err != nil {
			tb.Fatal(err)
		}
		return t
	}
	hosts := load("openb_node_list_gpu_node.csv").Hosts
	pods := load("openb_pod_list_default.csv").Jobs
	slices.SortFunc(hosts, func(a, b traces.Host) int { return cmp.Compare(a.Name, b.Name) })
	capacity := int64(0)
	for i := range hosts {
		capacity += int64(hosts[i].Devices) * 1000
	}
	order, rank, err := traces.Arrivals(pods, len(hosts), capacity, seed, 1.3)
	if err != nil {
		tb.Fatal(err)
	}
	s := sim.Setup{Seed: seed}
	for i := range hosts {
		hosts[i].Name = fmt.Sprintf("%04d-%s", rank[i], hosts[i].Name)
		n, err := hosts[i].Node(traces.SlotsPerDevice)
		if err != nil {
			tb.Fatal(err)
		}
		s.Nodes = append(s.Nodes, n)
	}
	for i := range order {
		r, err := order[i].Request(vgpu.UID(order[i].Name))
		if err != nil {
			tb.Fatal(err)
		}
		s.Jobs = append(s.Jobs, sim.Job{Request: r})
	}
	var kinds []fragmentation.Kind
	for i := range pods {
		r, err := pods[i].Request("kind")
		if err != nil {
			tb.Fatal(err)
		}
		kinds = append(kinds, sim.KindOf(&r))
	}
	mix, err := fragmentation.NewMix(kinds)
	if err != nil {
		tb.Fatal(err)
	}
	s.Mix = mix
	return s
}

// BenchmarkOpenb is a run of E1 by every policy. Wanted are 2 s and 200 MiB.
func BenchmarkOpenb(b *testing.B) {
	s := openb(b, 42)
	for _, name := range placement.Policies() {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			p, err := placement.ByName(name)
			if err != nil {
				b.Fatal(err)
			}
			s.Policy = p
			for b.Loop() {
				h, err := sim.Run(s)
				if err != nil {
					b.Fatal(err)
				}
				allocated, _ := h.AllocatedAt(130)
				lost, _ := h.FragmentationAt(80)
				b.ReportMetric(allocated, "allocated-%")
				b.ReportMetric(lost, "fragmented-%")
			}
		})
	}
}
