// Package objects is part of a tree that the test holds to the rules.
package objects

import (
	_ "github.com/tandem-gpu/tandem/pkg/gang"
	_ "github.com/tandem-gpu/tandem/pkg/plugins/gpushare"
)
