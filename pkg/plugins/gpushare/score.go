package gpushare

import (
	"cmp"
	"context"
	"slices"

	v1 "k8s.io/api/core/v1"
	fwk "k8s.io/kube-scheduler/framework"

	"github.com/tandem-gpu/tandem/internal/kube"
	"github.com/tandem-gpu/tandem/pkg/placement"
)

// PreScore skips Score for pods that ask for no vGPU.
func (p *Plugin) PreScore(_ context.Context, _ fwk.CycleState, pod *v1.Pod, _ []fwk.NodeInfo) *fwk.Status {
	if !kube.WantsVGPU(pod) {
		return fwk.NewStatus(fwk.Skip)
	}
	return nil
}

// Score returns placement's score of the node, in no fixed range.
func (p *Plugin) Score(_ context.Context, cs fwk.CycleState, _ *v1.Pod, node fwk.NodeInfo) (int64, *fwk.Status) {
	r := requestOf(cs)
	if r == nil {
		return 0, nil
	}
	o := p.state.occupancyOf(node)
	if o.problem != "" {
		return -1, nil
	}
	return placement.Score(o.ledger, r, p.policy), nil
}

// ScoreExtensions returns the plugin.
func (p *Plugin) ScoreExtensions() fwk.ScoreExtensions { return p }

// NormalizeScore ranks: the best node gets 100, the next 99, … and 0 from the 101st on. Equal scores are ordered by
// name, so that no two of the best nodes ever tie and the framework has nothing to choose by chance. The list keeps its
// order, which the framework relies on.
func (p *Plugin) NormalizeScore(_ context.Context, _ fwk.CycleState, _ *v1.Pod, scores fwk.NodeScoreList) *fwk.Status {
	best := make([]int, 0, fwk.MaxScore+1) // indexes of the best nodes so far, best first
	for i := range scores {
		at, _ := slices.BinarySearchFunc(best, i, func(have, want int) int { return better(scores[have], scores[want]) })
		if at == int(fwk.MaxScore) {
			continue
		}
		best = slices.Insert(best, at, i)
		best = best[:min(len(best), int(fwk.MaxScore))]
	}
	for i := range scores {
		scores[i].Score = fwk.MinScore
	}
	for rank, i := range best {
		scores[i].Score = fwk.MaxScore - int64(rank)
	}
	return nil
}

// better orders the best score first, equal ones by name.
func better(a, b fwk.NodeScore) int {
	return cmp.Or(cmp.Compare(b.Score, a.Score), cmp.Compare(a.Name, b.Name))
}
