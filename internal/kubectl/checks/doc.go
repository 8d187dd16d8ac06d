// Package checks finds what is wrong with an installation of Tandem, from facts about its cluster.
//
// Find is a function of the facts alone: it asks nobody and changes nothing. A check whose facts could not be read is not carried
// out, and a finding of its own says so. If one fault causes others, the findings name the cause: devices of a node without an
// agent are not looked at.
package checks
