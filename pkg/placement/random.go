package placement

import "github.com/tandem-gpu/tandem/pkg/vgpu"

// random prefers nodes by chance, and devices of a node by chance: by a hash of the seed, the pod and the name. The same
// seed gives the same choice. It is what other policies are compared with.
var random = Policy{
	Name:   "random",
	chance: true,
	rate:   func(*view) int64 { return 0 },
}

// luck is what chance gives to a node or a device for a pod, 0 to rateMax − 1.
func (p *Policy) luck(r *vgpu.Request, name string) int64 {
	return int64(mixed(hash(hash(uint64(p.seed), string(r.UID)), name)) % rateMax)
}

// hash adds a text to a hash. (FNV-1a.)
func hash(h uint64, text string) uint64 {
	h ^= 14695981039346656037
	for i := range len(text) {
		h = (h ^ uint64(text[i])) * 1099511628211
	}
	return h
}

// mixed spreads a hash over all bits. (The finaliser of MurmurHash3.)
func mixed(h uint64) uint64 {
	h = (h ^ h>>33) * 0xff51afd7ed558ccd
	h = (h ^ h>>33) * 0xc4ceb9fe1a85ec53
	return h ^ h>>33
}
