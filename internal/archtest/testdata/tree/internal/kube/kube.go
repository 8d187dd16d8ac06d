package kube

import (
	_ "github.com/tandem-gpu/tandem/internal/testkit"
	_ "github.com/tandem-gpu/tandem/test/fakegpu"
)
