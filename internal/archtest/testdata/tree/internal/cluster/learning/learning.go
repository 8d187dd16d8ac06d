// Package learning is part of a tree that the test holds to the rules.
package learning

import (
	_ "github.com/tandem-gpu/tandem/internal/agent/health"
)
