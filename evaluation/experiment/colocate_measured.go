package experiment

import (
	"fmt"

	"github.com/tandem-gpu/tandem/pkg/interference"
)

// measuredModel is a model that knows the measured speeds.
func measuredModel(t *sharingTable) (interference.Model, error) {
	m, err := interference.ByName("table")
	if err != nil {
		return m, fmt.Errorf("make model of measured pairs: %w", err)
	}
	var known interference.Table
	for i := range t.speed {
		for j, s := range t.speed[i] {
			known.Set(workloadOf(i), workloadOf(j), s)
		}
	}
	return m.WithTable(&known), nil
}
