package faults

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"sync/atomic"

	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"

	"github.com/tandem-gpu/tandem/internal/sandbox"
	"github.com/tandem-gpu/tandem/test/fakegpu"
)

// World is what all nodes of a run share: an API server and the programs.
type World struct {
	dir        string
	plane      *sandbox.ControlPlane
	client     kubernetes.Interface
	objects    dynamic.Interface
	kubeconfig string // of the agents
	nodes      atomic.Int64
}

// NewWorld builds the programs and starts the API server.
func NewWorld(ctx context.Context) (_ *World, err error) {
	dir, err := os.MkdirTemp("", "faults-*")
	if err != nil {
		return nil, fmt.Errorf("make world: %w", err)
	}
	w := &World{dir: dir}
	defer func() {
		if err != nil {
			w.Close()
		}
	}()
	if err := w.build(ctx); err != nil {
		return nil, err
	}
	if w.plane, err = sandbox.Start(ctx, sandbox.Options{}); err != nil {
		return nil, err
	}
	if err := w.plane.InstallCRDs(ctx); err != nil {
		return nil, err
	}
	if w.kubeconfig, err = w.plane.Kubeconfig("agent", []string{"system:masters"}); err != nil {
		return nil, err
	}
	if w.client, err = kubernetes.NewForConfig(w.plane.Admin()); err != nil {
		return nil, err
	}
	w.objects, err = dynamic.NewForConfig(w.plane.Admin())
	return w, err
}

// build builds the agent, the fakes and the program of the containers.
func (w *World) build(ctx context.Context) error {
	root, err := sandbox.Root()
	if err != nil {
		return err
	}
	for name, source := range map[string]string{"agent": "cmd/device-plugin", "tenant": "test/fakegpu/cmd/tenant"} {
		cmd := exec.CommandContext(ctx, "go", "build", "-o", w.program(name), ".")
		cmd.Dir = filepath.Join(root, source)
		cmd.Env = append(os.Environ(), "CGO_CFLAGS=-Wno-deprecated-declarations") // of go-nvml's header
		if out, err := cmd.CombinedOutput(); err != nil {
			return fmt.Errorf("build %s: %w\n%s", source, err, out)
		}
	}
	return fakegpu.Build(ctx, w.program("fakes"))
}

func (w *World) program(name string) string { return filepath.Join(w.dir, name) }

// Close ends everything that the world runs.
func (w *World) Close() {
	if w.plane != nil {
		w.plane.Stop()
	}
	if err := os.RemoveAll(w.dir); err != nil && !errors.Is(err, os.ErrNotExist) {
		fmt.Fprintln(os.Stderr, "close world:", err)
	}
}
