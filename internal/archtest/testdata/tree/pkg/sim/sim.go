// Package sim is part of a tree that the test holds to the rules.
package sim

import (
	_ "github.com/tandem-gpu/tandem/pkg/preemption"
	_ "time"
)
