// Package scenario is part of a tree that the test holds to the rules.
package scenario

import (
	_ "github.com/tandem-gpu/tandem/evaluation/plots"
	_ "github.com/tandem-gpu/tandem/pkg/sim"
)
