package sim_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/tandem-gpu/tandem/internal/testkit"
	"github.com/tandem-gpu/tandem/pkg/elastic"
	"github.com/tandem-gpu/tandem/pkg/sim"
	"github.com/tandem-gpu/tandem/pkg/vgpu"
	"github.com/tandem-gpu/tandem/test/must"
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
	for _, test := range []struct {
		name, policy string
		slow, quick  time.Duration // when the last gangs arrive, after 100 hours
		want         [2]int        // members of the slow one and of the quick one
	}{
		{"by arrival", "elastic-fifo", 0, time.Second, [2]int{4, 2}},
		{"the shortest first", "elastic-srjf", 0, time.Second, [2]int{2, 4}},
		// By its age alone the quick one would have the longer time before it.
		{"the older one is the shortest", "elastic-srjf", 2 * time.Minute, 0, [2]int{2, 4}},
	} {
		t.Run(test.name, func(t *testing.T) {
			s := sim.Setup{Queue: sim.Skip, Nodes: []*vgpu.Node{testkit.Node(t, "n1", testkit.A100, 6)}}
			s.Elastic.Policy = test.policy
			for i := range 8 {
				from := time.Duration(i) * 11 * time.Hour
				add(&s, "slow", fmt.Sprintf("before-%d", i), []int{2}, 2, from, 10*time.Hour)
				add(&s, "quick", fmt.Sprintf("before-%d", i), []int{2}, 2, from, 10*time.Minute)
			}
			add(&s, "slow", "last", []int{2, 4}, 4, 100*time.Hour+test.slow, 10*time.Hour)
			add(&s, "quick", "last", []int{2, 4}, 4, 100*time.Hour+test.quick, 10*time.Minute)
			h, err := sim.Run(s)
			must.OK(t, err)
			var got [2]int
			for _, g := range h.Gangs {
				if !strings.HasSuffix(g.Name, "/last") {
					continue
				}
				i := 0
				if g.Name == "quick/last" {
					i = 1
				}
				for _, size := range g.Sizes {
					if size.At < 100*time.Hour+max(test.slow, test.quick)+time.Minute {
						got[i] = size.Workers
					}
				}
			}
			if got != test.want {
				t.Errorf("a minute after both have come the slow gang and the quick one have %v members, want %v", got, test.want)
			}
		})
	}
}

// The gang that says it is nearly done grows first. If gangs say nothing, the younger one is taken to end first.
func TestGangNearlyDoneGrowsFirst(t *testing.T) {
	for says, want := range map[bool][2]int{true: {4, 2}, false: {2, 4}} {
		s := sim.Setup{Queue: sim.Skip, Nodes: []*vgpu.Node{testkit.Node(t, "n1", testkit.A100, 6)}}
		s.Elastic.Policy = "elastic-srjf"
		for name, of := range map[string][2]time.Duration{"ns/early": {0, 6 * time.Hour}, "ns/late": {time.Hour, 30 * time.Hour}} {
			g := &sim.Gang{Name: name, Elastic: &sim.Elastic{Sizes: []int{2, 4}, Curve: elastic.Curve{Growth: 1, Apart: 1}, ReportsProgress: says}}
			for i := range 4 {
				pod := fmt.Sprintf("%s-%d", name, i)
				s.Jobs = append(s.Jobs, sim.Job{Arrive: of[0], Duration: of[1], Gang: g, Request: vgpu.Request{
					UID: vgpu.UID(pod), Pod: pod, Containers: []vgpu.ContainerRequest{{Name: "main", Slots: 10}},
				}})
			}
		}
		h, err := sim.Run(s)
		must.OK(t, err)
		got := map[string]int{}
		for _, g := range h.Gangs {
			for _, size := range g.Sizes {
				if size.At < 110*time.Minute {
					got[g.Name] = size.Workers
				}
			}
		}
		if got["ns/early"] != want[0] || got["ns/late"] != want[1] {
			t.Errorf("after 110 minutes of gangs that say their progress (%v) sizes are %v, want %v of the early one and the late one", says, got, want)
		}
	}
}
