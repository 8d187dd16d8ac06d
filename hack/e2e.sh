#!/usr/bin/env bash
# The end-to-end tests: a real kubelet, containerd and runc on this machine, Tandem's production binaries, made-up GPUs.
#
#   make e2e                               all scenarios; SOAK=1 repeats the one about swapped slots 200 times
#   make e2e SMOKE=1                       what every commit must pass: one scenario of each kind
#   make e2e KUBELET=1.35.4                with that kubelet; KUBERNETES=… with that API server and controller manager
#   make e2e POD_SOURCE=apiserver          with a kubelet that does not serve the Pods API, as all before 1.37
#   make test-install                      Tandem in pods, whose images the node pulls: installed, upgraded, taken back, removed
#   make e2e-torch                         the one with PyTorch alone: TORCH=1 hack/e2e.sh, which installs Debian's python3-torch
#   hack/e2e.sh -run 'TestEndToEnd/lost'   with flags of go test
#
# Needs root: containers, mounts and network namespaces are made. On Debian and its relatives it installs what is
# missing; elsewhere it names it. All else is built from the modules under tools/ and cached.
set -euo pipefail
cd "$(dirname "$0")/.."

if [[ $EUID -ne 0 ]]; then
	echo "e2e: the kubelet and containerd need root: run make e2e as root" >&2
	exit 1
fi

# Each package with the file that shows that it is there, from whatever source.
missing=()
command -v runc >/dev/null || missing+=(runc)
command -v ip >/dev/null || missing+=(iproute2)
command -v mount >/dev/null || missing+=(mount)
[[ -x /usr/lib/cni/ptp || -x /opt/cni/bin/ptp ]] || missing+=(containernetworking-plugins)
[[ -x /bin/busybox ]] || missing+=(busybox-static)
if [[ -n "${TORCH:-}" && ! -d /usr/lib/python3/dist-packages/torch ]]; then
	missing+=(python3-torch)
	echo "e2e: python3-torch is a download of 150 MB and takes 650 MB of the disk" >&2
fi

if ((${#missing[@]})); then
	if ! command -v apt-get >/dev/null; then
		echo "e2e: missing: ${missing[*]} (names of Debian's packages); install them and try again" >&2
		exit 1
	fi
	echo "e2e: installing ${missing[*]}" >&2
	export DEBIAN_FRONTEND=noninteractive
	apt-get update -q
	apt-get install -q -y --no-install-recommends "${missing[@]}"
fi

if [[ -n "${INSTALL:-}" ]]; then
	TANDEM_E2E=1 TANDEM_E2E_INSTALL=1 exec go test -count=1 -v -timeout 40m -run '^TestInstall$' ./test/e2e "$@"
fi

if [[ -n "${TORCH:-}" ]]; then
	TANDEM_E2E=1 TANDEM_E2E_TORCH=1 exec go test -count=1 -v -timeout 60m -run '^TestTorchrun$' ./test/e2e "$@"
fi

if [[ -n "${SMOKE:-}" ]]; then
	smoke=(
		init-and-app-containers-each-get-their-own-share
		two-pods-bound-together-keep-their-devices
		a-gang-of-four-starts-together-on-one-node
		a-preemptor-runs-on-the-share-that-its-victim-leaves
		pods-survive-a-restart-of-the-kubelet
		pods-survive-a-crash-of-the-agent
		an-agent-that-crashes-again-and-again-costs-a-pod-a-pause
		pods-survive-a-crash-of-the-scheduler
		a-forged-assignment-is-denied
		a-lost-gpu-takes-no-pods-until-it-is-back
	)
	TANDEM_E2E=1 exec go test -count=1 -v -timeout 60m -run "^TestEndToEnd\$/^($(IFS='|'; echo "${smoke[*]}"))\$" ./test/e2e "$@"
fi

# The one test elsewhere that needs kube-controller-manager, which is built for these tests alone.
version=${TANDEM_KUBERNETES:+@$TANDEM_KUBERNETES}
go run ./internal/sandbox/tools etcd "kube-apiserver$version" "kube-controller-manager$version" >/dev/null
TANDEM_E2E=1 go test -count=1 -timeout 30m -run TestControllerManagerMakesServiceAccounts ./internal/sandbox

# The limit is for a first run, which builds Kubernetes and containerd, and for SOAK=1.
TANDEM_E2E=1 exec go test -count=1 -v -timeout 60m ./test/e2e "$@"
