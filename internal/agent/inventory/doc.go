// Package inventory holds the devices of the node, with what the agent knows of each: its description, its slots, its
// health and its use.
//
// The inventory wakes the parts of the agent that follow it when a device changes. The package decides what happens to
// a device that the driver no longer lists, and how to publish a device in the GPUNode. Package health decides whether
// a device takes work, and package telemetry measures its use; both write their results here.
package inventory
