package placement

// random prefers nodes and devices by chance: a hash of the seed, the pod, the node and the devices. The same seed gives
// the same choice. It is what other policies are compared with.
var random = Policy{
	Name:  "random",
	byPod: true,
	rate: func(p *Policy, v *view) int64 {
		h := hash(uint64(p.seed), string(v.r.UID))
		h = hash(h, v.n.Name())
		for i := range v.left {
			if v.touched(i) {
				h = hash(h, string(v.n.Devices()[i].ID))
			}
		}
		return int64(mixed(h) % rateMax)
	},
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
