// Package binding is part of a tree that the test holds to the rules.
package binding

import (
	_ "github.com/tandem-gpu/tandem/internal/cluster/objects"
)
