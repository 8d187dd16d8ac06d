package placement

import "github.com/tandem-gpu/tandem/pkg/vgpu"

// maxBehind is the number of cheaper variants, or of extra devices, beyond which the score stays the same. A larger
// number needs more digits in the score.
const maxBehind = vgpu.MaxVariants - 1

// Score returns how good the devices are that Assign would choose on the node. Higher is better. Scores of different
// nodes compare for one request and one policy. −1 stands for a request that does not fit. The score of a pod without
// GPUs rates the CPU and memory that it leaves.
//
// The scale is decimal. Each part counts only where all parts before it are equal:
//
//	first × 10¹⁷      63 less, of one container, the number of its variants that cost less, and of several containers,
//	                  which have no costs, the devices beyond those that the largest needs: containers stay together
//	rate  × 10¹⁰      the policy's rate, 0 to 1000000
//	links × 10⁷       mean quality of the links between whole devices, 0 to 999; 999 for single devices
//	node              the policy's rate of the node, 0 to 1000000
//
// Example: packed, 3 slots to a device of 10 with 6 free on a node with 4 of 20 taken: 63·10¹⁷ + 700000·10¹⁰ + 999·10⁷
// + 200000 = 6307000009990200000. The caller orders nodes with equal scores by name.
func Score(n *vgpu.Node, r *vgpu.Request, p Policy) int64 {
	p = p.orDefault()
	return p.randomTieBreak(scoreOn(n, r, &p), n, r)
}

// randomTieBreak adds, for the policy random, the rank that the hash gives to a node.
func (p *Policy) randomTieBreak(score int64, n *vgpu.Node, r *vgpu.Request) int64 {
	if !p.isRandom || score < 0 {
		return score
	}
	return score + p.randomRank(r, n.Name())*1e10
}

// scoreOn is Score by a complete policy, without the random tie-break. The score depends on the state of the node, not
// on its name.
func scoreOn(n *vgpu.Node, r *vgpu.Request, p *Policy) int64 {
	switch len(r.Containers) {
	case 0:
		var v view
		v.load(n, r, p)
		return score(0, p.rate(&v), bestQuality, p.nodeRate(n))
	case 1:
		best, found := chooseOne(n, r, p)
		if !found {
			return -1
		}
		return score(best.dearer, best.rate, best.links, p.nodeRate(n))
	}
	if device, rate := chooseTogether(n, r, p); device >= 0 {
		return score(0, rate, bestQuality, p.nodeRate(n))
	}
	if s := arrange(n, r, p); s != nil {
		return s.value()
	}
	return -1
}

// score puts the parts together.
func score(behind int, rate, links, node int64) int64 {
	return int64(maxBehind-min(maxBehind, behind))*1e17 + rate*1e10 + links*1e7 + node
}
