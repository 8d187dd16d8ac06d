package fragmentation

// Bound lowers the number of states that a memo remembers.
func (m *Memo) Bound(states int) { m.bound = states }

// Known returns the number of states that it remembers.
func (m *Memo) Known() int { return len(m.seen) }

// Orders returns the requests of the fills: numbers of kinds, and the two unseen requests.
func (f *Fills) Orders() [][]int32 { return f.of[:] }

// The unseen requests of Orders.
const (
	UntouchedDevice = untouchedDevice
	UntouchedNode   = untouchedNode
)
