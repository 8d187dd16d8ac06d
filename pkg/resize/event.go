package resize

import "github.com/tandem-gpu/tandem/pkg/elastic"

// Event is something that happened. Most events bring what the API shows.
type Event interface{ event() }

type (
	// Looked begins a look at the gang.
	Looked struct{ *View }
	// Planned says what package elastic wants. Target is nil where it was not asked about the gang: the number stays.
	Planned struct {
		*View
		Target *elastic.Target
	}
	// Numbered says that the target has got another number.
	Numbered struct{}
	// Told says that the status of the target tells so.
	Told struct{}
	// Due brings the members to a number, as far as that goes now.
	Due struct {
		*View
		Number int
	}
	// Untold says that a member could not be told when it leaves: it gets a whole notice later.
	Untold struct{ ID string }
	// Written says that the owner's field was written, and has this generation now.
	Written struct {
		*View
		Number     int
		Generation int64
	}
	// NotTaken says that the API server does not take a number, when it was asked or when it was to be written.
	NotTaken struct {
		*View
		Refusal Refusal
	}
	// Evicted says that the evictions of a step are over. Kept says why a member stays whose time has come, "" where none does.
	Evicted struct {
		Number int
		Kept   string
	}
)

func (Looked) event()   {}
func (Planned) event()  {}
func (Numbered) event() {}
func (Told) event()     {}
func (Due) event()      {}
func (Untold) event()   {}
func (Written) event()  {}
func (NotTaken) event() {}
func (Evicted) event()  {}
