// Package gpushare places single pods on shares of GPUs: the scheduler plugin GPUShare.
//
// The package converts between the scheduler framework and core. PreFilter parses the request, Filter and Score call
// package placement about a node, Reserve picks the devices, Bind writes them into the Binding. The package does not
// decide by itself where a pod goes, knows no gangs and chooses no victims.
//
// The words it adds to the glossary:
//
//   - reservation: the devices of a pod between Reserve and the moment when the informer shows them on the pod;
//   - occupancy of a node: the ledger made of the pods in the framework's NodeInfo and the holds, never a running total;
//   - epoch of a node: a number that grows whenever something beside the NodeInfo changes the occupancy;
//   - stray pod: a pod on a node that requests slots and has no valid assignment. A stray owns no devices, but the
//     kubelet gives it slots, so they count for the node as a whole;
//   - rule: the policy with the usual requests of a time, given by the arguments or learned from the pods that arrive.
//
// Only one profile of a scheduler may enable the plugin: two would not see each other's reservations.
package gpushare
