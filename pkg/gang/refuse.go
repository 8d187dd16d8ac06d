package gang

import "fmt"

// String says the refusal in plain words.
func (r Refusal) String() string {
	return fmt.Sprintf("%d of %d members want a place: %s", r.Want, r.Of, r.Reason)
}
