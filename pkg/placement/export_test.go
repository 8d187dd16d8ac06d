package placement

// LeastLeft is for the tests of this package.
var (
	LeastLeft = leastLeft
)

// Bound lowers the numbers of states and of kinds of requests that a ranking remembers.
func (k *Ranking) Bound(states, kinds int) { k.bounds.states, k.bounds.kinds = states, kinds }

// Known returns the numbers of states, or of nodes if they are more, and of kinds that it remembers.
func (k *Ranking) Known() (states, kinds int) {
	return max(len(k.states), len(k.devices)), len(k.kinds)
}

// MaxSteps and MaxSets are limits that tests reach on purpose.
const (
	MaxSteps = maxSteps
	MaxSets  = maxSets
)
