// Package v2 is part of a tree that the test holds to the rules.
package v2
