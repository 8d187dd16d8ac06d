// Package inventory holds the devices of the node, with what the agent knows of each: its description, its slots, its
// health and its use.
//
// The inventory wakes the parts of the agent that follow it when a device changes. The package decides what happens to
// a device that the driver no longer lists, and how to publish a device in the GPUNode. Whether a device takes work is
// decided by package health, and its use is measured by package telemetry; both write their results here.
package inventory
