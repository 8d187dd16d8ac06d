// Package papers is part of a tree that the test holds to the rules.
package papers

import (
	_ "github.com/tandem-gpu/tandem/evaluation/plots"
)
