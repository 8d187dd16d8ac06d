// Package e2e runs Tandem on a real cluster of one node: etcd, kube-apiserver under --authorization-mode=Node,RBAC,
// kube-controller-manager, kubelet, containerd and runc, all built from their modules or installed from Debian. Only
// the GPUs are fake, at the driver's ABI (test/fakegpu). The scheduler, the agent, the controller and the MPS host are the
// production binaries under the service accounts, roles and policies of deploy/. The agent's health checks and the
// controller's decisions are more frequent than by default. The program on a GPU in a container is
// test/fakegpu/cmd/tenant, a client of MPS, or examples/elastic/trainer, which only holds its share.
//
// The tests run as root, and only with TANDEM_E2E=1, which `make e2e` sets; `SOAK=1 make e2e` repeats longer.
// `hack/e2e.sh -run TestEndToEnd/swap` passes flags on to go test. TestTorchrun needs Debian's python3-torch and
// TANDEM_E2E_TORCH=1 too; `make e2e-torch` installs the one and sets the other.
//
// TestInstall runs Tandem as users do, in pods whose images the node pulls; it needs TANDEM_E2E_INSTALL=1 too, which
// `make test-install` sets.
//
// # How a run stays apart from the machine
//
// The test binary starts itself again in mount, PID and network namespaces of its own (namespace.go). In there the
// kubelet, containerd and the agent find their usual folders empty (/var/lib/kubelet, /run, /dev/shm, /var/log), and no
// port meets another. When the run ends, however it ends, the kernel ends every process of the PID namespace,
// containers too, and removes mounts and network interfaces with it. The folder tandem-e2e under the temporary
// directory and the control groups named tandem-e2e stay; a run removes both at its start and at its end. After a
// failed run the folder stays until the next one, with all logs in it.
//
// # Pieces
//
// build.go makes the binaries and image.go the images, before the run enters the namespaces. cluster.go starts the
// control plane, dns.go its DNS, node.go the node, tandem.go the scheduler and the agent, controller.go the controller.
// install.go runs Tandem in pods. workload.go makes pods, elastic.go reads what the controller decides, trainer.go and torch.go make trainings, given.go reads what
// their containers saw, witness.go what their programs met, and report.go prints what helps after a failure.
package e2e
