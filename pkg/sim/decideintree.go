package sim

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/tandem-gpu/tandem/pkg/placement"
	"github.com/tandem-gpu/tandem/pkg/vgpu"
)

// inTree makes one decision by the rules of the stock scheduler.
type inTree struct {
	*engine
	candidates *candidates
	nodes      []*vgpu.Node // without the victims, with the new members; those of the cluster until they differ
	made       *decision
}

// decideInTree is decide by the rules of the stock scheduler. The members of a gang get their places one after the other.
func (e *engine) decideInTree(job int, c *candidates) (*decision, error) {
	t := &inTree{engine: e, candidates: c, made: &decision{}, nodes: slices.Clone(c.nodes)}
	least := 1
	if g := e.history.groupOf[job]; g != nil {
		if least = g.want.MinCount; len(g.want.Wishes.Required) > 0 {
			return nil, nil
		}
	}
	for i, member := range e.unit(job) {
		if i >= e.waitsFor(job) {
			t.made.places = append(t.made.places, vgpu.Assignment{}) // it may come later, without evictions
			continue
		}
		place, err := t.place(member)
		if err != nil {
			return nil, err
		}
		if place.Node != "" {
			least--
		}
		t.made.places = append(t.made.places, place)
	}
	if least > 0 {
		return nil, nil
	}
	t.fall()
	return t.made, nil
}

// place finds the place of one pod: without victims, else with some. Node is "" where there is none.
func (t *inTree) place(job int) (vgpu.Assignment, error) {
	r := t.request(job)
	at, out := t.best(&r), Eviction{}
	if at < 0 {
		m := InTree{Policy: t.policy, Started: t.candidates.started, Draw: t.draw(job)}
		var err error
		if out, err = m.Victims(t.nodes, &r, &t.candidates.Candidates); err != nil || out.Node == "" {
			return vgpu.Assignment{}, err
		}
		at, _ = slices.BinarySearchFunc(t.nodes, out.Node, func(n *vgpu.Node, name string) int { return cmp.Compare(n.Name(), name) })
	}
	n := t.nodes[at].Clone()
	t.nodes[at] = n
	t.take(n, out.Pods)
	a, refusal := placement.Assign(n, &r, t.policy)
	if refusal != nil {
		return a, fmt.Errorf("make room for pod %s: node %s refuses without the pods that go: %v", r.Pod, n.Name(), *refusal)
	}
	n.SetRoom(n.Room().Minus(r.Host))
	if len(a.Containers) == 0 {
		return a, nil
	}
	return a, n.Add(a)
}

// draw returns the seed of the order of nodes for a job, anew for each decision and each member of a gang.
func (t *inTree) draw(job int) uint64 {
	return uint64(t.setup.Seed)<<48 ^ uint64(len(t.history.Preemptions)+1)<<24 ^ uint64(job)
}

// best returns the node with the highest score of those that have room, the first by name among equals; −1 for none.
func (t *inTree) best(r *vgpu.Request) int {
	best, top := -1, int64(-1)
	for i, n := range t.nodes {
		if !r.Host.Within(n.Room()) || t.policy.Fit(n, r) != nil {
			continue
		}
		if s := placement.Score(n, r, t.policy); s > top {
			best, top = i, s
		}
	}
	return best
}

// take takes pods off a node, and notes that they go, or that they leave already.
func (t *inTree) take(n *vgpu.Node, pods []int) {
	c := t.candidates
	for _, i := range pods {
		n.Remove(c.Pods[i].UID)
		n.SetRoom(n.Room().Plus(c.Pods[i].Host))
		if c.Pods[i].Leaving {
			t.made.Waits = append(t.made.Waits, c.jobs[i])
		} else {
			t.made.Evicted = append(t.made.Evicted, []int{c.jobs[i]})
		}
	}
	for _, i := range slices.Backward(slices.Sorted(slices.Values(pods))) {
		c.Pods, c.jobs, c.started = slices.Delete(c.Pods, i, i+1), slices.Delete(c.jobs, i, i+1), slices.Delete(c.started, i, i+1)
	}
}

// fall notes the gangs that have too few members left, whose other members go with them.
func (t *inTree) fall() {
	gone := map[int]bool{}
	for _, unit := range t.made.Evicted {
		gone[unit[0]] = true
	}
	seen := map[*group]bool{}
	for _, unit := range t.made.Evicted {
		g := t.history.groupOf[unit[0]]
		if g == nil || seen[g] {
			continue
		}
		seen[g] = true
		var rest []int
		for _, job := range g.jobs {
			if slices.Contains(t.live, job) && !t.leaving[job] && !gone[job] {
				rest = append(rest, job)
			}
		}
		if len(rest) < g.want.MinCount {
			t.made.Fallen, t.made.broken = append(t.made.Fallen, rest...), append(t.made.broken, g)
		}
	}
}
