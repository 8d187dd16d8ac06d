package placement

// BestSet, Quality and LeastLeft are for the tests of this package.
var (
	BestSet   = bestSet
	Quality   = quality
	LeastLeft = leastLeft
)

// MaxSteps and MaxSets are limits that tests reach on purpose.
const (
	MaxSteps = maxSteps
	MaxSets  = maxSets
)
