package fragmentation

// Bound lowers the number of states that a memo remembers.
func (m *Memo) Bound(states int) { m.bound = states }

// Known returns the number of states that it remembers.
func (m *Memo) Known() int { return len(m.seen) }
