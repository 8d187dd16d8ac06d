// Package gang decides where all pods of a group go at once, or that the group has no place.
//
// Place puts the members into the tightest domain that takes them. Drain chooses the devices that a gang waits for
// while the pods on them end. Package placement decides which devices of a node one pod gets. The caller decides which
// pods form a gang, and when to call again.
//
// The words it adds to the glossary:
//
//   - level: a kind of domain: the key of a node label, or "nvlink" for the devices of one node that NVLink joins;
//   - wishes: the levels of which one domain must take the whole gang, and those of which one should;
//   - spread: how many domains of a level a gang is on;
//   - blocker: a pod that must end before a gang has its places.
package gang
