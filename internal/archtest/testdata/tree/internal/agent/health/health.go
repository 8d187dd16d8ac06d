// Package health is part of a tree that the test holds to the rules.
package health

import (
	_ "github.com/tandem-gpu/tandem/pkg/api/v1alpha1"
	_ "github.com/tandem-gpu/tandem/pkg/reservation"
)
