package resize

import "github.com/tandem-gpu/tandem/pkg/elastic"

// pause forgets what has begun, as a restart does: after the pause the gang goes on from what there is then. The record of the target's status keeps
// what is still to be told.
func (m *move) pause() {
	record := m.record
	*m.State = *New(m.cfg, m.now)
	m.record = record
}

// pinned returns the number that a user wants, or the largest one below for which there are members.
func (v *View) pinned() int { return elastic.SizeBelow(v.Possible, v.Pin) }
