package main

import (
	"cmp"
	"strings"

	"golang.org/x/mod/semver"
)

// newer orders versions: releases by their numbers, the newest first; then what is no release, such as main, by name.
func newer(a, b string) int {
	switch valid := semver.IsValid(a); {
	case valid != semver.IsValid(b) && valid:
		return -1
	case valid != semver.IsValid(b):
		return 1
	case valid:
		return cmp.Or(semver.Compare(b, a), strings.Compare(a, b))
	}
	return strings.Compare(a, b)
}
