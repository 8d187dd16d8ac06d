# Everything that Tandem's developers and users run. `make help` lists it.
#
# Binaries that are built from modules (etcd, kube-apiserver, the linter, …) are cached outside of the tree, under
# ${TANDEM_CACHE} or the user's cache directory; only what is missing is built.

SHELL := bash
.SHELLFLAGS := -o pipefail -ec
.DEFAULT_GOAL := help

# go-nvml's header marks functions deprecated that cgo still has to name.
export CGO_CFLAGS := -Wno-deprecated-declarations
# Without the path of the checkout in what is compiled, all checkouts of a machine share Go's cache.
export GOFLAGS := $(strip $(filter-out -trimpath,$(shell go env GOFLAGS)) -trimpath)
export TANDEM_DATA := $(or $(TANDEM_DATA),$(wildcard $(CURDIR)/../shared/data))

CACHE := $(or $(TANDEM_CACHE),$(or $(XDG_CACHE_HOME),$(HOME)/.cache)/tandem)

# More flags of go test, for example TEST_FLAGS="-count=1 -shuffle=on". Most flags that are not empty turn Go's test cache off.
TEST_FLAGS ?=
# What the tests are run of, for example PACKAGES="./pkg/gang ./test/gangs".
PACKAGES ?= ./...
TOOLS = PATH="$$(go run ./internal/sandbox/tools $(1)):$$PATH"

.PHONY: help build check test race stress nightly properties faults lint demo sim e2e e2e-torch gpu-test gpu-folder bench verify generate image clean

help: ## list the targets
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | awk -F':.*## ' '{printf "  %-15s %s\n", $$1, $$2}'

build: ## build the binaries into bin/
	@mkdir -p bin
	go build -ldflags "$$(hack/version.sh ldflags)" -o bin/ ./cmd/...

# The packages whose tests start no etcd, no API server and no kubelet: those that build such programs use the sandbox.
LIGHT = go list -f '{{.ImportPath}} {{.Imports}} {{.TestImports}} {{.XTestImports}}' ./... | grep -v /internal/sandbox | cut -d' ' -f1
# With -short rapid makes a fifth of the checks, which is too few for the tests that count what they met: 500 makes it the usual 100.
check: lint ## lint, and the tests that start no API server; Go's cache passes over what has not changed
	RAPID_CHECKS=500 hack/test.sh -short -timeout=20m -- $$($(LIGHT))

# go vet is a part of lint: the tests do not repeat it.
test: tested-with ## run the tests of what has changed, of PACKAGES="./pkg/gang …"; the first run builds etcd and kube-apiserver
	@$(if $(filter ./...,$(PACKAGES)),go test -C tools/image ./... && go test -C tools/release ./... && go test -C tools/site -count=1 ./...) # modules of their own
	@hack/test.sh -vet=off -timeout=30m $(TEST_FLAGS) -- $(PACKAGES)

race: tested-with ## run the tests with the race detector; it compiles everything once more
	@hack/test.sh -vet=off -timeout=2h -race $(TEST_FLAGS) -- $(PACKAGES)

export ROUNDS ?= 3
export LOAD ?= 3 # busy loops a core: with the tests themselves four times as much to do as there are cores
stress: tested-with ## ROUNDS=3 runs of the tests beside busy loops, LOAD=3 a core; PACKAGES as for test
	@hack/stress.sh $(PACKAGES)

nightly: ## everything that can be checked without a GPU, in hours, and a table; it goes on where it ended; STAGES="e2e race"
	@hack/nightly.sh

.PHONY: tested-with test-programs
# Programs of others that the tests start are built here, with progress, and never within a test.
STARTED = etcd kube-apiserver gotestsum $(if $(filter ./... ./test/... ./test/guides,$(PACKAGES)),kubectl) \
	$(if $(filter ./... ./internal/... ./internal/release%,$(PACKAGES)),helm) $(if $(filter ./... ./internal/... ./internal/metrics%,$(PACKAGES)),promtool)
tested-with: test-programs # builds what the tests start
	@go run ./internal/sandbox/tools $(STARTED) >/dev/null

test-programs: ## build those of Tandem's programs that tests start into bin/test
	@hack/test-programs.sh

