// Package snapshot says what a scheduler, or the simulator, publishes of a cluster at one moment: nodes and devices, who has
// which share of them, gangs, preemptions, and the pods that wait with the reasons.
//
// The package turns ledgers into a Snapshot and a Snapshot into a vgpu.Cluster again, on which the decisions of the other
// packages can be tried. It checks a Snapshot, and leaves names out for readers who may not see them. The package decides
// nothing about pods, reads and writes no JSON (internal/cluster/snapshotjson does), and knows no API.
//
// A Snapshot is immutable once it is made. Amounts are whole numbers, with the unit in the name of the field. Each list has a
// unique key and is sorted by it, so that equal states have equal snapshots.
package snapshot
