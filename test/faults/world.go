package faults

import (
	"context"
	"errors"
	"fmt"
	"os"
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
	programs   map[string]string
	plane      *sandbox.ControlPlane
	client     kubernetes.Interface
	objects    dynamic.Interface
	kubeconfig string // of the agents
	nodes      atomic.Int64
}

// NewWorld builds the fakes and starts the API server.
func NewWorld(ctx context.Context) (_ *World, err error) {
	dir, err := os.MkdirTemp("", "faults-*")
	if err != nil {
		return nil, fmt.Errorf("make world: %w", err)
	}
	w := &World{dir: dir, programs: map[string]string{}}
	defer func() {
		if err != nil {
			w.Close()
		}
	}()
	for _, name := range []string{"agent", "tenant"} {
		if w.programs[name], err = sandbox.Program(name); err != nil {
			return nil, err
		}
	}
	if err := fakegpu.Build(ctx, w.fakes()); err != nil {
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

func (w *World) fakes() string { return filepath.Join(w.dir, "fakes") }

// Close ends everything that the world runs.
func (w *World) Close() {
	if w.plane != nil {
		w.plane.Stop()
	}
	if err := os.RemoveAll(w.dir); err != nil && !errors.Is(err, os.ErrNotExist) {
		fmt.Fprintln(os.Stderr, "close world:", err)
	}
}