.PHONY: test-operators
test-operators: tested-with ## six operators make gangs and are resized, with their real controllers; measure fleets by Prometheus, ask it for all dashboards; the first run builds them
	@go run ./internal/sandbox/tools prometheus sigs.k8s.io/jobset:. sigs.k8s.io/lws:./cmd github.com/ray-project/kuberay/ray-operator:. \
		github.com/kubeflow/training-operator:./cmd/training-operator.v1 github.com/kubeflow/trainer/v2:./cmd/trainer-controller-manager \
		github.com/kubeflow/mpi-operator:./cmd/mpi-operator >/dev/null
	TANDEM_OPERATORS=1 go test -count=1 -timeout 30m -run 'TestOperators$$|TestFleetsPrometheus$$|TestMonitoring$$' -v ./test/integration ./test/demo

.PHONY: test-kueue
test-kueue: tested-with ## Kueue and JobSet in front of the scheduler, with the AdmissionCheck; as root; the first run builds them
	@go run ./internal/sandbox/tools sigs.k8s.io/kueue:./cmd/kueue sigs.k8s.io/jobset:. >/dev/null
	TANDEM_KUEUE=1 go test -count=1 -timeout 30m -run 'TestKueue$$' -v ./test/integration

.PHONY: test-autoscaler
test-autoscaler: tested-with ## Karpenter makes and removes nodes for pods with vGPUs, three minutes; the first run builds it
	@go run ./internal/sandbox/tools sigs.k8s.io/karpenter:./kwok >/dev/null
	TANDEM_AUTOSCALER=1 go test -count=1 -timeout 30m -run 'TestAutoscaler$$' -v ./test/integration

.PHONY: test-notebooks
test-notebooks: tested-with ## park and wake a real Jupyter server, three minutes; as root it installs Debian's jupyter-server
	@/usr/bin/python3 -c 'import jupyter_server, ipykernel' 2>/dev/null || { echo "test-notebooks: installing Debian's jupyter-server and python3-ipykernel (33 MB)"; \
		apt-get update -qq && DEBIAN_FRONTEND=noninteractive apt-get install -y --no-install-recommends jupyter-server python3-ipykernel; }
	TANDEM_NOTEBOOKS=1 go test -count=1 -timeout 20m -run 'TestNotebooks$$' -v ./test/integration

.PHONY: test-gateway
test-gateway: tested-with ## send requests through traefik to inference fleets, beside autoscalers too, 20 minutes; as root or with user namespaces; builds traefik first
	@go run ./internal/sandbox/tools traefik prometheus sigs.k8s.io/prometheus-adapter:./cmd/adapter >/dev/null
	TANDEM_GATEWAY=1 go test -count=1 -timeout 60m -run 'TestFleetsGateway$$' -v ./test/integration

.PHONY: test-page
test-page: ## the GPU map in Debian's Chromium, half a minute; as root it installs Chromium; IMAGES=docs/images renews the guide's pictures
	hack/test-page.sh

HISTORIES ?= 10000 # of gangs, of four kinds: 7 to 15 minutes each on two cores
CASES ?= 10000 # of each property
properties: ## run the property tests with 10,000 cases each, and 10,000 histories of gangs of each kind; CASES, HISTORIES
	RAPID_CHECKS=$(CASES) go test -timeout 60m -run 'Property|Law' ./pkg/vgpu/... ./pkg/fragmentation/... ./pkg/interference/... ./pkg/placement/... \
		./pkg/gang/... ./pkg/preemption/... ./pkg/elastic/... ./pkg/traffic/... ./pkg/notebook ./pkg/why ./evaluation/mig/... ./internal/agent/health ./internal/agent/telemetry
	go test -v -timeout 120m -run Histories ./test/gangs -histories=$(HISTORIES)

faults: tested-with ## 200 random sequences of faults on nodes (minutes); as root full disks too
	go test -count=1 -timeout 60m -run TestRandomSequences -v ./test/faults -sequences=200 -together=16

lint: ## gofmt, how sentences begin, and golangci-lint, of which go vet is a part
	@hack/lint.sh

demo: ## a whole cluster on this machine, without GPUs; KEEP=1 leaves it up, KUBERNETES=1.35.4 has that API server
	@echo "demo: compiling (minutes, the first time)"
	@hack/still.sh "demo: compiling" go build -o bin/demo ./test/demo
	bin/demo $(if $(KUBERNETES),--kubernetes=$(KUBERNETES)) $(if $(KEEP),--keep)

