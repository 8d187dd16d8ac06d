// Package gang decides where all pods of a group go at once, or that none of them goes anywhere.
//
// Place puts the members into the tightest domain that takes them, Drain chooses the room that a gang waits for while its
// present owners end. Which devices of a node one pod gets is decided by package placement; which pods form a gang, and
// when it is asked again, by the caller.
//
// The words it adds to the glossary:
//
//   - level: a kind of domain: the key of a node label, or "nvlink" for the devices of one node that NVLink joins;
//   - wishes: the levels of which one domain must take the whole gang, and those of which one should;
//   - spread: how many domains of a level a gang is on.
package gang
