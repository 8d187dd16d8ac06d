// Package placement is part of a tree that the test holds to the rules.
package placement

import (
	_ "fmt"
	_ "github.com/tandem-gpu/tandem/pkg/vgpu"
	_ "gonum.org/v1/gonum/mat"
	_ "slices"
)
