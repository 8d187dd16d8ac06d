// Package telemetry is part of a tree that the test holds to the rules.
package telemetry

import (
	_ "github.com/tandem-gpu/tandem/pkg/sim"
)
