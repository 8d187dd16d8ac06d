// Package gpupreempt evicts pods for pods and gangs of a higher priority that find no room: the scheduler plugin GPUPreempt.
//
// It converts between the scheduler framework and core. PostFilter asks package preemption which pods make room, and the
// framework's filters whether the preemptor fits without them. Then it steps the state machine of package reservation, and evicts.
// Package reservation decides how long the room is kept, when a preemptor is tried again and how many pods may be evicted now. The
// plugin GPUShare knows which devices are free. Pods that ask for no vGPU are left to the in-tree plugin, under the same guards.
//
// The words it adds to the glossary:
//
//   - pending preemption: room that is kept for a preemptor while its victims leave. It ends when the preemptor is bound or gone,
//     and when it came to nothing. So it does when the node is lost, a victim stays beyond its grace period, or the preemptor does
//     not fit although the victims are gone;
//   - allowance: how many pods may be evicted now, by the bound of evictions in a minute.
package gpupreempt
