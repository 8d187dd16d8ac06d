package experiment

import (
	"fmt"
	"slices"
	"strings"
)

// guesser is a model on trial.
type guesser interface {
	// predict returns the speed of each tenant.
	predict(*Pair) [2]float64
	// observe shows the model what came of a pair.
	observe(*Pair)
}

// fitting makes a model of a name for a set of pairs: fitted to the seen ones, or as it is shipped where seen is nil.
type fitting func(name string, set *PairSet, seen []*Pair) (guesser, error)

// fitted makes the models of package interference.
func fitted(name string, _ *PairSet, _ []*Pair) (guesser, error) {
	return nil, fmt.Errorf("unknown model %q", name)
}

// PredictingModels returns the names of all models.
func PredictingModels() []string {
	return []string{"none", "constant", "util-sum", "hinge", "linear-hinge", "rank1", "table", "default"}
}

// ParsePredictingModels reads a list of models separated by commas, each once; All is every one.
func ParsePredictingModels(list string) ([]string, error) {
	if list == All {
		return PredictingModels(), nil
	}
	names := strings.Split(list, ",")
	for i, name := range names {
		if !slices.Contains(PredictingModels(), name) {
			return nil, fmt.Errorf("unknown model %q, known are %s, or %s for every one", name, strings.Join(PredictingModels(), ", "), All)
		}
		if slices.Contains(names[:i], name) {
			return nil, fmt.Errorf("%s appears twice", name)
		}
	}
	return names, nil
}
