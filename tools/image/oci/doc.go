// Package oci makes container images of single programs, without a container engine and without a base image.
//
// An image holds the program under /usr/bin, the shared libraries that it needs, further files that its maker names, and an empty
// /tmp. Its labels name the version and the commit of the program. Files have no times and fixed owners, so the same input gives
// the same digest.
package oci
