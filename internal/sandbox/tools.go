package sandbox

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// kubernetesVersion is what the binaries of tools/controlplane say they are. The value must agree with that module's
// go.mod.
const kubernetesVersion = "v1.37.2"

// tool is a program from one of the modules under tools/.
type tool struct{ module, pkg string }

// module is a directory under tools/ with a go.mod of its own.
type module struct {
	// args of `go build`, for every program of the module.
	args []string
	// firstTime is the duration of the first build on two cores, for people.
	firstTime string
}

func modules() map[string]module {
	return map[string]module{
		"controlplane": {
			args:      []string{stamp(kubernetesVersion, "37")},
			firstTime: "5 to 10 minutes on two cores",
		},
		"containerd": {args: []string{"-tags=no_btrfs,no_zfs"}, firstTime: "about 2 minutes on two cores"},
		"dev":        {firstTime: "about 3 minutes on two cores"},
		"docs":       {firstTime: "about a minute on two cores"},
		"gateway":    {firstTime: "about 10 minutes on two cores"},
		"helm":       {firstTime: "about 3 minutes on two cores"},

		"vulnerabilities": {firstTime: "about a minute on two cores"},
	}
}

// stamp returns the argument of `go build` that has a program of Kubernetes say which version it is.
func stamp(version, minor string) string {
	const at = "k8s.io/component-base/version."
	return "-ldflags=-X " + at + "gitVersion=" + version + " -X " + at + "gitMajor=1 -X " + at + "gitMinor=" + minor
}

func catalogue() map[string]tool {
	return map[string]tool{
		"etcd":                    {"controlplane", "./etcd"},
		"kube-apiserver":          {"controlplane", "k8s.io/kubernetes/cmd/kube-apiserver"},
		"kube-controller-manager": {"controlplane", "k8s.io/kubernetes/cmd/kube-controller-manager"},
		"kubelet":                 {"controlplane", "k8s.io/kubernetes/cmd/kubelet"},
		"kubectl":                 {"controlplane", "k8s.io/kubernetes/cmd/kubectl"},
		"containerd":              {"containerd", "github.com/containerd/containerd/v2/cmd/containerd"},
		"containerd-shim-runc-v2": {"containerd", "github.com/containerd/containerd/v2/cmd/containerd-shim-runc-v2"},
		"ctr":                     {"containerd", "github.com/containerd/containerd/v2/cmd/ctr"},
		"golangci-lint":           {"dev", "github.com/golangci/golangci-lint/v2/cmd/golangci-lint"},
		"gotestsum":               {"dev", "gotest.tools/gotestsum"},
		"controller-gen":          {"dev", "sigs.k8s.io/controller-tools/cmd/controller-gen"},
		"deepcopy-gen":            {"dev", "k8s.io/code-generator/cmd/deepcopy-gen"},
		"defaulter-gen":           {"dev", "k8s.io/code-generator/cmd/defaulter-gen"},
		"conversion-gen":          {"dev", "k8s.io/code-generator/cmd/conversion-gen"},
		"crd-ref-docs":            {"docs", "github.com/elastic/crd-ref-docs"},
		"govulncheck":             {"vulnerabilities", "golang.org/x/vuln/cmd/govulncheck"},
		"helm":                    {"helm", "helm.sh/helm/v4/cmd/helm"},
		"kustomize":               {"dev", "sigs.k8s.io/kustomize/kustomize/v5"},
		"traefik":                 {"gateway", "github.com/traefik/traefik/v3/cmd/traefik"},
	}
}

// Build returns the path of each named program, by name. It builds missing programs from the modules under tools/ into
// ${TANDEM_CACHE}/tools/<module>-<key>/, by default in tandem/ under the user's cache directory. The key covers the
// module's files, the Go version and the build flags. A file lock keeps processes that build at once from doing the
// work twice. Progress goes to stderr, for missing programs only.
//
// A name may have another version of Kubernetes, as kube-apiserver@1.35.4 (see At): the build then uses a module that
// Build generates in the cache. It may also be a package of a module that tools/operators names, as sigs.k8s.io/jobset:./cmd.
func Build(ctx context.Context, names ...string) (map[string]string, error) {
	return find(ctx, names, func(b *builder, programs map[string]string) error {
		return b.ensure(ctx, slices.Sorted(maps.Keys(programs)))
	})
}

// Tools is Build for programs. In a test it builds nothing, and fails where a program is missing: a build takes minutes, which no
// deadline of a test foresees.
func Tools(ctx context.Context, names ...string) (map[string]string, error) {
	if !testing.Testing() {
		return Build(ctx, names...)
	}
	return find(ctx, names, func(b *builder, programs map[string]string) error {
		missing := b.missing(slices.Sorted(maps.Keys(programs)))
		for i, program := range missing {
			missing[i] = programs[program]
		}
		if len(missing) == 0 {
			return nil
		}
		command := "go run ./internal/sandbox/tools " + strings.Join(missing, " ")
		return fmt.Errorf("find %s: tests do not build it; run %s, which takes %s", strings.Join(missing, ", "), command, b.mod.firstTime)
	})
}

