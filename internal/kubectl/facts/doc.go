// Package facts reads from a cluster what package checks looks at, with the rights of the caller.
//
// The package notes what the caller may not read, and reads everything else all the same. Any other refusal of the API server is an
// error.
package facts
