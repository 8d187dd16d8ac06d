package sandbox

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/tandem-gpu/tandem/test/must"
)

func TestParseRelease(t *testing.T) {
	for _, test := range []struct {
		raw     string
		want    release
		own, ok bool
	}{
		{raw: "1.35.4", want: release{"v1.35.4", "35"}, ok: true},
		{raw: "v1.34.10", want: release{"v1.34.10", "34"}, ok: true},
		{raw: kubernetesVersion, want: release{kubernetesVersion, "37"}, own: true, ok: true},
		{raw: ""}, {raw: "1.35"}, {raw: "latest"}, {raw: "1.35.4-rc.1"}, {raw: "2.1.0"}, {raw: "1.35.4\nreplace a => b"},
	} {
		got, own, err := parseRelease(test.raw)
		if got != test.want || own != test.own || (err == nil) != test.ok {
			t.Errorf("%q: %v, own %v, %v", test.raw, got, own, err)
		}
	}
}

// The module of another version requires that version and takes from its go.mod what go.mod of tools/controlplane has by hand.
func TestReleaseModule(t *testing.T) {
	root, err := Root()
	must.OK(t, err)
	dir := filepath.Join(root, "tools", "controlplane")
	path, err := goCommand(t.Context(), dir, "list", "-m", "-f={{.GoMod}}", "k8s.io/kubernetes").Output()
	if err != nil {
		t.Fatal(withStderr(err))
	}
	upstream, err := goCommand(t.Context(), dir, "mod", "edit", "-json", strings.TrimSpace(string(path))).Output()
	if err != nil {
		t.Fatal(withStderr(err))
	}
	r := release{version: "v1.35.4", minor: "35"}
	got, err := r.module(upstream)
	must.OK(t, err)
	own, err := os.ReadFile(filepath.Join(dir, "go.mod"))
	must.OK(t, err)
	of := func(text, version string) (lines []string) {
		for _, line := range strings.Split(text, "\n") {
			line = strings.TrimPrefix(strings.TrimSpace(line), "replace ")
			if name, _, ok := strings.Cut(line, " => "); ok && strings.HasSuffix(line, " => "+name+" "+version) {
				lines = append(lines, name)
			}
		}
		return lines
	}
	ours := of(string(own), "v0."+strings.TrimPrefix(kubernetesVersion, "v1."))
	if len(ours) < 20 {
		t.Fatalf("tools/controlplane replaces %q alone: the test reads the wrong lines", ours)
	}
	if diff := cmp.Diff(ours, of(string(got), "v0.35.4")); diff != "" {
		t.Errorf("replaced (-tools/controlplane +generated):\n%s", diff)
	}
	for _, want := range []string{"\nrequire k8s.io/kubernetes v1.35.4\n", "\ngo 1.", "\ngodebug default=go1."} {
		if !strings.Contains(string(got), want) {
			t.Errorf("go.mod has no %q:\n%s", want, got)
		}
	}
	if _, err := r.module([]byte(`{"Go": "1.30"}`)); err == nil {
		t.Error("a go.mod without modules of its own repository was taken")
	}
}

// Each version has a place of its own; that of tools/controlplane is where it always was.
func TestBuilderOfVersions(t *testing.T) {
	root, err := Root()
	must.OK(t, err)
	cache := t.TempDir()
	at := func(name string) string {
		t.Helper()
		b, _, err := builderOf(t.Context(), name, root, cache)
		must.OK(t, err)
		return b.out
	}
	own, old, older := at("kubelet"), at("kubelet@1.36.3"), at("kubelet@1.35.4")
	if at("kubelet@1.37.2") != own || at("kube-apiserver@v1.36.3") != old || old == older || old == own {
		t.Errorf("kubelet in %s, %s and %s", own, old, older)
	}
	for name, want := range map[string]string{
		"kubelet@1.35": "it must be a whole one", "etcd@1.35.4": "only programs of Kubernetes", "emacs@1.35.4": "unknown",
	} {
		if _, _, err := builderOf(t.Context(), name, root, cache); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", name, err, want)
		}
	}
}
