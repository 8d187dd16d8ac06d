// Package learning turns what nodes report of pods into what the scheduler knows of workloads: what each uses of a GPU
// that it has alone, how much it suffers from neighbours, and how much it makes them suffer.
//
// It reads GPUNodes, pods and WorkloadProfiles, keeps an interference.Book, shows the scheduler an immutable Snapshot, and
// writes what it learned into the status of WorkloadProfiles, from which it starts anew. It does not decide what may stand
// beside what. A workload is the pods with one label profile, or else with one owner and the same images. A company is the
// pods at work on a device at one time.
//
// # From telemetry to observations
//
// The published use of a device is averaged over the time that one company keeps it, without the time in which it warms
// up. Each interval of that is one observation:
//
//   - of a pod that is alone: its SM utilisation, its memory bandwidth, and the rate that it reports. Several of them make
//     the rate alone that all others are compared with;
//   - of a pod beside up to interference.MaxBeside others: the co-run, its rate as a part of that alone. While nobody
//     knows the rate alone, the speed is relative to a guess, and is corrected when it is measured.
//
// The bandwidth is told of devices, not of pods. It is a pod's own while the pod is alone. Of pods that never are, it is
// the difference between the device's and what the neighbours take alone, until something better is seen.
//
// Pods are not believed: a rate is only ever compared with another of the same workload, values that cannot be are dropped
// and counted, and what a workload says moves its own traits first. It moves a neighbour's pressure only as far as the
// workloads of other owners agree (interference.Book). Owners are namespaces.
package learning
