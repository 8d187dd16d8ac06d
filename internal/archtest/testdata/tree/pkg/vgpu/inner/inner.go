// Package inner is part of a tree that the test holds to the rules.
package inner
