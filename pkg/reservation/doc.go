// Package reservation decides which room is kept for which gang or pod, and until when.
//
// A gang starts with all members that must run, or not at all, although the scheduler tries its members one after the other and
// room comes free piece by piece. So State keeps places for the members of a plan, until they are bound. It keeps room for a gang
// that waits, until the pods in its way end. It keeps room for a gang or a single pod for which pods are evicted, until those are
// gone. State remembers all of this, and Step is the only way to change it: an event goes in, effects come out. The package has no
// clock, no lock, no logger and no API, so the same events always have the same effects.
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
// State remembers the evictions for gangs and for pods together: which are under way, which pods were chosen as victims and which
// budgets these count against. The allowance is part of it: how many evictions are left of those of a minute.
package reservation
