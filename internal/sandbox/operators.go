package sandbox

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
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

// operator is a program of a module that tools/operators names. It is built in the module's own directory, with the versions that the
// module's authors chose.
type operator struct {
	module, pkg string
	args        []string // of go build
}

// operators are those with a name of their own. Both are built without the ways to find what to scrape that take minutes to build:
// the configuration of Prometheus lists what to scrape, and promtool checks configurations that have it found by Kubernetes.
func operators() map[string]operator {
	const prometheus = "github.com/prometheus/prometheus"
	return map[string]operator{
		"prometheus": {prometheus, "./cmd/prometheus", []string{"-tags=remove_all_sd"}},
		"promtool":   {prometheus, "./cmd/promtool", []string{"-tags=remove_all_sd,enable_kubernetes_sd"}},
	}
}

// operatorOf returns the operator of a name, which may also be that of a module and a package.
func operatorOf(name string) (operator, bool) {
	if o, ok := operators()[name]; ok {
		return o, true
	}
	module, pkg, ok := strings.Cut(name, ":")
	return operator{module: module, pkg: pkg}, ok
}

// program returns the name of its file.
func (o operator) program() string {
	if o.pkg == "." {
		return filepath.Base(o.module)
	}
	return filepath.Base(o.pkg)
}

func (o operator) builder(ctx context.Context, cache string) (*builder, error) {
	dir, err := OperatorSource(ctx, o.module)
	if err != nil {
		return nil, err
	}
	program := o.program()
	return &builder{
		name: "operators", dir: dir, out: filepath.Join(cache, "tools", "operators-"+filepath.Base(dir)), packages: map[string]string{program: o.pkg},
		progress: os.Stderr, mod: module{args: o.args, firstTime: "2 to 5 minutes on two cores"},
	}, nil
}
