// Package main is part of a tree that the test holds to the rules.
package main

import (
	_ "github.com/tandem-gpu/tandem/internal/agent/health"
	_ "github.com/tandem-gpu/tandem/pkg/preemption"
)
