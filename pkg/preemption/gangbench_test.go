package preemption_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/tandem-gpu/tandem/internal/testkit"
	"github.com/tandem-gpu/tandem/pkg/gang"
	"github.com/tandem-gpu/tandem/pkg/placement"
	"github.com/tandem-gpu/tandem/pkg/preemption"
	"github.com/tandem-gpu/tandem/pkg/vgpu"
)

// BenchmarkGang finds victims for gangs on full nodes of eight devices, in racks of sixteen nodes. On one core of the build machine
// it takes 40 to 200 ms.
func BenchmarkGang(b *testing.B) {
	policy, err := placement.ByName("packed")
	if err != nil {
		b.Fatal(err)
	}
	clusters := map[int]*benchCluster{}
	for _, ask := range []struct {
		name           string
		nodes, members int
		slots          vgpu.Slots
		required       []string
	}{
		{"64x1-GPU on 500 nodes", 500, 64, 10, nil},
		{"64x1-GPU in a rack of 500 nodes", 500, 64, 10, []string{"rack"}},
		{"8x1-GPU on a host of 500 nodes", 500, 8, 10, []string{"host"}},
		{"8x8-GPU on 5000 nodes", 5000, 8, 80, nil},
		{"8x8-GPU in a rack of 5000 nodes", 5000, 8, 80, []string{"rack"}},
	} {
		b.Run(ask.name, func(b *testing.B) {
			if clusters[ask.nodes] == nil {
				clusters[ask.nodes] = newBenchCluster(b, ask.nodes)
				clusters[ask.nodes].cluster.Levels = levels(clusters[ask.nodes].cluster.Nodes)
			}
			y := clusters[ask.nodes]
			want := &gang.Group{Name: "team/new", MinCount: ask.members, Wishes: gang.Wishes{Required: ask.required}}
			for i := range ask.members {
				r := testkit.Request(fmt.Sprint("team/new-", i), ask.slots)
				r.Priority = 10
				r.Host = vgpu.Room{MilliCPU: 4000, Memory: 16 * vgpu.GiB}
				want.Members = append(want.Members, gang.Member{Request: *r, Rank: i})
			}
			b.ReportAllocs()
			start := cpuTime(b)
			var plan preemption.Plan
			cfg := preemption.Config{Config: gang.Config{Policy: policy}, Prices: preemption.DefaultPrices()}
			for b.Loop() {
				if plan, err = preemption.Victims(&y.cluster, want, &y.who, cfg); err != nil || plan.Places == nil {
					b.Fatal(err, plan.Refused)
				}
			}
			b.ReportMetric(float64(cpuTime(b)-start)/float64(b.N)/float64(time.Millisecond), "cpu-ms/op")
			b.ReportMetric(float64(plan.Stats.Steps), "steps")
			b.ReportMetric(float64(plan.Cost.Victims), "victims")
			b.ReportMetric(float64(plan.Cost.Lost)/1e9, "lost")
		})
	}
}

// levels puts sixteen nodes in a rack.
func levels(nodes []*vgpu.Node) []gang.Level {
	racks, hosts := gang.Level{Key: "rack"}, gang.Level{Key: "host"}
	for i, n := range nodes {
		if i%16 == 0 {
			racks.Names = append(racks.Names, fmt.Sprintf("r%03d", i/16))
		}
		racks.Domain = append(racks.Domain, int32(i/16))
		hosts.Domain, hosts.Names = append(hosts.Domain, int32(i)), append(hosts.Names, n.Name())
	}
	return []gang.Level{racks, hosts}
}
