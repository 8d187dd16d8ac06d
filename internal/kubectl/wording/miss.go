package wording

import (
	"fmt"
	"strings"

	"github.com/tandem-gpu/tandem/pkg/vgpu"
)

// miss says, for the first sentence, why no device takes a pod, with the numbers of the nearest miss.
func miss(r *vgpu.Refusal) string {
	switch r.Reason {
	case vgpu.IllegalSlots:
		return fmt.Sprintf("%d slots are neither a part of one device nor whole devices", r.Want)
	case vgpu.MemoryAboveDevice:
		return fmt.Sprintf("no device that it may use has the %v of memory that it asks for; the largest has %v", vgpu.Bytes(r.Want), vgpu.Bytes(r.Of))
	case vgpu.TooFewDevices:
		return fmt.Sprintf("no node has the %d devices that it asks for; %s has %d", r.Want, r.Node, r.Best)
	case vgpu.NoWholeDevices:
		return fmt.Sprintf("no node has the %d wholly free devices that it asks for; the nearest, %s, has %d", r.Want, r.Node, r.Best)
	case vgpu.NoAllowedModel:
		return fmt.Sprintf("no node has a model that it may use: %s", strings.Join(r.Allowed, ", "))
	case vgpu.NoShareFits:
		return missedShare(r)
	}
	return fmt.Sprintf("on the nearest node, %s, %s", r.Node, Reason(string(r.Reason)))
}

func missedShare(r *vgpu.Refusal) string {
	if r.Device == "" {
		return fmt.Sprintf("only devices that are sick or cordoned could take it, the nearest on %s", r.Node)
	}
	best, want, of := fmt.Sprint(r.Best), fmt.Sprint(r.Want), "slots"
	switch r.Unit {
	case vgpu.UnitBytes:
		best, want, of = vgpu.Bytes(r.Best).String(), vgpu.Bytes(r.Want).String(), "of memory"
	case vgpu.UnitContexts:
		of = "MPS clients"
	}
	return fmt.Sprintf("no healthy device has its share free; the nearest, %s/%s, has %s of the %s %s", r.Node, r.Device, best, want, of)
}
