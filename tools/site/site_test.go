package main

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/dop251/goja"
	"github.com/google/go-cmp/cmp"
)

// The site of this repository builds, and every link in it leads somewhere.
func TestRepository(t *testing.T) {
	out := t.TempDir()
	if err := run("../..", out, "main"); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{
		"index.html", "main/index.html", "main/guides/install.html", "main/reference/metrics.html", "main/reference/arguments.html",
		"main/decisions/0001-assignment-in-the-binding.html", "main/external-links.txt", "main/images/map-8.png", "versions.js",
	} {
		if strings.HasSuffix(name, ".png") {
			name = strings.Replace(name, "main/", "main/docs/", 1)
		}
		if _, err := os.Stat(filepath.Join(out, name)); err != nil {
			t.Error(err)
		}
	}
	raw, err := os.ReadFile(filepath.Join(out, "main", "external-links.txt"))
	if err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(string(raw), "https://") {
		t.Errorf("the list of links out of the site has none: %q", raw)
	}
}

// files is a repository in memory: a map from names to texts.
func files(texts map[string]string) fstest.MapFS {
	fsys := fstest.MapFS{}
	for name, text := range texts {
		fsys[name] = &fstest.MapFile{Data: []byte(text)}
	}
	return fsys
}

// small is a repository with a link of each kind.
func small(extra map[string]string) fstest.MapFS {
	texts := map[string]string{
		"README.md":                "# Tandem\n\n[install](docs/guides/install.md#with-helm-v4), [all decisions](docs/decisions), ![a map](docs/images/m.png)\n",
		"docs/guides/install.md":   "# Install it\n\n## With Helm (v4)\n\nOne `chart` of two.\n\n## With Helm (v4)\n\n[back](../../README.md) [example](../../examples/pod.yaml) [below](#with-helm-v4-1)\n",
		"docs/decisions/0001-a.md": "# A decision\n\nText.\n",
		"docs/decisions/0002-b.md": "# B decision\n\n[A](0001-a.md)\n",
		"docs/images/m.png":        "png",
		"examples/pod.yaml":        "image: <name>\n",
	}
	for name, text := range extra {
		texts[name] = text
	}
	return files(texts)
}

// built writes the site of a repository and returns its folder.
func built(t *testing.T, fsys fstest.MapFS) string {
	t.Helper()
	s, err := read(fsys)
	if err != nil {
		t.Fatal(err)
	}
	dir := filepath.Join(t.TempDir(), "main")
	if err := s.write(dir, "main"); err != nil {
		t.Fatal(err)
	}
	return dir
}

// Links between files of the repository lead from page to page, and files that are no pages get one.
func TestLinks(t *testing.T) {
	dir := built(t, small(nil))
	for name, wants := range map[string][]string{
		"index.html": {
			`href="guides/install.html#with-helm-v4"`, `href="files/docs/decisions/index.html"`, `src="docs/images/m.png"`,
			`<details open><summary>Start</summary>`, `href="index.html" aria-current="page"`,
		},
		"guides/install.html":             {`href="../index.html"`, `href="../files/examples/pod.yaml.html"`, `id="with-helm-v4-1"`, `data-base="../"`},
		"files/docs/decisions/index.html": {`href="../../../decisions/0001-a.html"`, `href="../../../decisions/0002-b.html"`},
		"files/examples/pod.yaml.html":    {"image: &lt;name&gt;"},
		"decisions/0002-b.html":           {`href="../decisions/0001-a.html"`, `<details open><summary>Decisions</summary>`},
	} {
		raw, err := os.ReadFile(filepath.Join(dir, name))
		if err != nil {
			t.Fatal(err)
		}
		for _, want := range wants {
			if !strings.Contains(string(raw), want) {
				t.Errorf("%s has no %s:\n%s", name, want, raw)
			}
		}
	}
	got, err := check(os.DirFS(dir))
	if err != nil || len(got.Broken) > 0 || got.Pages != 6 || got.Internal == 0 {
		t.Errorf("check finds %+v, %v; want 6 pages and nothing broken", got, err)
	}
}

