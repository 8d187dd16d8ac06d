// Package facts reads from a cluster what package checks looks at, with the rights of the caller.
//
// What the caller may not read is noted, and everything else is read all the same. Any other refusal of the API server is an error.
package facts
