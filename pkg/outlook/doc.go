// Package outlook finds out what becomes of the cluster of a snapshot within a time, as things stand and after a change.
//
// It turns a snapshot into a setup of package sim, plays it, and compares. A pod on a node has its place from the start, and ends when
// it declares; a pod that declares no end runs on. Pods that wait arrive at once, in the order of the queue: by priority, then by age. The
// decisions are those of the packages that the scheduler calls. The package changes no snapshot, and writes no sentences.
//
// The package makes one promise, and its tests check it: a snapshot that the simulator took of a run gives each pod that waited then the
// same place at the same time as that run does, up to the first moment at which another pod arrives, or at which a pod ends that declared no
// end. The promise is for runs without evictions and drains, with given usual requests, gangs without a topology, and pods that ask nothing
// of the host: a snapshot does not have what running pods ask of it.
//
// A snapshot does not have all that the scheduler goes by. Answer.Gaps says what of it matters.
package outlook
