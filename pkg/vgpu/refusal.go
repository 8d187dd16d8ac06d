package vgpu

// Reason names why the cluster cannot meet a request.
type Reason string

// Reasons of refusals.
const (
	// IllegalSlots: more than one device's slots and no multiple of them.
	IllegalSlots Reason = "IllegalSlots"
	// MemoryAboveDevice: more memory than the devices have.
	MemoryAboveDevice Reason = "MemoryAboveDevice"
	// ComputeLimitBelowRequest and MemoryLimitBelowRequest: a ceiling under the guaranteed share.
	ComputeLimitBelowRequest Reason = "ComputeLimitBelowRequest"
	MemoryLimitBelowRequest  Reason = "MemoryLimitBelowRequest"
	// LimitAboveDevice: a ceiling above what the device has.
	LimitAboveDevice Reason = "LimitAboveDevice"
	// TooFewDevices: more whole devices than the node has, even if all of them were healthy and free.
	TooFewDevices Reason = "TooFewDevices"
	// NoShareFits: no healthy device has the slots, memory or contexts free.
	NoShareFits Reason = "NoShareFits"
	// NoWholeDevices: not enough healthy devices are wholly free.
	NoWholeDevices Reason = "NoWholeDevices"
	// NoTogether: every container fits alone, but not all of them at once.
	NoTogether Reason = "NoTogether"
	// NoAllowedModel: no device is of a model that the pod may use.
	NoAllowedModel Reason = "NoAllowedModel"
	// PromiseBroken: enough is free, but neighbours would slow a pod there, or the pod itself, down more than it
	// tolerates.
	PromiseBroken Reason = "PromiseBroken"
	// NoDevices: the node has no devices.
	NoDevices Reason = "NoDevices"
)

// Help says what could make room.
type Help int

const (
	// NothingHelps says that this node can never meet the request.
	NothingHelps Help = iota
	// EvictionHelps says that other pods use what the request needs.
	EvictionHelps
	// RecoveryHelps says that unhealthy devices have what the request needs.
	RecoveryHelps
)

// Unit is what the numbers of a Refusal count.
type Unit string

// Units of refusals.
const (
	UnitSlots    Unit = "slots"
	UnitBytes    Unit = "bytes"
	UnitMilliGPU Unit = "milliGPU"
	UnitDevices  Unit = "devices"
	UnitContexts Unit = "contexts"
	// UnitMilliSlowdown: time beside neighbours in thousandths of the time alone.
	UnitMilliSlowdown Unit = "milliSlowdown"
)

// Refusal says why a device, node or cluster cannot meet a request, with the numbers. A Refusal is an answer, not an
// error.
type Refusal struct {
	Reason Reason
	Helps  Help
	// Container of the refusal, "" for the pod as a whole.
	Container string
	// Node and Device name the nearest miss, when there is one; Device is the name for users ("g1").
	Node   string
	Device string
	// Model of the device that the numbers are from, when there is one.
	Model string
	// Unit of Want, Best and Of.
	Unit Unit
	// Want is the amount in the request. Best is the most that is possible (for a limit below the request: the least
	// legal limit; for PromiseBroken the predicted slowdown).
	Want, Best int64
	// Of is the capacity that Best is a part of.
	Of int64
	// Legal lists the nearest legal values for IllegalSlots, ascending.
	Legal []Slots
	// Allowed and Present list, for NoAllowedModel, the models that the pod may use and those of the node or cluster,
	// sorted.
	Allowed, Present []string
	// Promised is the pod whose max-slowdown would break, for PromiseBroken: "" for the refused pod. Beside are the
	// pods on the device, by name.
	Promised string
	Beside   []string
	// Declared are the pods, "" for the refused one, whose declared use counts for more than the declaration.
	Declared []string
	// Cut says that the search reached its limit: there may be a fit that it did not try.
	Cut bool
}
