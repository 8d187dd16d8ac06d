// Package fakekubelet plays a kubelet towards a device plugin, for the demo and for tests without root.
//
// The protocols and their order are the kubelet's. Registration is on kubelet.sock; the package dials the plugin that
// registers and follows ListAndWatch into the node's status. It admits the pods of its node one after the other
// (GetPreferredAllocation, Allocate; init containers first, their devices given again to what starts after them). It
// writes kubelet_internal_checkpoint, and serves pod-resources and the Pods API. It calls PreStartContainer for each
// container and resolves CDI names through the library that containerd uses. The Registration server, the client of
// ListAndWatch, the pod-resources server and the checkpoint's format are the kubelet's own code; the allocation follows
// pkg/kubelet/cm/devicemanager/manager.go of Kubernetes 1.37.
//
// These parts are missing, so no test on it can cover them:
//   - No process runs. A container is a record of its would-be configuration (Container); init containers end at once,
//     the others run until the deletion of their pod, and no container restarts.
//   - The record stands for the container runtime: it outlives the kubelet, in a file.
//   - Of the admission checks there is only the device manager: no CPU, memory, taints or node affinity.
//   - No NUMA alignment (the kubelet's topology policy "none"); the order of free devices is that of their names, where
//     the kubelet's order is random.
//   - Each container reads CDI specs anew, where containerd watches the directory.
//   - A pod in deletion ends at once, whatever its grace period.
//   - Heartbeats are node status without a lease, and it takes the not-ready taint from its
//     new node, in place of the node controller.
package fakekubelet
