package machine

import (
	"encoding/json"
	"fmt"
	"io"
	"time"

	"github.com/tandem-gpu/tandem/pkg/reservation"
)

// dump is what Dump writes.
type dump struct {
	Kind  string
	At    time.Time
	State reservation.Dump
}

// dumpKind marks the lines of the dump.
const dumpKind = "TandemReservations"

// Dump writes what the state machine remembers, as one line of JSON. reservation.Restore reads its State.
func (m *Machine) Dump(out io.Writer) error {
	var d dump
	m.Lock(func(l Locked) { d = dump{dumpKind, m.now(), l.State.Dump()} })
	line, err := json.Marshal(&d)
	if err != nil {
		return fmt.Errorf("dump reservations: %w", err)
	}
	if _, err := out.Write(append(line, '\n')); err != nil {
		return fmt.Errorf("dump reservations: %w", err)
	}
	return nil
}
