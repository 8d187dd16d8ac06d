// Package binding lets a container start that has a valid assignment, and gives the CDI name of the container its meaning.
//
// When the kubelet is about to start a container, the binder finds the pod by the slots. It checks the assignment
// against the node and against the pods that run, waits until MPS serves the device, and writes the CDI spec. The
// binder refuses every other start with a reason. Afterwards the sweeper keeps the specs in step with the pods and
// counts containers that differ from their assignment.
//
// The scheduler decides which devices a pod gets, and package health whether a device takes work.
package binding