// Tool is Tools for one program.
func Tool(ctx context.Context, name string) (string, error) {
	paths, err := Tools(ctx, name)
	return paths[name], err
}

// find returns the paths of programs, which have calls to provide: for each builder one, with the names that the programs were asked
// for by.
func find(ctx context.Context, names []string, provide func(b *builder, programs map[string]string) error) (map[string]string, error) {
	root, err := Root()
	if err != nil {
		return nil, err
	}
	cache, err := cacheDir()
	if err != nil {
		return nil, err
	}
	paths, builders, programs := map[string]string{}, map[string]*builder{}, map[string]map[string]string{}
	for _, name := range names {
		b, program, err := builderOf(ctx, name, root, cache)
		if err != nil {
			return nil, err
		}
		paths[name] = filepath.Join(b.out, program)
		of := b.out
		if len(b.packages) == 1 { // an operator, with flags of its own
			of = paths[name]
		}
		if builders[of] == nil {
			builders[of], programs[of] = b, map[string]string{}
		}
		programs[of][program] = name
	}
	for _, of := range slices.Sorted(maps.Keys(builders)) {
		if err := provide(builders[of], programs[of]); err != nil {
			return nil, err
		}
	}
	return paths, nil
}

// builderOf returns the builder of a program, by its name with or without a version, and the name of its file.
func builderOf(ctx context.Context, name, root, cache string) (b *builder, program string, err error) {
	if o, ok := operatorOf(name); ok {
		b, err = o.builder(ctx, cache)
		return b, o.program(), err
	}
	program, version, versioned := strings.Cut(name, "@")
	t, ok := catalogue()[program]
	if !ok {
		known := slices.Sorted(maps.Keys(catalogue()))
		return nil, "", fmt.Errorf("find tool %q: unknown; the tools are %s", program, strings.Join(append(known, slices.Sorted(maps.Keys(operators()))...), ", "))
	}
	own := !versioned
	var r release
	if versioned {
		if !strings.HasPrefix(t.pkg, "k8s.io/kubernetes/") {
			return nil, "", fmt.Errorf("find tool %q: only programs of Kubernetes can be had in another version", name)
		}
		if r, own, err = parseRelease(version); err != nil {
			return nil, "", fmt.Errorf("find tool %q: %w", name, err)
		}
	}
	if own {
		b, err = newBuilder(ctx, t.module, filepath.Join(root, "tools", t.module), cache)
	} else {
		b, err = r.builder(ctx, cache)
	}
	return b, program, err
}

// Root returns the root directory of the repository: the nearest directory upwards of the working directory whose
// go.mod names Tandem's module.
func Root() (string, error) {
	start, err := os.Getwd()
	if err != nil {
		return "", fmt.Errorf("find repository: %w", err)
	}
	for dir := start; ; dir = filepath.Dir(dir) {
		mod, err := os.ReadFile(filepath.Join(dir, "go.mod"))
		if err == nil && bytes.HasPrefix(mod, []byte("module github.com/tandem-gpu/tandem\n")) {
			return dir, nil
		}
		if dir == filepath.Dir(dir) {
			return "", fmt.Errorf("find repository: no go.mod of github.com/tandem-gpu/tandem in %s or above", start)
		}
	}
}

func cacheDir() (string, error) {
	if dir := os.Getenv("TANDEM_CACHE"); dir != "" {
		return filepath.Abs(dir)
	}
	dir, err := os.UserCacheDir()
	if err != nil {
		return "", fmt.Errorf("find cache directory: %w; set TANDEM_CACHE", err)
	}
	return filepath.Join(dir, "tandem"), nil
}

// cacheKey names one state of a module: its files, the Go version and target, the build flags.
func cacheKey(ctx context.Context, dir string, args []string) (string, error) {
	hash := sha256.New()
	version, err := goCommand(ctx, dir, "env", "GOVERSION", "GOOS", "GOARCH").Output()
	if err != nil {
		return "", fmt.Errorf("ask Go for its version in %s: %w", dir, withStderr(err))
	}
	fmt.Fprintf(hash, "%s%q\n", version, args)
	err = filepath.WalkDir(dir, func(path string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		content, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		rel, err := filepath.Rel(dir, path)
		fmt.Fprintf(hash, "%s %d\n%s", rel, len(content), content)
		return err
	})
	if err != nil {
		return "", fmt.Errorf("read module %s: %w", dir, err)
	}
	return hex.EncodeToString(hash.Sum(nil))[:12], nil
}

// goCommand runs the go command in a module of its own, whatever workspace or cgo flags the caller has.
func goCommand(ctx context.Context, dir string, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, "go", args...)
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), "GOWORK=off", "CGO_CFLAGS=")
	return cmd
}

func withStderr(err error) error {
	var exit *exec.ExitError
	if errors.As(err, &exit) && len(exit.Stderr) > 0 {
		return fmt.Errorf("%w: %s", err, bytes.TrimSpace(exit.Stderr))
	}
	return err
}
