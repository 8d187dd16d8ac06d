package sim

import (
	"cmp"
	"fmt"
	"math"
	"slices"

	"github.com/tandem-gpu/tandem/pkg/placement"
	"github.com/tandem-gpu/tandem/pkg/preemption"
	"github.com/tandem-gpu/tandem/pkg/vgpu"
)

// The defaults of the plugin's arguments bound the nodes with candidates. The plugin stops at
// minCandidateNodesPercentage of the nodes that evictions may help on, and at minCandidateNodesAbsolute at least.
const (
	MinCandidateNodesPercentage = 10
	MinCandidateNodesAbsolute   = 100
)

// InTree is a model of DefaultPreemption, the plugin of the stock scheduler, for one pod. The plugin looks at each node
// by itself, and at no more nodes than its default arguments say. It knows no gangs, no guards and no lost work, and
// takes a leaving pod for a possible victim. See
// https://kubernetes.io/docs/concepts/scheduling-eviction/pod-priority-preemption/ and framework/preemption.
type InTree struct {
	// Policy says what fits.
	Policy placement.Policy
	// Draw is the seed of the order of nodes: the same seed gives the same order, 0 the given one. The plugin goes by
	// the order of a map. The order makes a difference only where evictions may help on more than
	// MinCandidateNodesAbsolute nodes.
	Draw uint64
	// Started is when each of the candidates' pods started, in any unit: the earlier, the more important among equals.
	Started []int64
}

// Eviction is whom InTree evicts.
type Eviction struct {
	// Node that the preemptor waits for, "" where no eviction helps.
	Node string
	// Pods as indices of Candidates.Pods, the most important first.
	Pods []int
	// Violations counts those of Pods that go against a budget.
	Violations int
}

// Victims returns the victims for a pod. If nodes are equal in all that the plugin goes by, Victims chooses the first
// by name, where the plugin leaves it to chance. Nodes that take the pod without an eviction do not count.
func (m *InTree) Victims(nodes []*vgpu.Node, r *vgpu.Request, c *preemption.Candidates) (Eviction, error) {
	if len(m.Started) != len(c.Pods) {
		return Eviction{}, fmt.Errorf("model eviction for pod %s: %d times of start for %d pods", r.Pod, len(m.Started), len(c.Pods))
	}
	lower := map[string][]int{}
	for i := range c.Pods {
		if c.Pods[i].Priority < r.Priority {
			lower[c.Pods[i].Node] = append(lower[c.Pods[i].Node], i)
		}
	}
	nodes = m.mayHelp(nodes, r)
	best, found, lawful := Eviction{}, 0, false
	for _, n := range nodes {
		if len(lower[n.Name()]) == 0 {
			continue
		}
		e, err := m.onNode(n, r, c, lower[n.Name()])
		if err != nil {
			return Eviction{}, fmt.Errorf("model eviction for pod %s on node %s: %w", r.Pod, n.Name(), err)
		}
		if e.Node == "" {
			continue
		}
		if best.Node == "" || m.compare(c, &e, &best) < 0 {
			best = e
		}
		found, lawful = found+1, lawful || e.Violations == 0
		if lawful && found >= enough(len(nodes)) {
			break
		}
	}
	return best, nil
}

// mayHelp returns the nodes that refuse a pod for want of room, and not of devices, in the order of the search.
func (m *InTree) mayHelp(nodes []*vgpu.Node, r *vgpu.Request) []*vgpu.Node {
	nodes = slices.DeleteFunc(slices.Clone(nodes), func(n *vgpu.Node) bool {
		refusal := m.Policy.Fit(n, r)
		return refusal != nil && refusal.Helps != vgpu.EvictionHelps
	})
	if m.Draw != 0 {
		shuffle(nodes, m.Draw)
	}
	return nodes
}

// shuffle brings nodes into a random order. (The numbers are those of SplitMix64.)
func shuffle(nodes []*vgpu.Node, draw uint64) {
	for i := len(nodes) - 1; i > 0; i-- {
		draw += 0x9e3779b97f4a7c15
		z := (draw ^ draw>>30) * 0xbf58476d1ce4e5b9
		z = (z ^ z>>27) * 0x94d049bb133111eb
		j := int((z ^ z>>31) % uint64(i+1))
		nodes[i], nodes[j] = nodes[j], nodes[i]
	}
}

// enough returns how many candidates end the search, one of them without a violation.
func enough(nodes int) int {
	return min(nodes, max(nodes*MinCandidateNodesPercentage/100, MinCandidateNodesAbsolute))
}

