// Package edit renders what a container is given: device files, environment, mounts and the libraries of the driver.
//
// It follows the assignment of the container and decides nothing but whether the libraries of the driver are added, which
// depends on the configuration and on the host. Whether the container may start is decided by package binding.
package edit
