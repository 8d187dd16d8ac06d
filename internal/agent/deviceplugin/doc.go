// Package deviceplugin is the node agent: it offers the slots of the node's GPUs to the kubelet and gives each
// container the devices that the scheduler chose.
//
// The kubelet knows only slots, which are interchangeable tokens: it may hand the slots of one device to a pod that was
// placed on another. The pod's assignment is the truth. So Allocate answers with nothing but a fresh CDI name, and
// PreStartContainer, the last call before a container starts, finds out whose name it is, checks the pod's assignment
// and only then writes what the name means. A container without a valid assignment does not start.
//
// The agent decides whether a start is allowed and whether a device takes work. Which devices a pod gets is the scheduler's decision; how shares
// are kept in their bounds is internal/agent/mps's; what the driver knows is internal/agent/nvml's.
//
// Health: each device has a guard that asks the driver, the control plane of MPS (who is served) and the data plane (a
// canary that tries to be served), and hears of XID errors. What that means is decided by condition alone, a pure state
// machine: a device is healthy, sick or recovering. A sick one offers no slots; its clients are ended or left, what
// served it is replaced, and it takes work again when it has been well for a while. A device that nobody can try is
// unmonitored, which is told and has no other consequence.
//
// It reads pods through the kubelet's local Pods API alone and needs no permission on pods: a fallback to the API
// server would need to list pods of the whole cluster on every node.
package deviceplugin
