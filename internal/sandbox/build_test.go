package sandbox

import (
	"bytes"
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/tandem-gpu/tandem/test/must"
)

// newTestBuilder returns a builder for a module of two programs, one of which does not compile.
func newTestBuilder(t *testing.T, out string, progress *bytes.Buffer) *builder {
	t.Helper()
	dir := t.TempDir()
	files := map[string]string{
		"go.mod":          "module example.com/m\n\ngo 1.26.0\n",
		"good/main.go":    "package main\n\nfunc main() { println(\"good\") }\n",
		"broken/main.go":  "package main\n\nfunc main() { undefinedFunction() }\n",
		"ignored/text.md": "x",
	}
	for name, content := range files {
		path := filepath.Join(dir, name)
		must.OK(t, os.MkdirAll(filepath.Dir(path), 0o755))
		must.OK(t, os.WriteFile(path, []byte(content), 0o600))
	}
	packages := map[string]string{"good": "./good", "broken": "./broken"}
	return &builder{name: "m", dir: dir, out: out, packages: packages, progress: progress}
}

func TestEnsureBuildsOnceForAll(t *testing.T) {
	out := filepath.Join(t.TempDir(), "m-key")
	logs := make([]bytes.Buffer, 4)
	var wg sync.WaitGroup
	for i := range logs {
		b := newTestBuilder(t, out, &logs[i])
		wg.Go(func() {
			if err := b.ensure(t.Context(), []string{"good"}); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	builds := 0
	for i := range logs {
		builds += strings.Count(logs[i].String(), "built good")
	}
	if builds != 1 {
		t.Errorf("%d builds of one program, want 1", builds)
	}
	if got, err := exec.Command(filepath.Join(out, "good")).CombinedOutput(); string(got) != "good\n" {
		t.Errorf("run what was built: %q, %v", got, err)
	}
}

func TestEnsureLeavesNothingBrokenBehind(t *testing.T) {
	out := filepath.Join(t.TempDir(), "m-key")
	var log bytes.Buffer
	err := newTestBuilder(t, out, &log).ensure(t.Context(), []string{"broken"})
	if err == nil || !strings.Contains(err.Error(), "undefined: undefinedFunction") {
		t.Errorf("got %v, want the compiler's words", err)
	}
	left, err := filepath.Glob(filepath.Join(out, "*"))
	if diff := cmp.Diff([]string{filepath.Join(out, ".lock")}, left); err != nil || diff != "" {
		t.Errorf("left behind (-want +got, %v):\n%s", err, diff)
	}
}

func TestEnsureEndsWithItsContext(t *testing.T) {
	out := filepath.Join(t.TempDir(), "m-key")
	must.OK(t, os.MkdirAll(out, 0o755))
	var log bytes.Buffer
	b := newTestBuilder(t, out, &log)
	unlock, err := b.lock(t.Context())
	must.OK(t, err)
	defer unlock()
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := b.ensure(ctx, []string{"good"}); err == nil || !strings.Contains(err.Error(), "wait for tool cache") {
		t.Errorf("got %v, want an error that says what it waited for", err)
	}
}

func TestCacheKeyCoversFilesAndFlags(t *testing.T) {
	b := newTestBuilder(t, t.TempDir(), nil)
	key := func(args ...string) string {
		t.Helper()
		k, err := cacheKey(t.Context(), b.dir, args)
		must.OK(t, err)
		return k
	}
	first := key("-tags=a")
	if again := key("-tags=a"); again != first {
		t.Errorf("key changed from %s to %s without a change", first, again)
	}
	if other := key("-tags=b"); other == first {
		t.Error("another flag has the same key")
	}
	must.OK(t, os.WriteFile(filepath.Join(b.dir, "go.sum"), []byte("x"), 0o600))
	if other := key("-tags=a"); other == first {
		t.Error("another go.sum has the same key")
	}
}

func TestToolsRefusesUnknownNames(t *testing.T) {
	_, err := Tools(t.Context(), "etcd", "emacs")
	if err == nil || !strings.Contains(err.Error(), `"emacs"`) || !strings.Contains(err.Error(), "kube-apiserver") {
		t.Errorf("got %v, want an error that names the tool and the known ones", err)
	}
}

// A test that lacks tools fails at once, with the command that builds them.
func TestTestsBuildNoTools(t *testing.T) {
	t.Setenv("TANDEM_CACHE", t.TempDir())
	for command, names := range map[string][]string{
		"etcd kubectl":                         {"kubectl", "etcd"},
		"kube-apiserver@1.35.4":                {"kube-apiserver@1.35.4"},
		"promtool":                             {"promtool"},
		"github.com/prometheus/prometheus:./x": {"github.com/prometheus/prometheus:./x"},
	} {
		if _, err := Tools(t.Context(), names...); err == nil || !strings.Contains(err.Error(), "run go run ./internal/sandbox/tools "+command+", which") {
			t.Errorf("%s: %v, want an error that names the command", names, err)
		}
	}
	_, err := Tool(t.Context(), "helm")
	if err == nil || !strings.Contains(err.Error(), "tools helm, which") {
		t.Errorf("helm: %v", err)
	}
}

func TestOperatorsHaveNames(t *testing.T) {
	for name, want := range map[string]string{
		"promtool": "promtool", "sigs.k8s.io/jobset:.": "jobset", "sigs.k8s.io/kueue:./cmd/kueue": "kueue",
	} {
		if o, ok := operatorOf(name); !ok || o.program() != want {
			t.Errorf("%s is an operator: %t, and its program is %s, want %s", name, ok, o.program(), want)
		}
	}
	if _, ok := operatorOf("helm"); ok {
		t.Error("helm is an operator")
	}
}

func TestCatalogueNamesKnownModules(t *testing.T) {
	root, err := Root()
	must.OK(t, err)
	for name, tool := range catalogue() {
		mod, err := os.ReadFile(filepath.Join(root, "tools", tool.module, "go.mod"))
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		if _, known := modules()[tool.module]; !known {
			t.Errorf("%s: module %s has no entry", name, tool.module)
		}
		// A package that is not of the module itself must be a tool directive: else `go mod tidy` drops it.
		listed := strings.Contains(string(mod), "\t"+tool.pkg+"\n") || strings.Contains(string(mod), "\ntool "+tool.pkg+"\n")
		if !strings.HasPrefix(tool.pkg, "./") && !listed {
			t.Errorf("%s: no tool directive for %s in %s", name, tool.pkg, tool.module)
		}
	}
	mod, err := os.ReadFile(filepath.Join(root, "tools", "controlplane", "go.mod"))
	if err != nil || !strings.Contains(string(mod), "k8s.io/kubernetes "+kubernetesVersion) {
		t.Errorf("tools/controlplane does not require k8s.io/kubernetes %s (%v)", kubernetesVersion, err)
	}
}
