// Package durable writes a file so that it survives a power cut.
//
// A reader finds the old content or the new one, never a part of either. The package knows nothing of what it writes.
package durable
