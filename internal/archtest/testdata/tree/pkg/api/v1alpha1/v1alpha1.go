// Package v1alpha1 is part of a tree that the test holds to the rules.
package v1alpha1
