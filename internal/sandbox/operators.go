package sandbox

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
)

// OperatorSource returns the directory with the source of a module that tools/operators names, such as sigs.k8s.io/jobset. The
// first call downloads the module.
func OperatorSource(ctx context.Context, path string) (string, error) {
	root, err := Root()
	if err != nil {
		return "", err
	}
	raw, err := goCommand(ctx, filepath.Join(root, "tools", "operators"), "mod", "download", "-json", path).Output()
	var found struct{ Dir, Error string }
	if decoding := json.Unmarshal(raw, &found); decoding == nil && found.Error != "" {
		return "", fmt.Errorf("download %s: %s", path, found.Error)
	}
	if err != nil {
		return "", fmt.Errorf("download %s: %w", path, withStderr(err))
	}
	return found.Dir, nil
}

// prometheus is the module of Prometheus and promtool. Both are built without the ways to find what to scrape that take minutes to build.
const prometheus = "github.com/prometheus/prometheus"

// Prometheus returns the path of Prometheus, which it builds where the cache has none. Its configuration lists what to scrape.
func Prometheus(ctx context.Context) (string, error) {
	return Operator(ctx, prometheus, "./cmd/prometheus", "-tags=remove_all_sd")
}

// Promtool returns the path of the program that checks and tests configurations and rules of Prometheus, which it builds where the cache has
// none. Configurations may have what to scrape found by Kubernetes.
func Promtool(ctx context.Context) (string, error) {
	return Operator(ctx, prometheus, "./cmd/promtool", "-tags=remove_all_sd,enable_kubernetes_sd")
}

// Operator returns the path of a program of a module that tools/operators names. It builds the program in the module's own
// directory, with the versions that the module's authors chose, where the cache has none. The arguments are those of go build.
func Operator(ctx context.Context, path, pkg string, args ...string) (string, error) {
	dir, err := OperatorSource(ctx, path)
	if err != nil {
		return "", err
	}
	cache, err := cacheDir()
	if err != nil {
		return "", err
	}
	name := filepath.Base(path)
	if pkg != "." {
		name = filepath.Base(pkg)
	}
	out := filepath.Join(cache, "tools", "operators-"+filepath.Base(dir))
	b := &builder{
		name: "operators", dir: dir, out: out, packages: map[string]string{name: pkg}, progress: os.Stderr,
		mod: module{args: args, firstTime: "2 to 5 minutes on two cores"},
	}
	if err := b.ensure(ctx, []string{name}); err != nil {
		return "", err
	}
	return filepath.Join(out, name), nil
}
