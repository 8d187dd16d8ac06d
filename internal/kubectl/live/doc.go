// Package live shows who uses how much of what they hold on a terminal, again and again, until its reader ends it.
//
// The model takes keys and snapshots and returns the screen: it asks nobody. Package command runs it with a source of snapshots.
package live
