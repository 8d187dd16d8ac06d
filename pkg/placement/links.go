package placement

import "github.com/tandem-gpu/tandem/pkg/vgpu"

// maxSets bounds the number of device sets in the comparison for one container with whole devices. Beyond it the choice
// is greedy, and the statistics say so. 20000 covers all sets of 16 devices (8 of 16 are 12870). A larger bound finds
// better links on larger nodes; each set costs some ten nanoseconds per device in it.
const maxSets = 20_000

// bestQuality is the quality of the best link, and that of a single device, which needs none.
const bestQuality = 999

// Quality rates the path between two devices, 0 to bestQuality. The rating follows the bandwidth roughly: a lane of
// NVLink carries more than any PCIe path, and lanes add up. Example: PIX 40, one NVLink 140, 12 lanes (A100) 580.
func Quality(l vgpu.Link) int64 {
	if l.Class == vgpu.LinkNVLink {
		return min(bestQuality, 100+40*int64(max(1, l.Lanes)))
	}
	return 10 * int64(l.Class)
}

// average returns the mean quality of the pairs of m devices, from their sum.
func average(sum int64, m int) int64 {
	if m < 2 {
		return bestQuality
	}
	return sum / int64(m*(m-1)/2)
}

// BestSet chooses m ≥ 2 of the candidates with the highest sum of the qualities of all pairs, into out. Among equal
// sets the first in the order of the candidates wins. The results are the sum, and whether the search compared all
// sets.
//
// The sum approximates how fast a job on the set communicates. A slow pair can hide behind fast ones, and a ring does
// not need every pair.
func BestSet(n *vgpu.Node, candidates []int, m int, out []int) (sum int64, all bool) {
	if q, alike := alikeLinks(n, candidates); alike {
		copy(out, candidates[:m])
		return q * int64(m*(m-1)/2), true
	}
	if combinations(len(candidates), m) > maxSets {
		return greedySet(n, candidates, m, out), false
	}
	var buffer [maxOnStack]int
	var sums [maxOnStack]int64
	at, upTo := buffer[:], sums[:]
	if m > maxOnStack {
		at, upTo = make([]int, m), make([]int64, m)
	}
	at, upTo = at[:m], upTo[:m]
	best := int64(-1)
	for t := range at {
		at[t] = t
	}
	for changed := 0; changed >= 0; {
		for t := changed; t < m; t++ { // sums of the pairs among the first t+1 devices
			upTo[t] = 0
			if t > 0 {
				upTo[t] = upTo[t-1]
			}
			for s := range t {
				upTo[t] += Quality(n.Link(candidates[at[s]], candidates[at[t]]))
			}
		}
		if upTo[m-1] > best {
			best = upTo[m-1]
			for t := range at {
				out[t] = candidates[at[t]]
			}
		}
		changed = advance(at, len(candidates))
	}
	return best, true
}

// alikeLinks returns the quality of the links of the candidates, and whether it is one: a switch joins them, or nothing does. Then the first set is the best.
func alikeLinks(n *vgpu.Node, candidates []int) (quality int64, alike bool) {
	quality = Quality(n.Link(candidates[0], candidates[1]))
	for a := range candidates {
		for b := range a {
			if Quality(n.Link(candidates[b], candidates[a])) != quality {
				return 0, false
			}
		}
	}
	return quality, true
}

// advance turns at into the next combination of n positions, and returns the first place that changed, −1 at the end.
func advance(at []int, n int) int {
	m := len(at)
	t := m - 1
	for t >= 0 && at[t] == n-m+t {
		t--
	}
	if t < 0 {
		return -1
	}
	at[t]++
	for s := t + 1; s < m; s++ {
		at[s] = at[s-1] + 1
	}
	return t
}

// greedySet starts with the best pair and adds the device with the best links to those chosen, until there are m. The
// search can miss the best set.
func greedySet(n *vgpu.Node, candidates []int, m int, out []int) int64 {
	sum := int64(-1)
	for a := range candidates {
		for b := a + 1; b < len(candidates); b++ {
			if q := Quality(n.Link(candidates[a], candidates[b])); q > sum {
				sum, out[0], out[1] = q, candidates[a], candidates[b]
			}
		}
	}
	for k := 2; k < m; k++ {
		best := int64(-1)
		for _, c := range candidates {
			gain := int64(0)
			for _, o := range out[:k] {
				if o == c {
					gain = -1
					break
				}
				gain += Quality(n.Link(o, c))
			}
			if gain > best {
				best, out[k] = gain, c
			}
		}
		sum += best
	}
	return sum
}

// combinations returns n over m, or a number above maxSets where it is larger.
func combinations(n, m int) int64 {
	count := int64(1)
	for k := 1; k <= min(m, n-m); k++ {
		count = count * int64(n-k+1) / int64(k)
		if count > maxSets {
			return maxSets + 1
		}
	}
	return count
}
