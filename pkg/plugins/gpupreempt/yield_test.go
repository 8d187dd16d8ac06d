package gpupreempt

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/tandem-gpu/tandem/pkg/api/v1alpha1"
	"github.com/tandem-gpu/tandem/test/fakecluster"
)

// wholeMember returns a member of a gang of whole GPUs.
func wholeMember(gang, name string, least int, change func(*v1.Pod)) *v1.Pod {
	p := fakecluster.Join(gang, least, fakecluster.Pod(name, 10))[0]
	p.UID = types.UID("uid-" + name)
	if change != nil {
		change(p)
	}
	return p
}

// TestBrokenGangsGiveWay has two gangs hold half of what the other one needs after the loss of a node: the gang that waits less
// gives way, after the deadline of placements.
func TestBrokenGangsGiveWay(t *testing.T) {
	never, high := v1.PreemptNever, int32(1)
	tests := map[string]struct {
		// a and b change the members of the two gangs, of which a waits longer.
		a, b func(*v1.Pod)
		// whole is the gang that runs in the end, "" for none.
		whole string
	}{
		"the one that waits less":          {nil, nil, "a"},
		"the one that never preempts":      {func(p *v1.Pod) { p.Spec.PreemptionPolicy = &never }, nil, "b"},
		"the other never preempts":         {nil, func(p *v1.Pod) { p.Spec.PreemptionPolicy = &never }, "a"},
		"neither, where none may":          {func(p *v1.Pod) { p.Spec.PreemptionPolicy = &never }, func(p *v1.Pod) { p.Spec.PreemptionPolicy = &never }, ""},
		"the one of the lower priority":    {nil, func(p *v1.Pod) { p.Spec.Priority = &high }, "b"},
		"the one of the lower priority, b": {func(p *v1.Pod) { p.Spec.Priority = &high }, nil, "a"},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c := newCluster(t, 2, 2)
				on := func(node string, change func(*v1.Pod)) func(*v1.Pod) {
					return func(p *v1.Pod) {
						p.Spec.NodeSelector = map[string]string{v1.LabelHostname: node}
						if change != nil {
							change(p)
						}
					}
				}
				for i := range 2 {
					node := fmt.Sprint("n", i+1)
					c.Create(wholeMember("a", fmt.Sprint("a-", i), 2, on(node, tc.a)), wholeMember("b", fmt.Sprint("b-", i), 2, on(node, tc.b)))
				}
				c.AwaitBound("a", 2)
				c.AwaitBound("b", 2)
				c.RemoveNode("n2")
				c.Remove("a-1", "b-1")
				time.Sleep(time.Minute)
				c.Create(wholeMember("a", "a-again", 2, tc.a))
				time.Sleep(time.Minute)
				c.Create(wholeMember("b", "b-again", 2, tc.b))
				if tc.a == nil && tc.b == nil {
					c.AwaitMessage("a-again", "gang default/b lacks members too, and can be evicted for this gang in ")
					c.AwaitMessage("b-again", "the gang can be evicted for gang default/a in ")
					time.Sleep(4 * time.Minute)
					if got := c.victims(); len(got) != 0 {
						t.Fatalf("%v are evicted before the deadline", got)
					}
				}
				time.Sleep(10 * time.Minute)
				if tc.whole == "" {
					if got := c.victims(); len(got) != 0 {
						t.Errorf("%v are evicted", got)
					}
					return
				}
				other := map[string]string{"a": "b", "b": "a"}[tc.whole]
				if got := strings.Join(c.victims(), " "); got != other+"-0" {
					t.Fatalf("evicted are %q, want %s-0", got, other)
				}
				c.Remove(other + "-0")
				c.AwaitBound(tc.whole, 2)
				c.Create(wholeMember(other, other+"-anew", 2, map[string]func(*v1.Pod){"a": tc.a, "b": tc.b}[other]))
				time.Sleep(30 * time.Minute)
				if got := c.victims(); len(got) != 1 || len(c.Bound(other)) != 0 {
					t.Errorf("evicted are %v and bound %v after the gang has its members", got, c.Bound(other))
				}
				c.Remove(tc.whole+"-0", tc.whole+"-again")
				c.AwaitBound(other, 2)
			})
		})
	}
}

// TestNothingWaitsInACycle loses nodes under random gangs of whole GPUs, makes their members anew, and waits: after that no gang that
// lacks members fits into what is free together with what another one holds that lacks members too.
func TestNothingWaitsInACycle(t *testing.T) {
	for seed := range 25 {
		synctest.Test(t, func(t *testing.T) {
			r := rand.New(rand.NewPCG(uint64(seed), 1))
			nodes := make([]int, 2+r.IntN(3))
			var places []string
			for i := range nodes {
				nodes[i] = 1 + r.IntN(4)
				places = append(places, slices.Repeat([]string{fmt.Sprint("n", i+1)}, nodes[i])...)
			}
			total := len(places)
			c := newCluster(t, nodes...)
			r.Shuffle(total, func(i, k int) { places[i], places[k] = places[k], places[i] })
			sizes := map[string]int{}
			for len(places) > 0 {
				name, size := fmt.Sprint("g", len(sizes)), 1+r.IntN(min(len(places), 5))
				sizes[name] = size
				for i := range size {
					c.Create(wholeMember(name, fmt.Sprint(name, "-", i), size, func(p *v1.Pod) { p.Spec.NodeSelector = map[string]string{v1.LabelHostname: places[i]} }))
				}
				c.AwaitBound(name+"-", size)
				places = places[size:]
			}
			again := 0
			remake := func(gang string) {
				c.Create(wholeMember(gang, fmt.Sprint(gang, "-again-", again), sizes[gang], nil))
				again++
			}
			lost := fmt.Sprint("n", 1+r.IntN(len(nodes)))
			c.RemoveNode(lost)
			for _, p := range c.Pods() {
				if p.Spec.NodeName == lost {
					c.Remove(p.Name)
					time.Sleep(time.Duration(r.IntN(60)) * time.Second)
					remake(p.Labels[v1alpha1.LabelGang])
				}
			}
			for range 60 { // victims end, and come again
				time.Sleep(time.Minute)
				for _, p := range c.Pods() {
					if p.DeletionTimestamp != nil {
						c.Remove(p.Name)
						remake(p.Labels[v1alpha1.LabelGang])
					}
				}
			}
			free, bound := total-nodes[lost[1]-'1'], map[string]int{}
			for _, p := range c.Pods() {
				if p.Spec.NodeName != "" {
					free--
					bound[p.Labels[v1alpha1.LabelGang]]++
				}
			}
			for a, has := range bound {
				if has < sizes[a] && sizes[a]-has <= free {
					t.Errorf("seed %d: gang %s has %d of %d members, and %d GPUs are free", seed, a, has, sizes[a], free)
				}
				for b, holds := range bound {
					if a != b && has < sizes[a] && holds < sizes[b] && sizes[a]-has <= free+holds {
						t.Errorf("seed %d: gangs %s (%d of %d) and %s (%d of %d) wait for each other with %d GPUs free", seed, a, has, sizes[a], b, holds, sizes[b], free)
					}
				}
			}
		})
	}
}
