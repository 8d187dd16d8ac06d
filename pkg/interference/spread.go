package interference

const (
	// steadyPairs is how many pairs the shipped scatter counts for when that of a GPU model is estimated. Smaller follows
	// the first few that are observed, larger holds on to what was measured elsewhere.
	steadyPairs = 5
	// leastScatter is the least scatter of pairs; varianceOfPair is the most.
	leastScatter = .0001
	// farthestRest bounds the square of one rest in the estimate.
	farthestRest = 4 * varianceOfPair
)

// scatter returns the variance by which pairs differ on a GPU model from what traits explain.
func (b *Book) scatter(gpu GPU) float64 {
	if v, ok := b.scatters[gpu]; ok {
		return v
	}
	return varianceOfPair
}

// pairAll works out the pairs of all workloads on a GPU model anew, and estimates by how much they differ: a step of
// expectation and maximisation, in which a rest that is hardly known adds its variance.
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
