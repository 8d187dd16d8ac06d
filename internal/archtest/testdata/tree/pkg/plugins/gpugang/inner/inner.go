// Package inner is part of a tree that the test holds to the rules.
package inner

import (
	_ "github.com/tandem-gpu/tandem/pkg/plugins/gpugang"
	_ "github.com/tandem-gpu/tandem/pkg/sim"
)
