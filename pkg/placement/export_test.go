package placement

// BestSet, Quality and MaxSteps are for the tests of this package.
var (
	BestSet = bestSet
	Quality = quality
)

// MaxSteps and MaxSets are limits that tests reach on purpose.
const (
	MaxSteps = maxSteps
	MaxSets  = maxSets
)
