package gpupreempt

import (
	"fmt"
	"time"

	"github.com/tandem-gpu/tandem/internal/cluster/podgroup"
	"github.com/tandem-gpu/tandem/internal/scheduler/machine"
)

// yielding returns the gangs that give way to a gang now: see reservation.State.Yields.
func (p *Plugin) yielding(ref podgroup.Ref) (refs []podgroup.Ref) {
	p.machine.Lock(func(l machine.Locked) { refs = l.State.Yielding(ref, p.now()) })
	return refs
}

// yieldWords says which gang gives way to a refused one soon, or to which one it gives way itself, "" for none.
func (p *Plugin) yieldWords(ref podgroup.Ref) (words string) {
	p.machine.Lock(func(l machine.Locked) {
		now := p.now()
		in := func(at time.Time) string {
			if !now.Before(at) {
				return "now"
			}
			return "in " + at.Sub(now).Round(time.Second).String()
		}
		var first time.Time
		for _, other := range l.State.Refs() {
			if at := l.State.Yields(other, ref); !at.IsZero() && (first.IsZero() || at.Before(first)) {
				first, words = at, fmt.Sprintf("; gang %s lacks members too, and can be evicted for this gang %s", other, in(at))
			}
			if at := l.State.Yields(ref, other); !at.IsZero() && (first.IsZero() || at.Before(first)) {
				first, words = at, fmt.Sprintf("; the gang can be evicted for gang %s %s, which lacks members too", other, in(at))
			}
		}
	})
	return words
}
