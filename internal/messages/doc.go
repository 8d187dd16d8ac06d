// Package messages has the table of what Tandem says to its users: reasons of events, of conditions and of refusals, with what
// each means and what to do about it. docs/reference/messages.md is written from it.
//
// The programs do not read the table. A test compares it with their source: a reason that a program says and the table does not
// have fails the test, and so does a row that no program says.
package messages
