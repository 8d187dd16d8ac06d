package experiment

import (
	"fmt"
	"slices"
	"strings"

	"github.com/tandem-gpu/tandem/pkg/placement"
)

// All stands for every policy in a list of them.
const All = "all"

// ParsePolicies reads a list of policies separated by commas, each once; All is every policy there is, by name.
func ParsePolicies(list string) ([]string, error) {
	if list == All {
		return placement.Policies(), nil
	}
	names := strings.Split(list, ",")
	for i, name := range names {
		if _, err := placement.ByName(name); err != nil {
			return nil, fmt.Errorf("read policies %q: unknown policy %q, known are %s, or %s for every one", list, name,
				strings.Join(placement.Policies(), ", "), All)
		}
		if slices.Contains(names[:i], name) {
			return nil, fmt.Errorf("read policies %q: %s appears twice", list, name)
		}
	}
	return names, nil
}
