// Package main is part of a tree that the test holds to the rules.
package main

import (
	_ "github.com/tandem-gpu/tandem/evaluation/plots"
	_ "github.com/tandem-gpu/tandem/pkg/sim"
)
