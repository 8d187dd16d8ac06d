// Package reservation decides which room the scheduler keeps for which gang or pod, and until when.
//
// A gang starts with all members that must run, or not at all, although the scheduler tries its members one after the other and
// room comes free piece by piece. So State keeps places for the members of a plan, until the scheduler binds them. State keeps
// room for a gang that waits, until the pods in its way end. State keeps room for a gang or a single pod for which the
// scheduler evicts pods, until those are gone. State remembers all of this, and Step is the only way to change it: an event
// goes in, effects come out. The package has no clock, no lock, no logger and no API, so the same events always have the same
// effects.
//
// Package gang decides which nodes and devices a gang gets, package preemption which pods the scheduler evicts. The caller uses
// both between two steps, and reports the answer as an event, with the version of the gang that it is about. State refuses an
// answer about an older version.
//
// The state of a gang has two parts. Phase describes the members that have a place: Unplaced, Planned, Binding or Running. Need
// describes the members that must run and have none: Satisfied, Incomplete, Refused, Reserving or Preempting. A single pod that
// is a preemptor has a PodPhase: Roomless, Leaving or Cleared. The page docs/gang-phases.md shows all of them with their
// transitions; a test generates it from the scenarios under testdata.
//
// State remembers the evictions for gangs and for pods together: those under way, the victims, and the budgets that these count
// against. State also holds the allowance: how many evictions the minute allows further.
package reservation
