// Package traffic is part of a tree that the test holds to the rules.
package traffic

import (
	_ "gonum.org/v1/gonum/mat"
	_ "gonum.org/v1/plot/vg"
)
