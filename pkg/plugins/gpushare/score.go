package gpushare

import (
	"cmp"
	"context"
	"math"
	"slices"

	v1 "k8s.io/api/core/v1"
	fwk "k8s.io/kube-scheduler/framework"

	"github.com/tandem-gpu/tandem/internal/cluster/verdict"
	"github.com/tandem-gpu/tandem/pkg/placement"
	"github.com/tandem-gpu/tandem/pkg/vgpu"
)

// PreScore skips Score for pods that it does not score.
func (p *Plugin) PreScore(_ context.Context, cs fwk.CycleState, _ *v1.Pod, _ []fwk.NodeInfo) *fwk.Status {
	if scoredOf(cs) == nil {
		return verdict.New(fwk.Skip)
	}
	return nil
}

// strandsNothing is the score of nodes without GPUs for pods without vGPUs.
const strandsNothing = math.MaxInt64

// Score returns placement's score of the node, in no fixed range: for a pod without vGPUs that of the GPUs that its CPU
// leaves usable.
func (p *Plugin) Score(_ context.Context, cs fwk.CycleState, _ *v1.Pod, node fwk.NodeInfo) (int64, *fwk.Status) {
	r := scoredOf(cs)
	if r == nil {
		return 0, nil
	}
	o := p.state.occupancyOf(node)
	switch {
	case len(r.Containers) == 0 && o.problem == noGPUs:
		return strandsNothing, nil
	case !o.serves(r):
		return -1, nil
	}
	if score, ok := scoredBefore(cs, node.Node().Name, o.ledger); ok {
		return score, nil
	}
	return placement.Score(o.ledger, r, p.state.ruling().Policy), nil
}

// serves reports whether the node has a score for the request: for devices it must be able to give them, for CPU it is
// enough that it has some.
func (o *occupancy) serves(r *vgpu.Request) bool {
	return o.ledger != nil && (o.problem == "" || len(r.Containers) == 0)
}

// ScoreExtensions returns the plugin.
func (p *Plugin) ScoreExtensions() fwk.ScoreExtensions { return p }

// NormalizeScore ranks: the best node gets 100, the next 99, … and 0 from the 101st on. Equal scores are ordered by
// name, so that no two of the best nodes ever tie and the framework has nothing to choose by chance. Nodes without GPUs
// all get 100 for a pod without vGPUs, and the other plugins choose among them. The list keeps its order, which the
// framework relies on.
func (p *Plugin) NormalizeScore(_ context.Context, _ fwk.CycleState, _ *v1.Pod, scores fwk.NodeScoreList) *fwk.Status {
	best, top := make([]int, 0, fwk.MaxScore+1), fwk.MaxScore // indexes of the best nodes so far, best first
	for i := range scores {
		if scores[i].Score == strandsNothing {
			top = fwk.MaxScore - 1
			continue
		}
		at, _ := slices.BinarySearchFunc(best, i, func(have, want int) int { return better(scores[have], scores[want]) })
		if at == int(fwk.MaxScore) {
			continue
		}
		best = slices.Insert(best, at, i)
		best = best[:min(len(best), int(fwk.MaxScore))]
	}
	for i := range scores {
		if scores[i].Score == strandsNothing {
			scores[i].Score = fwk.MaxScore
			continue
		}
		scores[i].Score = fwk.MinScore
	}
	for rank, i := range best {
		scores[i].Score = top - int64(rank)
	}
	return nil
}

// better orders the best score first, equal ones by name.
func better(a, b fwk.NodeScore) int {
	return cmp.Or(cmp.Compare(b.Score, a.Score), cmp.Compare(a.Name, b.Name))
}
