// Command tools builds the named programs where they are missing and prints their directories, joined by colons, for
// the front of PATH:
//
//	PATH="$(go run ./internal/sandbox/tools kustomize golangci-lint):$PATH"
//
// The name of a program of Kubernetes may have a version: kubelet@1.35.4. A package of a module that tools/operators names is a
// program too: sigs.k8s.io/kueue:./cmd/kueue.
//
// Progress goes to stderr. See sandbox.Build for the names and the cache.
package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"syscall"

	"github.com/tandem-gpu/tandem/internal/sandbox"
)

func main() {
	if err := run(); err != nil {
		fmt.Fprintln(os.Stderr, "tools:", err)
		os.Exit(1)
	}
}

func run() error {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	paths, err := sandbox.Build(ctx, os.Args[1:]...)
	if err != nil {
		return err
	}
	dirs := make([]string, 0, len(paths))
	for _, path := range paths {
		dirs = append(dirs, filepath.Dir(path))
	}
	slices.Sort(dirs)
	fmt.Println(strings.Join(slices.Compact(dirs), string(os.PathListSeparator)))
	return nil
}
