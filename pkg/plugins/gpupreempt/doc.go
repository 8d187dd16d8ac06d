// Package gpupreempt evicts pods for pods and gangs of a higher priority that find no room: the scheduler plugin GPUPreempt.
//
// The package converts between the scheduler framework and core. PostFilter gets from package preemption the pods that
// make room, and from the framework's filters whether the preemptor fits without them. Then it steps the state machine
// of package reservation, and evicts. Package reservation decides how long the plugin keeps the room, when the
// scheduler tries a preemptor again and how many evictions are allowed now. The plugin GPUShare knows which devices are
// free. The in-tree plugin serves pods without vGPUs, under the same guards.
//
// The words it adds to the glossary:
//
//   - pending preemption: room that the scheduler keeps for a preemptor while its victims leave. It ends when the
//     preemptor has its node or is gone, and when it fails. It fails when the node is lost, a victim stays beyond its
//     grace period, or the preemptor does not fit although the victims are gone;
//   - allowance: how many pods may be evicted now, by the bound of evictions in a minute.
package gpupreempt
