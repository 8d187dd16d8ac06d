// Package resize remembers how the members of an elastic gang follow the number that package elastic wants.
//
// A change of the number takes minutes: members get a notice before they leave, the controller of the object that makes them may
// refuse the number, be slow, or do nothing, and the scheduler may find no places. State remembers what has begun, and Step is the
// only way to change it: an event goes in with what the API shows, effects come out. The package has no clock, no lock, no logger
// and no API, so the same events always have the same effects. The controller steps a State for each gang of a cluster, the
// simulator one for each of its own.
//
// Package elastic decides how many members a gang should have, between two steps. This package decides which number the gang
// gets by that, and when members and objects hear of it.
//
// The state of a gang has four parts. Members: Following, FirstGone or Leaving. Owner, the object that says how many members there
// are: Unread, Unasked, Asked, Returning or Refused. Size, which numbers may be tried: Free, Barred or Retrying. Record, whether
// the status of the target tells its last change: Recorded or Moved. The page docs/elastic-phases.md shows them with their
// transitions; a test generates it from the scenarios under testdata.
package resize
