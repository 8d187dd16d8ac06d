package vgpu

import (
	"fmt"
	"math"
)

// Use is an amount of one device.
type Use struct {
	Slots    Slots
	Memory   Bytes
	Contexts int
}

// UnlimitedContexts is the free number of contexts of a device that has no limit.
const UnlimitedContexts = math.MaxInt

// String writes the amounts for users: "3 slots 12Gi 46 contexts".
func (u Use) String() string {
	if u.Contexts == UnlimitedContexts {
		return fmt.Sprintf("%d slots %v unlimited contexts", u.Slots, u.Memory)
	}
	return fmt.Sprintf("%d slots %v %d contexts", u.Slots, u.Memory, u.Contexts)
}

// Plus returns the sum.
func (u Use) Plus(v Use) Use {
	return Use{u.Slots + v.Slots, u.Memory + v.Memory, u.Contexts + v.Contexts}
}

// Minus returns the difference, in each amount at least zero.
func (u Use) Minus(v Use) Use {
	return Use{max(0, u.Slots-v.Slots), max(0, u.Memory-v.Memory), max(0, u.Contexts-v.Contexts)}
}

// Within reports whether no amount is above v's.
func (u Use) Within(v Use) bool {
	return u.Slots <= v.Slots && u.Memory <= v.Memory && u.Contexts <= v.Contexts
}

// most returns the larger of each amount.
func (u Use) most(v Use) Use {
	return Use{max(u.Slots, v.Slots), max(u.Memory, v.Memory), max(u.Contexts, v.Contexts)}
}

// Use returns what the share takes of each of its devices. A share of one device is one MPS client. Several whole
// devices run outside MPS, since a process has one MPS pipe and a pipe serves one device here.
func (s *Share) Use() Use {
	if s.Devices > 1 {
		return Use{Slots: s.Slots, Memory: s.Memory}
	}
	return Use{Slots: s.Slots, Memory: s.Memory, Contexts: 1}
}

// Capacity returns what a device has, healthy or not.
func (d *Device) Capacity() Use {
	contexts := d.Contexts
	if contexts == 0 {
		contexts = UnlimitedContexts
	}
	return Use{Slots: d.Slots, Memory: d.Memory, Contexts: contexts}
}

// Span is the phases of a pod in which a container runs, first and last included. Phase i is the run of the i-th init
// container; the last phase is that of the app containers.
type Span struct{ First, Last int }

// Spans returns the span of each container, and the number of phases. Kinds are in the pod's order. Example: sidecar,
// init, sidecar, app has the phases 0 (init) and 1 (app); the spans are 0–1, 0–0, 1–1, 1–1.
func Spans(kinds []ContainerKind) (spans []Span, phases int) {
	inits := 0
	for _, k := range kinds {
		if k == Init {
			inits++
		}
	}
	before := 0
	for _, k := range kinds {
		switch k {
		case Init:
			spans = append(spans, Span{before, before})
			before++
		case Sidecar:
			spans = append(spans, Span{before, inits})
		default:
			spans = append(spans, Span{inits, inits})
		}
	}
	return spans, inits + 1
}

// deviceUse is what a pod takes of one device of its node.
type deviceUse struct {
	device int
	use    Use
}

// Peak adds containers up, in the pod's order, to the most that any phase of the pod takes of one device. The zero
// value is an empty pod. Slots, memory and contexts each have their own peak, possibly in different phases, so that the
// result may be too large and never too small.
type Peak struct{ sidecars, inits, apps Use }

// Add adds the next container of the pod.
func (p *Peak) Add(kind ContainerKind, u Use) {
	switch kind {
	case Init:
		p.inits = p.inits.most(p.sidecars.Plus(u))
	case Sidecar:
		p.sidecars = p.sidecars.Plus(u)
	default:
		p.apps = p.apps.Plus(u)
	}
}

// Use returns the peak of the containers added so far.
func (p *Peak) Use() Use { return p.inits.most(p.sidecars.Plus(p.apps)) }
