package outlook

import (
	"slices"
	"strings"

	"github.com/tandem-gpu/tandem/pkg/vgpu"
)

// Gap is something that the snapshot does not say, or that the simulation does not know, and that matters for the answer.
type Gap string

// The gaps.
const (
	// Endless are pods on nodes that declare no end: they run on for the whole time.
	Endless Gap = "Endless"
	// HostUse are pods on nodes: the CPU and memory that they ask of the host do not come free when they end.
	HostUse Gap = "HostUse"
	// Leaving are pods that leave for others: they are taken as gone, and wait again.
	Leaving Gap = "Leaving"
	// LeftOut are pods that wait and are not in the snapshot.
	LeftOut Gap = "LeftOut"
	// Malformed are pods that wait with a request that is not legal.
	Malformed Gap = "Malformed"
	// Gated are pods with scheduling gates: they are not tried.
	Gated Gap = "Gated"
	// Incomplete are members of gangs that wait for more members.
	Incomplete Gap = "Incomplete"
	// OtherPlugins are pods that another plugin refused on some nodes: for selectors, taints, affinities.
	OtherPlugins Gap = "OtherPlugins"
	// Topology are gangs that wait: the levels that they ask for are not known.
	Topology Gap = "Topology"
	// ClosedNodes are nodes that take no pods now: they take none for the whole time.
	ClosedNodes Gap = "ClosedNodes"
	// Slowdowns are shares whose neighbours change: how much they slow each other down then is not known.
	Slowdowns Gap = "Slowdowns"
	// Names: names are left out.
	Names Gap = "Names"
)

// gaps counts what each gap is about.
type gaps map[Gap]int

// byPlugin reports whether a reason for a refusal is the name of a plugin. The scheduler's own reasons about nodes are sentences, and
// those about devices words of package vgpu.
func byPlugin(reason string) bool {
	own := []vgpu.Reason{
		vgpu.IllegalSlots, vgpu.MemoryAboveDevice, vgpu.ComputeLimitBelowRequest, vgpu.MemoryLimitBelowRequest, vgpu.LimitAboveDevice,
		vgpu.TooFewDevices, vgpu.NoShareFits, vgpu.NoWholeDevices, vgpu.NoTogether, vgpu.NoAllowedModel, vgpu.PromiseBroken, vgpu.NoDevices,
	}
	return reason != "" && !strings.Contains(reason, " ") && !slices.Contains(own, vgpu.Reason(reason))
}
