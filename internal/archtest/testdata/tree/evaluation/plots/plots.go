// Package plots is part of a tree that the test holds to the rules.
package plots

import (
	_ "gonum.org/v1/plot"
)
