package resize

import "time"

// Effect is something to do. The caller carries effects out in order. If one fails, it leaves out the eviction of the same member, and any write.
type Effect interface{ effect() }

type (
	// Ask asks the API server whether it would take the number, and changes nothing. NotTaken answers a no.
	Ask struct{ Number int }
	// Set gives the gang its number.
	Set struct {
		Number int
		Why    Cause
		// Bar is the size that the gang may not have for a while, where that holds it below what package elastic could give. It is also
		// the size that has just found no places.
		Bar *Bar
		// FirstGone: the number counts more members, since the first ones do not come back.
		FirstGone bool
	}
	// Notify tells a member when it leaves. Untold answers it where that failed.
	Notify struct {
		ID string
		At time.Time
	}
	// Withdraw takes its notice back.
	Withdraw struct{ ID string }
	// Evict evicts a member. Evicted answers all evictions of a step.
	Evict struct{ ID string }
	// Write writes a number into the owner's field. Written or NotTaken answers it, or nothing where the field could not be written.
	Write struct{ Number int }
	// Warn says that a member stays whose time has come: once for each number.
	Warn struct{ Why string }
	// LeaveOwner says that the owner's field is left alone from now on, since somebody changes it back.
	LeaveOwner struct{ Refusal Refusal }
)

// Cause says why a gang has its number.
type Cause string

// The causes of a number.
const (
	// AsPlanned: package elastic wants it.
	AsPlanned Cause = "AsPlanned"
	// NotPlanned: package elastic was not asked.
	NotPlanned Cause = "NotPlanned"
	// NotResizable: the number must not change.
	NotResizable Cause = "NotResizable"
	// NoPlaces: the members of a larger number had no places for too long.
	NoPlaces Cause = "NoPlaces"
	// Held: a user holds the number.
	Held Cause = "Held"
	// SizeBarred: a larger number had no places, and is not tried yet.
	SizeBarred Cause = "SizeBarred"
)

func (Ask) effect()        {}
func (Set) effect()        {}
func (Notify) effect()     {}
func (Withdraw) effect()   {}
func (Evict) effect()      {}
func (Write) effect()      {}
func (Warn) effect()       {}
func (LeaveOwner) effect() {}
