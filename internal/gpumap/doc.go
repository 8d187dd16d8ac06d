// Package gpumap shows snapshots of a cluster as a web page: the GPUs by node with the shares of each, what is sick, slow or idle,
// and why pods wait.
//
// Of turns a snapshot into a Picture, which has everything that the page says; the page itself only draws. Handler serves the page,
// the times of a Source and the pictures. The page is a few embedded files without a build step, and takes nothing from another
// host. The package knows no users: its callers put it behind their own authentication, or on a loopback address.
//
// The words it adds to the glossary:
//
//   - picture: a snapshot as the GPU map shows it.
package gpumap
