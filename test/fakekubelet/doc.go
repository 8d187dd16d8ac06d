// Package fakekubelet plays a kubelet towards a device plugin, for the demo and for tests without root.
//
// It speaks the kubelet's real protocols in the kubelet's order: it serves Registration on kubelet.sock, dials the
// plugin that registers, follows ListAndWatch into the node's status, admits the pods that are bound to its node one
// after the other (GetPreferredAllocation, Allocate; init containers first, their devices given again to what starts
// after them), writes kubelet_internal_checkpoint, serves pod-resources and the Pods API, calls PreStartContainer for
// each container and resolves CDI names through the library that containerd uses. The Registration server, the client
// of ListAndWatch, the pod-resources server and the checkpoint's format are the kubelet's own code; the allocation
// follows pkg/kubelet/cm/devicemanager/manager.go of Kubernetes 1.37.
//
// What it does not do, and a test on it cannot show:
//   - No process runs. A container is a record of what it would have been given (Container); init containers end
//     at once, the others run until their pod is deleted, and no container restarts.
//   - The record stands for the container runtime: it outlives the kubelet, in a file.
//   - Of the admission checks there is only the device manager: no CPU, memory, taints or node affinity.
//   - No NUMA alignment (the kubelet's topology policy "none"), and free devices are taken in the order of their
//     names, where the kubelet's order is random.
//   - CDI specs are read anew for each container, where containerd watches the directory.
//   - A pod that is deleted ends at once, whatever its grace period.
//   - Heartbeats are node status without a lease, and it takes the not-ready taint from its
//     new node, in place of the node controller.
package fakekubelet
