// Package cluster is part of a tree that the test holds to the rules.
package cluster

import (
	_ "github.com/tandem-gpu/tandem/evaluation"
	_ "github.com/tandem-gpu/tandem/internal/simulator/scenario"
)
