package sim_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/tandem-gpu/tandem/internal/testkit"
	"github.com/tandem-gpu/tandem/pkg/elastic"
	"github.com/tandem-gpu/tandem/pkg/sim"
	"github.com/tandem-gpu/tandem/pkg/vgpu"
)

// With the policy that goes by what jobs still take, the gang grows first that ends first by the gangs of its namespace that have ended.
// Without, the one grows first that came first.
func TestShortestGangGrowsFirst(t *testing.T) {
	add := func(s *sim.Setup, namespace, name string, sizes []int, members int, arrive, length time.Duration) {
		g := &sim.Gang{Name: namespace + "/" + name, Elastic: &sim.Elastic{Sizes: sizes, Curve: elastic.Curve{Growth: 1, Apart: 1}}}
		for i := range members {
			pod := fmt.Sprintf("%s/%s-%d", namespace, name, i)
			s.Jobs = append(s.Jobs, sim.Job{Arrive: arrive, Duration: length, Gang: g, Request: vgpu.Request{
				UID: vgpu.UID(pod), Pod: pod, Containers: []vgpu.ContainerRequest{{Name: "main", Slots: 10}},
			}})
		}
	}
	for policy, want := range map[string][2]int{"elastic-fifo": {4, 2}, "elastic-srjf": {2, 4}} {
		t.Run(policy, func(t *testing.T) {
			s := sim.Setup{Queue: sim.Skip, Nodes: []*vgpu.Node{testkit.Node(t, "n1", testkit.A100, 6)}}
			s.Elastic.Policy = policy
			for i := range 8 {
				from := time.Duration(i) * 11 * time.Hour
				add(&s, "slow", fmt.Sprintf("before-%d", i), []int{2}, 2, from, 10*time.Hour)
				add(&s, "quick", fmt.Sprintf("before-%d", i), []int{2}, 2, from, 10*time.Minute)
			}
			add(&s, "slow", "last", []int{2, 4}, 4, 100*time.Hour, 10*time.Hour)
			add(&s, "quick", "last", []int{2, 4}, 4, 100*time.Hour+time.Second, 10*time.Minute)
			h, err := sim.Run(s)
			if err != nil {
				t.Fatal(err)
			}
			var got [2]int
			for i, g := range h.Gangs[len(h.Gangs)-2:] {
				for _, size := range g.Sizes {
					if size.At < 100*time.Hour+time.Minute {
						got[i] = size.Workers
					}
				}
			}
			if got != want {
				t.Errorf("after a minute the slow gang and the quick one have %v members, want %v", got, want)
			}
		})
	}
}
