// Package deviceplugin is the node agent. It offers the slots of the node's GPUs to the kubelet, and connects the parts
// that give each container the devices that the scheduler chose.
//
// The kubelet knows only slots, which are interchangeable tokens: it may give the slots of one device to a pod whose
// assignment names another. The assignment of the pod is the truth. So Allocate answers with nothing but a fresh CDI
// name. PreStartContainer is the last call before a container starts: there package binding finds the pod of the name,
// checks its assignment, and writes the meaning of the name. A container without a valid assignment does not start.
//
// The package holds the gRPC server of the device plugin, the registration with the kubelet, the HTTP server, and the
// wiring. The package decides when the agent registers and what it does while there is no driver. The parts decide the
// rest: health, binding, telemetry, termination, sharedmemory and gpunode each have a loop, and inventory, podsource
// and allocation hold the state that the loops share. A part imports only parts that it reads from, so there is no
// arrow from them back to this package.
package deviceplugin
