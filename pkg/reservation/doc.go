// Package reservation decides who keeps which room for whom, and until when.
//
// A gang starts with all members that must run, or not at all, although the scheduler tries its members one after the other and
// room comes free piece by piece. So places are kept: for the members of a plan until they are bound, for a gang that waits until
// the pods in its way end, and for a gang or a single pod for which pods are evicted until those are gone. State remembers all of
// this, and Step is the only way to change it: an event goes in, effects come out. The package has no clock, no lock, no logger and
// no API, so the same events always have the same effects.
//
// It does not decide which nodes and devices a gang gets (package gang), nor which pods are evicted (package preemption). Both
// are asked between two steps, and the answer comes back as an event with the version of the gang that the question was about.
// An answer about an older version is refused.
//
// What a gang is in has two parts. Phase tells of the members that have a place: Unplaced, Planned, Binding or Running. Need
// tells of the members that must run and have none: Satisfied, Incomplete, Refused, Reserving or Preempting. A single pod for which
// pods are evicted has a PodPhase: Roomless, Leaving or Cleared. The page docs/gang-phases.md shows all of them with their
// transitions; it is generated from the scenarios under testdata.
//
// The evictions for gangs and for pods are remembered together: which are under way, which pods were chosen as victims and count
// against which budgets, and how many evictions the allowance of a minute has left.
package reservation
