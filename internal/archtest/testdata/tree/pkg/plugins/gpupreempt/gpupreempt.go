// Package gpupreempt is part of a tree that the test holds to the rules.
package gpupreempt

import (
	_ "github.com/tandem-gpu/tandem/internal/cluster/learning"
)
