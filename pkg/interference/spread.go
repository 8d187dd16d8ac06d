package interference

const (
	// steadyPairs is how many pairs the shipped scatter counts for in the estimate for a GPU model. A smaller number
	// follows the first few observed pairs, a larger one keeps the shipped scatter for longer.
	steadyPairs = 5
	// leastScatter is the least scatter of pairs; varianceOfPair is the most.
	leastScatter = .0001
	// farthestRest bounds the square of one rest in the estimate. A larger bound lets one pair decide more.
	farthestRest = 4 * varianceOfPair
)

// scatter returns the variance of pairs on a GPU model that traits do not explain.
func (b *Book) scatter(gpu GPU) float64 {
	if v, ok := b.scatters[gpu]; ok {
		return v
	}
	return varianceOfPair
}

// pairAll computes the pairs of all workloads on a GPU model again, and estimates by how much they differ. The method
// is a step of expectation and maximisation, in which the variance of a rest adds to its square.
func (b *Book) pairAll(keys []entryKey) {
	squares, pairs := varianceOfPair*steadyPairs, float64(steadyPairs)
	for _, key := range keys {
		of, count := b.pair(b.known[key])
		squares, pairs = squares+of, pairs+count
	}
	b.scatters[keys[0].gpu] = min(varianceOfPair, max(leastScatter, squares/pairs))
}

// unsureTrait is the variance of the sensitivity and of the pressure before any row.
func (e *entry) unsureTrait() float64 {
	if e.profile.Guessed {
		return guessFactor * varianceOfTrait
	}
	return varianceOfTrait
}
