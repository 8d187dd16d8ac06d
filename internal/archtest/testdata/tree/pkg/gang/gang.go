// Package gang is part of a tree that the test holds to the rules.
package gang

import (
	_ "github.com/tandem-gpu/tandem/pkg/api/v1alpha1"
)
