// Package learning turns telemetry of nodes into knowledge of workloads. It learns what each workload uses of a GPU
// without neighbours, how much it suffers from neighbours, and how much it harms them.
//
// The package reads GPUNodes, pods and WorkloadProfiles, keeps an interference.Book, and shows the scheduler an
// immutable Snapshot. The learner writes the results into the status of WorkloadProfiles, and reads them back after a
// restart. The package does not decide which pods share a device. A workload is the pods with one label profile, or
// else with one owner and the same images. A tenant group is the pods at work on a device at one time.
//
// # From telemetry to observations
//
// The learner averages the published use of a device over the time of one tenant group, without the warm-up at its
// start. Each interval of that time is one observation:
//
//   - of a pod without neighbours: its SM utilisation, its memory bandwidth, and the rate that it reports. Several of
//     them make the rate alone, to which the learner compares all other rates;
//   - of a pod beside up to interference.MaxBeside others: the co-run, its rate as a part of the rate alone. While the
//     rate alone is unknown, the speed is relative to a guess, and the learner corrects it after a measurement.
//
// Nodes publish the bandwidth of devices, not of pods. The bandwidth is a pod's own while the pod has no neighbours.
// For pods that always have some, it is the device's bandwidth less what the neighbours use alone, until a measurement
// gives a better value.
//
// The learner does not trust pods. The learner compares a rate only with others of the same workload, and drops and
// counts impossible values. The reports of a workload change its own traits first. They change a neighbour's pressure
// only as far as the workloads of other owners agree (interference.Book). Owners are namespaces.
package learning
