// Package health decides whether a device takes work, and cures it where it can.
//
// The keeper has one guard for each device. A guard queries the driver, the control plane of MPS (the list of clients)
// and the data plane (a canary program that connects as a client), and receives XID errors. The type condition alone
// decides, as a pure state machine, whether a device is healthy, unhealthy or recovering. An unhealthy device offers no
// slots. The guard ends its clients or waits for them, and replaces its MPS daemon. The device takes work again when it
// has been well for a while. A device that no canary can try is unmonitored: the GPUNode says so, without another
// consequence.
//
// The package publishes its verdicts in the inventory. The package knows no pods; its caller knows the devices that a
// container has by itself.
package health
