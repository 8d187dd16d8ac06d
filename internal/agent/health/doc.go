// Package health decides whether a device takes work, and cures it where it can.
//
// The keeper has one guard for each device. A guard asks the driver, the control plane of MPS (which clients are served)
// and the data plane (a canary program that tries to be served), and receives XID errors. The type condition alone decides
// what that means; it is a pure state machine: a device is healthy, sick or recovering. A sick device offers no slots. Its
// clients are ended or left, its MPS daemon is replaced, and it takes work again when it has been well for a while. A
// device that no canary can try is unmonitored, which the GPUNode says and which has no other consequence.
//
// The package publishes its verdicts in the inventory. It knows nothing of pods; the caller tells it which devices a
// container has by itself.
package health