// onNode removes all pods of a lower priority and reprieves those without whose room the pod fits. Pods that would go
// against a budget come first, in either part the most important first.
func (m *InTree) onNode(n *vgpu.Node, r *vgpu.Request, c *preemption.Candidates, lower []int) (Eviction, error) {
	s := strip(n, c, lower)
	if !s.takes(r, m.Policy) {
		return Eviction{}, nil
	}
	slices.SortFunc(lower, m.moreImportant(c))
	violating, others := apart(c, lower)
	e := Eviction{Node: n.Name()}
	for k, i := range slices.Concat(violating, others) {
		stays, err := s.reprieve(i, r, m.Policy)
		switch {
		case err != nil:
			return Eviction{}, err
		case stays:
			continue
		case k < len(violating):
			e.Violations++
		}
		e.Pods = append(e.Pods, i)
	}
	if len(e.Pods) == 0 {
		return Eviction{}, nil
	}
	slices.SortFunc(e.Pods, m.moreImportant(c))
	return e, nil
}

// moreImportant orders pods by priority, then by their start, then as they are listed.
func (m *InTree) moreImportant(c *preemption.Candidates) func(i, j int) int {
	return func(i, j int) int {
		return cmp.Or(cmp.Compare(c.Pods[j].Priority, c.Pods[i].Priority), cmp.Compare(m.Started[i], m.Started[j]), cmp.Compare(i, j))
	}
}

// apart returns the pods whose eviction would go against a budget, in a series of evictions of all, and the others. A
// pod counts against its budgets up to the first that does not allow it.
func apart(c *preemption.Candidates, pods []int) (violating, others []int) {
	used := make([]int, len(c.Budgets))
	for _, i := range pods {
		against := false
		for _, b := range c.Pods[i].Budgets {
			used[b]++
			if against = used[b] > c.Budgets[b].Allowed; against {
				break
			}
		}
		if against {
			violating = append(violating, i)
		} else {
			others = append(others, i)
		}
	}
	return violating, others
}

// compare orders evictions on two nodes, the better first. The keys are the violations, the highest priority, the sum
// of the priorities above the least possible one, and the number of pods. The last key is the start of the first to
// start of the highest priority, of which the latest is best.
func (m *InTree) compare(c *preemption.Candidates, a, b *Eviction) int {
	return cmp.Or(
		cmp.Compare(a.Violations, b.Violations),
		cmp.Compare(c.Pods[a.Pods[0]].Priority, c.Pods[b.Pods[0]].Priority),
		cmp.Compare(sumOfPriorities(c, a.Pods), sumOfPriorities(c, b.Pods)),
		cmp.Compare(len(a.Pods), len(b.Pods)),
		cmp.Compare(m.Started[b.Pods[0]], m.Started[a.Pods[0]]),
		cmp.Compare(a.Node, b.Node),
	)
}

// sumOfPriorities adds the priorities up from the least possible one: so no pod of a negative priority makes a node better.
func sumOfPriorities(c *preemption.Candidates, pods []int) int64 {
	sum := int64(0)
	for _, i := range pods {
		sum += int64(c.Pods[i].Priority) - math.MinInt32
	}
	return sum
}

// stripped is a node without its pods of a lower priority, to which they may come back.
type stripped struct {
	*vgpu.Node
	c      *preemption.Candidates
	ledger map[vgpu.UID]vgpu.Assignment
}

func strip(n *vgpu.Node, c *preemption.Candidates, pods []int) *stripped {
	s := &stripped{Node: n.Clone(), c: c, ledger: make(map[vgpu.UID]vgpu.Assignment, len(pods))}
	for _, i := range pods {
		s.ledger[c.Pods[i].UID] = vgpu.Assignment{}
	}
	n.Each(func(a *vgpu.Assignment) {
		if _, goes := s.ledger[a.UID]; goes {
			s.ledger[a.UID] = *a
		}
	})
	for _, i := range pods {
		s.Remove(c.Pods[i].UID)
		s.SetRoom(s.Room().Plus(c.Pods[i].Host))
	}
	return s
}

// takes reports whether a pod fits now, by devices and by the room of the host.
func (s *stripped) takes(r *vgpu.Request, p placement.Policy) bool {
	return r.Host.Within(s.Room()) && p.Fit(s.Node, r) == nil
}

// reprieve brings a pod back if another fits beside it, and reports whether it does.
func (s *stripped) reprieve(i int, r *vgpu.Request, p placement.Policy) (bool, error) {
	pod, room := &s.c.Pods[i], s.Room()
	a := s.ledger[pod.UID]
	s.SetRoom(room.Minus(pod.Host))
	if len(a.Containers) > 0 {
		if err := s.Add(a); err != nil {
			return false, err
		}
	}
	if s.takes(r, p) {
		return true, nil
	}
	s.Remove(pod.UID)
	s.SetRoom(room)
	return false, nil
}
