// Package testkit is part of a tree that the test holds to the rules.
package testkit

import (
	_ "testing"
)