// A page that links to what is not there is refused, by the name of the page and the link.
func TestRefused(t *testing.T) {
	for name, c := range map[string]struct{ file, text, want string }{
		"a missing file": {"docs/x.md", "# X\n\n[y](y.md)\n", `docs/x.md: link "y.md": the repository has no such file`},
		"no title":       {"docs/x.md", "text\n", "docs/x.md: the page has no heading of the first level"},
		"no group":       {"docs/other/x.md", "# X\n", "no group in tools/site/nav.go has docs/other/x.md"},
	} {
		if _, err := read(small(map[string]string{c.file: c.text})); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want %s", name, err, c.want)
		}
	}
	for _, version := range []string{"", "..", ".git", "a/b"} {
		if err := run("../..", t.TempDir(), version); err == nil || !strings.Contains(err.Error(), "--version") {
			t.Errorf("version %q: %v, want an error that names the flag", version, err)
		}
	}
}

// The check of links finds every kind of link that leads nowhere.
func TestBroken(t *testing.T) {
	for link, want := range map[string]string{
		`<a href="no.html">`:                          "there is no such file",
		`<a href="decisions/">`:                       "there is no such file",
		`<a href="guides/install.html#no">`:           "the page has no such heading",
		`<a href="#no">`:                              "the page has no such heading",
		`<a href="/index.html">`:                      "the link begins at the root of the server",
		`<a href="../other.html">`:                    "the link leads out of the site",
		`<a href="http://kubernetes.io/">`:            "a link out of the site begins with https://",
		`<a href="https://localhost:8080/">`:          "hosts in tools/site/check.go does not have localhost:8080",
		`<img src="https://kubernetes.io/x.png">`:     "the page loads something from outside of the site",
		`<script src="//kubernetes.io/x.js">`:         "the page loads something from outside of the site",
		`<a href="https://kubernetes.io/docs/">`:      "",
		`<a href="guides/install.html#with-helm-v4">`: "",
	} {
		dir := built(t, small(map[string]string{"docs/x.md": "# X\n\n" + link + "</a>\n"}))
		got, err := check(os.DirFS(dir))
		if err != nil {
			t.Fatal(err)
		}
		switch {
		case want == "" && len(got.Broken) > 0:
			t.Errorf("%s: %v, want no complaint", link, got.Broken)
		case want != "" && (len(got.Broken) != 1 || !strings.Contains(got.Broken[0], want) || !strings.HasPrefix(got.Broken[0], "x.html: ")):
			t.Errorf("%s: %v, want one complaint about x.html: %s", link, got.Broken, want)
		}
	}
}

// A site with a broken link is an error that names the page, and has no list of links.
func TestRunRefusesBroken(t *testing.T) {
	root, out := t.TempDir(), t.TempDir()
	for name, file := range small(map[string]string{"docs/x.md": "# X\n\n<a href=\"no.html\">y</a>\n"}) {
		if err := put(root, name, file.Data); err != nil {
			t.Fatal(err)
		}
	}
	if err := run(root, out, "main"); err == nil || !strings.Contains(err.Error(), "1 links are broken:\nx.html: no.html: there is no such file") {
		t.Errorf("the error is %v", err)
	}
	if _, err := os.Stat(filepath.Join(out, "main", "external-links.txt")); !os.IsNotExist(err) {
		t.Errorf("the list of links is there: %v", err)
	}
}

// A page that the repository has no more is not in the next site of the same version.
func TestWriteReplaces(t *testing.T) {
	dir := built(t, small(map[string]string{"docs/x.md": "# X\n"}))
	s, err := read(small(nil))
	if err != nil {
		t.Fatal(err)
	}
	if err := s.write(dir, "main"); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(filepath.Join(dir, "x.html")); !os.IsNotExist(err) {
		t.Errorf("the old page is there: %v", err)
	}
	if _, err := os.Stat(filepath.Join(dir, "index.html")); err != nil {
		t.Error(err)
	}
}

