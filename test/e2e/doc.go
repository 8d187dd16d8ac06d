// Package e2e runs Tandem on a real cluster of one node: etcd, kube-apiserver under --authorization-mode=Node,RBAC,
// kube-controller-manager, kubelet, containerd and runc, all built from their modules or installed from Debian. Only
// the GPUs are made up, at the driver's ABI (test/fakegpu). The scheduler, the agent and the MPS host are the production
// binaries under the service accounts, roles and policies of deploy/; the agent's health checks are more frequent than by
// default. What works on a GPU in a container is test/fakegpu/cmd/tenant, a client of MPS.
//
// The tests run as root, and only when asked: `make e2e`, which sets TANDEM_E2E=1; `SOAK=1 make e2e` repeats longer.
// `hack/e2e.sh -run TestEndToEnd/swap` passes flags on to go test.
//
// # How a run is kept apart from the machine
//
// The test binary starts itself again in mount, PID and network namespaces of its own (namespace.go). In there the
// kubelet, containerd and the agent find their usual folders empty (/var/lib/kubelet, /run, /dev/shm, /var/log), and no port
// meets another. When the run ends, however it ends, the kernel kills every process of the PID namespace, containers
// too, and takes mounts and network interfaces with it. What remains are the folder tandem-e2e under the temporary
// directory and the control groups named tandem-e2e; a run removes both at its start and at its end. After a failed
// run the folder stays until the next one, with all logs in it.
//
// # Pieces
//
// build.go makes the binaries and image.go the images, before the namespaces are entered; cluster.go starts the
// control plane, node.go the node, tandem.go the scheduler and the agent; workload.go makes pods, given.go reads what
// their containers saw and witness.go what their programs met, report.go prints what helps after a failure.
package e2e
