// Package vgpu is part of a tree that the test holds to the rules.
package vgpu

import (
	_ "github.com/tandem-gpu/tandem/pkg/placement"
	_ "k8s.io/api/core/v1"
	_ "math/rand"
	_ "os"
	_ "time"
)
