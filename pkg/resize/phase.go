package resize

import (
	"time"

	"github.com/tandem-gpu/tandem/pkg/contest"
)

// Phase is one of the phases of a part of a State.
type Phase string

// The phases of the members.
const (
	// Following: the members follow the number, or will once they have places.
	Following Phase = "Following"
	// FirstGone: the number counts members that do not exist, so that too few of those that exist may run.
	FirstGone Phase = "FirstGone"
	// Leaving: members beyond the number have a notice, and still run.
	Leaving Phase = "Leaving"
)

// The phases of the owner.
const (
	// Unread: a new process has not read the owner yet.
	Unread Phase = "Unread"
	// Unasked: the owner's field says what it should, or State waits to write it.
	Unasked Phase = "Unasked"
	// Asked: the field is written, and the owner's controller has made or deleted no member since.
	Asked Phase = "Asked"
	// Returning: it has not done so in time, and the old number goes back into the field.
	Returning Phase = "Returning"
	// Refused: the field is left alone, until a time or until the owner changes.
	Refused Phase = "Refused"
)

// The phases of the size.
const (
	// Free: any legal size may be tried.
	Free Phase = "Free"
	// Barred: a size found no places, and neither this one nor a larger one is tried for a while.
	Barred Phase = "Barred"
	// Retrying: that time is over. If the size finds no places again, it is barred for twice as long.
	Retrying Phase = "Retrying"
)

// The phases of the record.
const (
	// Recorded: the status of the target tells when it got its number.
	Recorded Phase = "Recorded"
	// Moved: the target has got a number, and its status does not tell so yet.
	Moved Phase = "Moved"
)

// part is what exists in a phase.
type part interface{ phase() Phase }

// Members.
type (
	following struct{}
	firstGone struct{ since time.Time }
	leaving   struct {
		// at is when each member leaves.
		at map[string]time.Time
		// kept says why a member stays whose time has come, "" where none does; warned is the number for which an effect said so, 0
		// for none.
		kept   string
		warned int
	}
)

// Owner.
type (
	unread  struct{}
	unasked struct{}
	asked   struct {
		from, to int
		at       time.Time
		// old are the members beyond the old number that were there before, surplus is how many were too many for the new one.
		old     map[string]bool
		surplus int
	}
	returning struct {
		asked
		refusal Refusal
		// again is when the old number is tried again, which the API server has refused.
		again time.Time
	}
	refused struct{ refusal Refusal }
)

// Size.
type (
	free   struct{}
	barred struct {
		Bar
		// times counts the refusals without a success between them.
		times int
	}
	retrying struct{ size, times int }
)

// Record.
type (
	recorded struct{}
	moved    struct{ at time.Time }
)

func (following) phase() Phase  { return Following }
func (firstGone) phase() Phase  { return FirstGone }
func (*leaving) phase() Phase   { return Leaving }
func (unread) phase() Phase     { return Unread }
func (unasked) phase() Phase    { return Unasked }
func (*asked) phase() Phase     { return Asked }
func (*returning) phase() Phase { return Returning }
func (*refused) phase() Phase   { return Refused }
func (free) phase() Phase       { return Free }
func (*barred) phase() Phase    { return Barred }
func (*retrying) phase() Phase  { return Retrying }
func (recorded) phase() Phase   { return Recorded }
func (moved) phase() Phase      { return Moved }

// Bar is a size that found no places, why, and until when it is not tried again.
type Bar struct {
	Size  int
	Why   string
	Until time.Time
}

// Kind says who refuses a number.
type Kind string

// The kinds of refusals.
const (
	// ByServer: the API server does not take the number. Refusal.Code and Text are the caller's.
	ByServer Kind = "ByServer"
	// NotFollowed: the owner's controller did not follow.
	NotFollowed Kind = "NotFollowed"
	// OtherWriter: somebody changes the number back.
	OtherWriter Kind = "OtherWriter"
)

// Refusal is why the field of an owner is left alone.
type Refusal struct {
	Kind Kind
	// Code and Text say it in the words of the caller: of ByServer, and of any refusal that an earlier process found.
	Code, Text string
	// Undone has the change that the owner's controller did not follow, or that somebody undid, and until when the field is left alone in any
	// case: zero for no end. After is how long the owner had to follow.
	contest.Undone
	After time.Duration
	// Stays is why the API server does not take the old number back, "" where it took it, or was not asked.
	Stays string
	// Generation is that of the owner for which the refusal holds, 0 for any.
	Generation int64
}

// holds reports whether a refusal is of an owner as it is now.
func (r *Refusal) holds(o *Owner, now time.Time) bool {
	return (r.Generation == 0 || r.Generation == o.Generation) && (r.Until.IsZero() || now.Before(r.Until))
}
