package experiment

import (
	"fmt"
	"slices"
	"strings"

	"github.com/tandem-gpu/tandem/pkg/interference"
)

// exclusive is the policy that shares no device: what the others are measured by.
const exclusive = "fifo"

// sharingPolicies by name, in the order in which all of them are shown.
var sharingPolicies = []struct {
	name string
	make func(t *sharingTable) (sharingPolicy, error)
}{
	{exclusive, func(*sharingTable) (sharingPolicy, error) { return &firstFit{most: 1, cost: fewest}, nil }},
	{"horus-2", func(*sharingTable) (sharingPolicy, error) {
		return &firstFit{most: 2, margin: horusMargin, cost: horus}, nil
	}},
	{"horus-3", func(*sharingTable) (sharingPolicy, error) {
		return &firstFit{most: mostSharing, margin: horusMargin, cost: horus}, nil
	}},
	{"least-loaded-3", func(*sharingTable) (sharingPolicy, error) {
		return &firstFit{most: mostSharing, cost: fewest}, nil
	}},
	{"lucid", func(t *sharingTable) (sharingPolicy, error) { return &firstFit{most: 2, cost: lucid(t)}, nil }},
	{"linear-hinge-0.8", func(*sharingTable) (sharingPolicy, error) { return predicted("linear-hinge") }},
	{"oracle", func(t *sharingTable) (sharingPolicy, error) { return oracle(t), nil }},
	{"tandem", func(t *sharingTable) (sharingPolicy, error) {
		m, err := interference.ByName("default")
		if err != nil {
			return nil, err
		}
		l, err := newBookLearner(t, m)
		return newTandem(t, l), err
	}},
	{"tandem-measured", func(t *sharingTable) (sharingPolicy, error) {
		m, err := measuredModel(t)
		if err != nil {
			return nil, err
		}
		l, err := newBookLearner(t, m)
		return newTandem(t, l), err
	}},
}

// SharingPolicies returns the names of the policies that a Colocation compares, in the order of display.
func SharingPolicies() []string {
	names := make([]string, 0, len(sharingPolicies))
	for i := range sharingPolicies {
		names = append(names, sharingPolicies[i].name)
	}
	return names
}

// ParseSharingPolicies reads a list of SharingPolicies separated by commas, each once; All is every one of them.
func ParseSharingPolicies(list string) ([]string, error) {
	if list == All {
		return SharingPolicies(), nil
	}
	names := strings.Split(list, ",")
	for i, name := range names {
		if !slices.Contains(SharingPolicies(), name) {
			return nil, fmt.Errorf("read policies %q: unknown policy %q, known are %s, or %s for every one", list, name,
				strings.Join(SharingPolicies(), ", "), All)
		}
		if slices.Contains(names[:i], name) {
			return nil, fmt.Errorf("read policies %q: %s appears twice", list, name)
		}
	}
	return names, nil
}

// sharingPolicyOf returns a policy for one run.
func sharingPolicyOf(name string, t *sharingTable) (sharingPolicy, error) {
	i := slices.Index(SharingPolicies(), name)
	if i < 0 {
		return nil, fmt.Errorf("unknown policy %q", name)
	}
	return sharingPolicies[i].make(t)
}
