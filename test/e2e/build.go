package e2e

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"

	"k8s.io/apimachinery/pkg/util/version"

	"github.com/tandem-gpu/tandem/internal/sandbox"
	"github.com/tandem-gpu/tandem/test/fakegpu"
)

// Versions of Kubernetes that the tests run with, "" for that of tools/controlplane: of the kubelet, and of the API server and
// the controller manager.
var (
	kubeletVersion    = os.Getenv("TANDEM_KUBELET")
	kubernetesVersion = os.Getenv("TANDEM_KUBERNETES")
)

// podSource is "apiserver" for a kubelet without its Pods API.
var podSource = os.Getenv("TANDEM_POD_SOURCE")

// smoke reports whether scenarios that repeat something do so no more often than it takes to see it once: what each commit must pass.
func smoke() bool { return os.Getenv("SMOKE") != "" }

// podsFromServer reports whether the kubelet serves no Pods API, so that the agent has to use the API server.
func podsFromServer() bool {
	older := false
	if kubeletVersion != "" {
		v, err := version.ParseGeneric(kubeletVersion)
		older = err == nil && v.LessThan(version.MustParseGeneric("1.37.0"))
	}
	return older || podSource == "apiserver"
}

// noPodsAPI turns the kubelet's Pods API off where it is on by default.
func noPodsAPI() string {
	if podSource == "apiserver" && kubeletVersion == "" {
		return "featureGates: {PodsAPI: false}\n"
	}
	return ""
}

// kubelet is the kubelet's name among the tools.
func kubelet() string { return sandbox.At("kubelet", kubeletVersion) }

// Programs of the cluster, by default from the modules under tools/.
func clusterPrograms() []string {
	return []string{
		"etcd", sandbox.At("kube-apiserver", kubernetesVersion), sandbox.At("kube-controller-manager", kubernetesVersion), kubelet(),
		"containerd", "containerd-shim-runc-v2", "ctr",
	}
}

// build makes every program that the run needs: inside of the namespaces there is no network to fetch modules from.
func build(ctx context.Context, l layout) error {
	if _, err := sandbox.Build(ctx, clusterPrograms()...); err != nil {
		return err
	}
	root, err := sandbox.Root()
	if err != nil {
		return err
	}
	fmt.Fprintln(os.Stderr, "e2e: building the scheduler, the agent, the controller and the fake driver")
	for _, p := range []struct {
		name, dir string
		env       string
	}{
		{"tandem-scheduler", "cmd/scheduler", "CGO_ENABLED=0"},
		{"tandem-device-plugin", "cmd/device-plugin", "CGO_ENABLED=1"}, // go-nvml loads the driver's library
		{"tandem-controller", "cmd/controller", "CGO_ENABLED=0"},
		{"pause", "test/e2e/pause", "CGO_ENABLED=0"},           // its image holds no libraries
		{"tenant", "test/fakegpu/cmd/tenant", "CGO_ENABLED=0"}, // nor does that of the pods
		{"trainer", "examples/elastic/trainer", "CGO_ENABLED=0"},
	} {
		cmd := exec.CommandContext(ctx, "go", "build", "-o", l.bin(p.name), ".")
		cmd.Dir = filepath.Join(root, p.dir)
		cmd.Env = append(os.Environ(), p.env, "CGO_CFLAGS=-Wno-deprecated-declarations")
		if out, err := cmd.CombinedOutput(); err != nil {
			return fmt.Errorf("build %s: %w\n%s", p.dir, err, out)
		}
	}
	return fakegpu.Build(ctx, l.fakes())
}
