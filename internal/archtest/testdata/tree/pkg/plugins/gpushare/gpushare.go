// Package gpushare is part of a tree that the test holds to the rules.
package gpushare

import (
	_ "github.com/tandem-gpu/tandem/pkg/placement"
	_ "github.com/tandem-gpu/tandem/pkg/plugins/gpugang"
)
