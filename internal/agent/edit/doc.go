// Package edit renders the edits of a container: device files, environment, mounts and the libraries of the driver.
//
// The edits follow the assignment of the container. The package decides only whether to add the libraries of the
// driver, by the configuration and the host. Package binding decides whether the container may start.
package edit