// A new version leaves the others, and the first page leads to the newest release.
func TestVersions(t *testing.T) {
	out := t.TempDir()
	for _, version := range []string{"v0.9.0", "main", "v0.10.0", "v0.10.0-rc.1"} {
		s, err := read(small(nil))
		if err != nil {
			t.Fatal(err)
		}
		if err := s.write(filepath.Join(out, version), version); err != nil {
			t.Fatal(err)
		}
		if err := writeVersions(out); err != nil {
			t.Fatal(err)
		}
	}
	list, err := os.ReadFile(filepath.Join(out, "versions.js"))
	if err != nil {
		t.Fatal(err)
	}
	want := "const siteVersions = [\"v0.10.0\",\"v0.10.0-rc.1\",\"v0.9.0\",\"main\"];\n"
	if diff := cmp.Diff(want, string(list)); diff != "" {
		t.Errorf("versions (-want +got):\n%s", diff)
	}
	first, err := os.ReadFile(filepath.Join(out, "index.html"))
	if err != nil || !strings.Contains(string(first), "url=v0.10.0/index.html") {
		t.Errorf("the first page is %q, %v; want one that leads to v0.10.0", first, err)
	}
}

// The search of the site, run by an interpreter of JavaScript, finds parts of pages by all words of a query.
func TestSearch(t *testing.T) {
	dir := built(t, small(map[string]string{"docs/reference/x.md": "# Names\n\n## Resources\n\nA pod asks for `tandem-gpu.io/vgpu-memory`.\n\n## Charts\n\nnothing\n"}))
	vm := goja.New()
	for _, name := range []string{"search-index.js", "search.js"} {
		raw, err := os.ReadFile(filepath.Join(dir, name))
		if err != nil {
			t.Fatal(err)
		}
		if _, err := vm.RunString(string(raw)); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
	}
	for query, want := range map[string][]string{
		"helm":               {"guides/install.html#with-helm-v4", "guides/install.html#with-helm-v4-1"},
		"HELM two":           {"guides/install.html#with-helm-v4"},
		"chart":              {"reference/x.html#charts", "guides/install.html#with-helm-v4"}, // a heading before a text
		"vgpu-memory":        {"reference/x.html#resources"},
		"tandem-gpu.io/vgpu": {"reference/x.html#resources"},
		"decision":           {"decisions/0001-a.html", "decisions/0002-b.html", "index.html"},
		"helm nosuchword":    {},
		"  ":                 {},
	} {
		value, err := vm.RunString("search(searchIndex, " + quoted(query) + ", 12).map((r) => r.url)")
		if err != nil {
			t.Fatal(err)
		}
		got := []string{}
		if err := vm.ExportTo(value, &got); err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("search %q (-want +got):\n%s", query, diff)
		}
	}
	value, err := vm.RunString(`excerpt("0123456789 0123456789 needle 0123456789", "needle", 12)`)
	if err != nil || !strings.Contains(value.String(), "needle") || !strings.HasPrefix(value.String(), "… ") {
		t.Errorf("the excerpt is %v, %v; want the text around the word", value, err)
	}
}

func quoted(s string) string { return `"` + s + `"` }

// Each page is in one group of the navigation, and a page that is named stands where it is named.
func TestArrange(t *testing.T) {
	got, err := arrange(small(nil), []group{{"First", []string{"docs/guides/install.md", "README.md"}}, {"Rest", []string{"docs/decisions/*", "docs/guides/*"}}})
	if err != nil {
		t.Fatal(err)
	}
	want := []group{
		{"First", []string{"docs/guides/install.md", "README.md"}},
		{"Rest", []string{"docs/decisions/0001-a.md", "docs/decisions/0002-b.md"}},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("groups (-want +got):\n%s", diff)
	}
	all, err := documents(small(nil))
	if err != nil || !slices.Contains(all, "README.md") || len(all) != 4 {
		t.Errorf("documents are %v, %v; want the four Markdown files", all, err)
	}
}
