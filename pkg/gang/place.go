package gang

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/tandem-gpu/tandem/pkg/placement"
	"github.com/tandem-gpu/tandem/pkg/vgpu"
)

// Place returns where the members go. It changes nothing. The error is broken input.
func Place(c *Cluster, g *Group, cfg Config) (Plan, error) {
	if err := validate(c, g, cfg); err != nil {
		return Plan{}, fmt.Errorf("place gang %s: %w", g.Name, err)
	}
	need := max(0, g.MinCount-len(g.Placed))
	var plan Plan
	for _, keys := range [][]string{slices.Concat(g.Wishes.Required, g.Wishes.Preferred[:min(1, len(g.Wishes.Preferred))]), g.Wishes.Required} {
		for _, nodes := range domainsOf(c, keys) {
			places, got := fill(c, g, cfg, nodes)
			plan.Stats.Tried++
			if got == len(g.Members) {
				plan.Places = places
				return plan, nil
			}
			if got >= need && plan.Places == nil {
				plan.Places = places
			}
		}
	}
	if plan.Places == nil {
		plan.Refused = &Refusal{Reason: NoRoom, Helps: vgpu.EvictionHelps, Want: need, Of: len(g.Members)}
	}
	return plan, nil
}

func domainsOf(c *Cluster, keys []string) [][]int {
	groups := map[string][]int{}
	var names []string
	for i := range c.Nodes {
		name, labelled := "", true
		for _, key := range keys {
			if l := c.level(key); l != nil {
				labelled = labelled && l.Domain[i] >= 0
				name += fmt.Sprint(l.Domain[i], "/")
			}
		}
		if !labelled {
			continue
		}
		if groups[name] == nil {
			names = append(names, name)
		}
		groups[name] = append(groups[name], i)
	}
	all := make([][]int, 0, len(names))
	for _, name := range names {
		all = append(all, groups[name])
	}
	return all
}

func fill(c *Cluster, g *Group, cfg Config, at []int) ([]vgpu.Assignment, int) {
	places := make([]vgpu.Assignment, len(g.Members))
	order := make([]int, len(g.Members))
	for i := range order {
		order[i] = i
	}
	slices.SortFunc(order, func(a, b int) int {
		x, y := &g.Members[a], &g.Members[b]
		return cmp.Or(cmp.Compare(x.Rank, y.Rank), cmp.Compare(x.Request.Pod, y.Request.Pod), cmp.Compare(x.Request.UID, y.Request.UID))
	})
	nodes := map[int]*vgpu.Node{}
	for _, i := range at {
		nodes[i] = c.Nodes[i].Clone()
		for m := range g.Members {
			nodes[i].Release(g.Members[m].Request.UID)
		}
	}
	admitted := map[[2]int]int{}
	got := 0
	for _, m := range order {
		r := &g.Members[m].Request
		best, top := -1, int64(-1)
		for _, i := range at {
			key := [2]int{g.Members[m].Kind, i}
			if c.Admits != nil && admitted[key] >= c.Admits(key[0], i) || !r.Host.Within(nodes[i].Room()) || placement.Policy.Fit(cfg.Policy, nodes[i], r) != nil {
				continue
			}
			if s := placement.Score(nodes[i], r, cfg.Policy); best < 0 || s > top {
				best, top = i, s
			}
		}
		places[m] = vgpu.Assignment{UID: r.UID, Pod: r.Pod}
		if best < 0 {
			continue
		}
		if a, refusal := placement.Assign(nodes[best], r, cfg.Policy); refusal == nil {
			places[m] = a
			if len(a.Containers) > 0 {
				_ = nodes[best].Add(a)
			}
			nodes[best].SetRoom(nodes[best].Room().Minus(r.Host))
			admitted[[2]int{g.Members[m].Kind, best}]++
			got++
		}
	}
	return places, got
}