sim: ## play the example scenarios with the scheduler's decisions (seconds)
	@for s in examples/*.yaml; do go run ./cmd/simulator run $$s && echo || exit; done

e2e: ## real kubelet and containerd; as root, Debian; SMOKE=1 a third of it, SOAK=1 repeats longer, KUBELET=1.35.4 has that kubelet, KUBERNETES API server, POD_SOURCE=apiserver no Pods API
	TANDEM_KUBELET=$(KUBELET) TANDEM_KUBERNETES=$(KUBERNETES) TANDEM_POD_SOURCE=$(POD_SOURCE) SMOKE=$(SMOKE) hack/e2e.sh

e2e-torch: ## as e2e, a training with PyTorch's torchrun alone; nine minutes; installs Debian's python3-torch (650 MB)
	TORCH=1 hack/e2e.sh

.PHONY: test-install
test-install: ## as e2e, Tandem in pods, whose images the node pulls from a registry on loopback: installed, upgraded, taken back, removed, by install.yaml and by Helm; six minutes
	INSTALL=1 hack/e2e.sh

gpu-test: ## measure MPS and the agent on this machine's NVIDIA GPU, in runs of 9 minutes (OUT=bin/gpu/report.json); gpu-folder packs it for another machine
	hack/gpu-test.sh run

gpu-folder: ## pack the GPU suite into bin/gpu-test, for a Linux machine with a GPU and without Go
	hack/gpu-test.sh pack

bench: ## speed, beside the stock scheduler, against the allowed ranges
	hack/bench.sh

generate: ## generate deepcopy, defaults, conversions, the CRDs, dashboards, alerts and docs/reference
	hack/generate.sh

verify: generate ## fail if generated code differs from the committed one
	@git diff --exit-code -- pkg/api deploy/crds deploy/monitoring docs/reference || { echo "run make generate and commit the result"; exit 1; }
	@test -z "$$(git status --porcelain -- pkg/api deploy/crds deploy/monitoring docs/reference)" || { git status --short -- pkg/api deploy/crds deploy/monitoring docs/reference; exit 1; }

.PHONY: release test-release vulnerabilities
PLATFORMS ?= # of a trial: linux/amd64,linux/arm64,…; all where it is empty
DIST ?= $(CURDIR)/dist
RELEASE = go run -C tools/release .
release: ## VERSION=v0.1.0: images, manifests, chart, kubectl-tandem, checksums, SBOM and licences into dist/; REGISTRY=HOST/PATH, PLATFORMS, DIRTY=1
	@$(if $(DIRTY),,go run ./test/flakes list "$(CACHE)/flakes" || { echo "release: mend these tests, or delete them, and then their lines; DIRTY=1 is for a trial"; exit 1; })
	$(RELEASE) build -version=$(VERSION) -registry=$(REGISTRY) -platforms=$(strip $(PLATFORMS)) -output=$(abspath $(DIST)) $(if $(DIRTY),-dirty)
	$(RELEASE) check -version=$(VERSION) -platforms=$(strip $(PLATFORMS)) $(abspath $(DIST))

test-release: ## build a release twice, in this tree and in a clone elsewhere, and compare; VERSION, PLATFORMS as for release
	hack/test-release.sh

vulnerabilities: ## known vulnerabilities of the dependencies, where https://vuln.go.dev can be reached; REQUIRED=1 fails where not
	@if curl -fsS -m 20 -o /dev/null https://vuln.go.dev/index/db.json; then $(call TOOLS,govulncheck); govulncheck ./cmd/...; \
		else echo "vulnerabilities: NOT CHECKED: this machine does not reach the database, https://vuln.go.dev"; test -z "$(REQUIRED)"; fi

SITE_VERSION ?= main
.PHONY: site
site: ## build the documentation site into bin/site, offline, and follow its links (seconds); SITE_VERSION=v0.1.0 adds a version
	go run -C tools/site . --root "$(CURDIR)" --out "$(CURDIR)/bin/site" --version "$(SITE_VERSION)"

image: ## build the container images as OCI archives into bin/images
	hack/image.sh

clean: ## remove what the build left in the tree
	rm -rf bin dist
