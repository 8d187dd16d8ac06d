package placement

import "github.com/tandem-gpu/tandem/pkg/vgpu"

// random orders nodes and devices by a hash of the seed, the pod and the name. The same seed gives the same choice.
// Evaluations compare the other policies with it.
var random = Policy{
	Name:     "random",
	isRandom: true,
	rate:     func(*view) int64 { return 0 },
}

// randomRank is the random rank of a node or a device for a pod, 0 to rateMax − 1.
func (p *Policy) randomRank(r *vgpu.Request, name string) int64 {
	return int64(spreadBits(hash(hash(uint64(p.seed), string(r.UID)), name)) % rateMax)
}

// hash adds a text to a hash. (FNV-1a.)
func hash(h uint64, text string) uint64 {
	h ^= 14695981039346656037
	for i := range len(text) {
		h = (h ^ uint64(text[i])) * 1099511628211
	}
	return h
}

// spreadBits spreads a hash over all bits. (The finaliser of MurmurHash3.)
func spreadBits(h uint64) uint64 {
	h = (h ^ h>>33) * 0xff51afd7ed558ccd
	h = (h ^ h>>33) * 0xc4ceb9fe1a85ec53
	return h ^ h>>33
}
