package dist

import (
	"bytes"
	"fmt"
	"io"
	"log"
	"maps"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/registry"
	"github.com/google/go-containerregistry/pkg/v1/remote"

	"github.com/tandem-gpu/tandem/tools/release/archive"
	"github.com/tandem-gpu/tandem/tools/release/licence"
)

const version = "v0.1.0"

// The platforms of the example: two for images, and one more for clients.
var (
	first  = Platform{"linux", "amd64"}
	second = Platform{"linux", "arm64"}
	other  = Platform{"windows", "amd64"}
)

// program is a static one.
var program = sync.OnceValues(func() ([]byte, error) {
	folder, err := os.MkdirTemp("", "tandem-program-")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(folder)
	source, built := filepath.Join(folder, "main.go"), filepath.Join(folder, "program")
	if err := os.WriteFile(source, []byte("package main\n\nfunc main() {}\n"), 0o600); err != nil {
		return nil, err
	}
	build := exec.Command("go", "build", "-o", built, source)
	build.Env = append(os.Environ(), "CGO_ENABLED=0", "GOOS=linux")
	if out, err := build.CombinedOutput(); err != nil {
		return nil, fmt.Errorf("%w\n%s", err, out)
	}
	return os.ReadFile(built)
})

// example is a small release: each program is the same static one, and the manifests are a few lines.
func example(t *testing.T) (*Release, parts) {
	t.Helper()
	root := t.TempDir()
	writeFile(t, filepath.Join(root, licenceFile), "Apache License\n")
	content, err := program()
	if err != nil {
		t.Fatal(err)
	}
	r := &Release{
		Root: root, Version: version, Platforms: []Platform{first, second, other}, Revision: "5c7d74f", Time: time.Date(2026, 11, 27, 12, 0, 0, 0, time.UTC),
	}
	p := parts{binaries: t.TempDir(), programs: map[string][]licence.Module{}, manifests: manifestsOf(version)}
	for _, name := range append(slices.Clone(images), client) {
		writeFile(t, binary(p.binaries, first, name), string(content))
		writeFile(t, binary(p.binaries, second, name), string(content))
		p.programs[name] = []licence.Module{
			{Path: "example.com/m", Version: "v1.0.0", Licences: []string{"MIT"}, Texts: map[string][]byte{"LICENSE": []byte("MIT License\n")}},
			{Path: "example.com/own", Main: true, Licences: []string{"Apache-2.0"}, Texts: map[string][]byte{"LICENSE": []byte("Apache License\n")}},
		}
	}
	writeFile(t, binary(p.binaries, other, client), string(content))
	return r, p
}

// manifestsOf are manifests of a version, as short as they may be.
func manifestsOf(version string) archive.Files {
	definition := "kind: CustomResourceDefinition\n"
	install := definition
	for _, program := range []string{"activator", "controller", agent, "scheduler"} {
		install += "  - image: registry.example.com:5000/tandem-" + program + ":" + version + "\n"
	}
	files := archive.Files{}
	for path, content := range map[string]string{
		installFile: install, crdsFile: definition, shadowFile: "    image: tandem-shadow:" + version + "\n",
		"tandem/Chart.yaml":  "name: tandem\nversion: " + version[1:] + "\nappVersion: " + version + "\n",
		"tandem/values.yaml": "a: b\n", "tandem/values.schema.json": "{}\n", "tandem/README.md": "text\n",
	} {
		files[path] = archive.File{Content: []byte(content)}
	}
	return files
}

func writeFile(t *testing.T, path, content string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(content), 0o755); err != nil {
		t.Fatal(err)
	}
}

// packed returns the files of the example.
func packed(t *testing.T, r *Release, p parts) map[string][]byte {
	t.Helper()
	files, err := r.pack(p)
	if err != nil {
		t.Fatal(err)
	}
	return files
}

func checked(t *testing.T, r *Release, files map[string][]byte) error {
	t.Helper()
	folder := filepath.Join(t.TempDir(), "dist")
	if err := write(folder, files); err != nil {
		t.Fatal(err)
	}
	return Check(folder, version, r.Platforms)
}

// A packed release is as it should be, and packed again it is the same.
func TestPack(t *testing.T) {
	r, p := example(t)
	files := packed(t, r, p)
	if err := checked(t, r, files); err != nil {
		t.Fatal(err)
	}
	for range 3 {
		if again := packed(t, r, p); !maps.EqualFunc(files, again, func(a, b []byte) bool { return string(a) == string(b) }) {
			t.Fatal("two releases of the same parts differ")
		}
	}
}

// Each thing that may go wrong with a release is found, and named.
func TestCheckFinds(t *testing.T) {
	r, p := example(t)
	sound := packed(t, r, p)
	for name, c := range map[string]struct {
		// release changes what is packed, files what was packed; the checksums are made anew then.
		release func(*Release, *parts)
		files   func(map[string][]byte)
		want    string
	}{
		"a file that is missing":    {files: func(f map[string][]byte) { delete(f, crdsFile) }, want: "crds.yaml is missing"},
		"a file too many":           {files: func(f map[string][]byte) { f["notes"] = nil }, want: "notes does not belong"},
		"images of another version": {release: func(r *Release, _ *parts) { r.Version = "v0.2.0" }, want: "is missing"},
		"manifests of another":      {release: func(_ *Release, p *parts) { p.manifests = manifestsOf("v0.0.9") }, want: "check install.yaml: it runs"},
		"a chart of another": {release: func(_ *Release, p *parts) {
			p.manifests["tandem/Chart.yaml"] = manifestsOf("v0.0.9")["tandem/Chart.yaml"]
		}, want: "Chart.yaml says"},
		"a chart without a schema":    {release: func(_ *Release, p *parts) { delete(p.manifests, "tandem/values.schema.json") }, want: "it has no values.schema.json"},
		"a program without a licence": {files: func(f map[string][]byte) { f[noticesFile(version)] = mustTarGz(archive.Files{}) }, want: "it has no text of example.com/m v1.0.0"},
		"a stranger in the manifests": {files: func(f map[string][]byte) { f[installFile] = append(f[installFile], "  - image: busybox:1\n"...) }, want: "it runs busybox:1"},
		"other CRDs":                  {files: func(f map[string][]byte) { f[crdsFile] = append(f[crdsFile], "kind: CustomResourceDefinition\n"...) }, want: "it has 2 CRDs"},
		"another archive for krew": {files: func(f map[string][]byte) {
			f[clientFile(version, other)] = append(f[clientFile(version, other)], 0)
		}, want: "check tandem.yaml: sha256 of kubectl-tandem_v0.1.0_windows_amd64.zip"},
		"a platform without a reason": {release: func(_ *Release, p *parts) { os.Remove(binary(p.binaries, second, "shadow")) }, want: "does not say why"},
		"an image with another name": {files: func(f map[string][]byte) {
			f[imageFile("shadow", version)] = f[imageFile("scheduler", version)]
		}, want: "check tandem-shadow_v0.1.0.oci.tar: its name is"},
		"manifests without the scheduler": {files: func(f map[string][]byte) {
			f[installFile] = bytes.Replace(f[installFile], []byte("  - image: registry.example.com:5000/tandem-scheduler:"+version+"\n"), nil, 1)
		}, want: "check install.yaml: it runs map[activator:true controller:true device-plugin:true], want"},
		"a manifest for krew of another": {files: func(f map[string][]byte) {
			f[krewFile] = bytes.Replace(f[krewFile], []byte("version: "+version), []byte("version: v0.0.9"), 1)
		}, want: "check tandem.yaml: version v0.0.9 for 3 platforms"},
		"a manifest for krew without a platform": {files: func(f map[string][]byte) {
			f[krewFile] = f[krewFile][:bytes.LastIndex(f[krewFile], []byte("  - bin:"))]
		}, want: "check tandem.yaml: version"},
		"an archive for krew without the program": {files: repacked(func(f archive.Files) { delete(f, client) }), want: "it lacks the program kubectl-tandem"},
		"an archive for krew without our licence": {files: repacked(func(f archive.Files) { delete(f, licenceFile) }), want: "it lacks the program kubectl-tandem or licence texts"},
		"an archive for krew without licences":    {files: repacked(func(f archive.Files) { delete(f, "THIRD-PARTY.txt") }), want: "it lacks the program kubectl-tandem or licence texts"},
		"a bill of another": {files: func(f map[string][]byte) {
			f[billFile(version)] = bytes.ReplaceAll(f[billFile(version)], []byte(`"versionInfo": "`+version+`"`), []byte(`"versionInfo": "v0.0.9"`))
		}, want: "check tandem_v0.1.0.spdx.json: it describes [] in version v0.1.0"},
		"a module without a licence": {files: func(f map[string][]byte) {
			f[billFile(version)] = bytes.Replace(f[billFile(version)], []byte(`"licenseDeclared": "MIT"`), []byte(`"licenseDeclared": ""`), 1)
		}, want: "example.com/m has no licence"},
	} {
		t.Run(name, func(t *testing.T) {
			files := maps.Clone(sound)
			if c.release != nil {
				r, p := example(t)
				c.release(r, &p)
				files = packed(t, r, p)
			}
			if c.files != nil {
				c.files(files)
				delete(files, sumsFile)
				files[sumsFile] = sums(files)
			}
			if err := checked(t, r, files); err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("error %v, want one with %q", err, c.want)
			}
		})
	}
}

// repacked returns what changes the first archive for krew, and its checksum in the manifest.
func repacked(change func(archive.Files)) func(map[string][]byte) {
	return func(f map[string][]byte) {
		name := clientFile(version, first)
		files, err := archive.ReadTarGz(f[name])
		if err != nil {
			panic(err)
		}
		change(files)
		before := digest(f[name])
		f[name] = mustTarGz(files)
		f[krewFile] = bytes.Replace(f[krewFile], []byte(before), []byte(digest(f[name])), 1)
	}
}

func mustTarGz(files archive.Files) []byte {
	raw, err := files.TarGz(time.Time{})
	if err != nil {
		panic(err)
	}
	return raw
}

// A checksum that is not that of the file is found.
func TestCheckFindsChecksums(t *testing.T) {
	r, p := example(t)
	files := packed(t, r, p)
	files[licenceFile] = []byte("another text")
	if err := checked(t, r, files); err == nil || !strings.Contains(err.Error(), "check SHA256SUMS") {
		t.Errorf("error %v", err)
	}
}

// A file of the release says what could not be built for a platform.
func TestOmitted(t *testing.T) {
	r, p := example(t)
	if err := os.Remove(binary(p.binaries, second, agent)); err != nil {
		t.Fatal(err)
	}
	p.omitted = []string{"the image of " + agent + " has no " + second.String() + ": no compiler"}
	if err := checked(t, r, packed(t, r, p)); err != nil {
		t.Error(err)
	}
}

// An image for no platform at all is no image.
func TestNoPlatform(t *testing.T) {
	r, p := example(t)
	r.Platforms = []Platform{other}
	if _, err := r.pack(p); err == nil || !strings.Contains(err.Error(), "it could be built for none of [windows/amd64]") {
		t.Errorf("error %v", err)
	}
}

// Two folders that differ in one file are told apart, by its name.
func TestCompare(t *testing.T) {
	r, p := example(t)
	files := packed(t, r, p)
	folders := []string{filepath.Join(t.TempDir(), "a"), filepath.Join(t.TempDir(), "b")}
	for _, folder := range folders {
		if err := write(folder, files); err != nil {
			t.Fatal(err)
		}
	}
	if err := Compare(folders[0], folders[1]); err != nil {
		t.Error(err)
	}
	writeFile(t, filepath.Join(folders[1], crdsFile), "else")
	if err := Compare(folders[0], folders[1]); err == nil || !strings.Contains(err.Error(), "crds.yaml differs") {
		t.Errorf("error %v", err)
	}
	if err := os.Remove(filepath.Join(folders[0], crdsFile)); err != nil {
		t.Fatal(err)
	}
	if err := Compare(folders[0], folders[1]); err == nil || !strings.Contains(err.Error(), "only") {
		t.Errorf("error %v", err)
	}
	if err := Compare(t.TempDir(), folders[1]); err == nil {
		t.Error("an empty folder is a release")
	}
}

// Images that were pushed to a registry can be pulled by the names in the manifests.
func TestPush(t *testing.T) {
	r, p := example(t)
	folder := filepath.Join(t.TempDir(), "dist")
	if err := write(folder, packed(t, r, p)); err != nil {
		t.Fatal(err)
	}
	server := httptest.NewServer(registry.New(registry.Logger(log.New(io.Discard, "", 0))))
	defer server.Close()
	address := strings.TrimPrefix(server.URL, "http://") + "/team"
	pushed, err := Push(t.Context(), folder, version, address)
	if err != nil || len(pushed) != len(images) {
		t.Fatalf("pushed %v, error %v", pushed, err)
	}
	ref, err := name.ParseReference(address + "/tandem-scheduler:" + version)
	if err != nil {
		t.Fatal(err)
	}
	index, err := remote.Index(ref)
	if err != nil {
		t.Fatal(err)
	}
	manifest, err := index.IndexManifest()
	if err != nil || len(manifest.Manifests) != 2 || manifest.Manifests[1].Platform.Architecture != "arm64" {
		t.Errorf("the registry has %+v, error %v", manifest, err)
	}
}

// Wrong input is refused by the name of the variable, with what is legal.
func TestBadInput(t *testing.T) {
	for _, bad := range []string{"", "0.1.0", "v1", "v01.2.3", "v1.2.3+build", "latest"} {
		r := Release{Root: ".", Version: bad}
		if err := r.Describe(t.Context(), true); err == nil || !strings.Contains(err.Error(), "VERSION") || !strings.Contains(err.Error(), "v0.1.0") {
			t.Errorf("version %q: error %v", bad, err)
		}
	}
	for _, bad := range []string{"https://registry.example.com", "registry.example.com/", "Registry/x y"} {
		r := Release{Root: ".", Version: version, Registry: bad}
		if err := r.Describe(t.Context(), true); err == nil || !strings.Contains(err.Error(), "REGISTRY") {
			t.Errorf("registry %q: error %v", bad, err)
		}
	}
	if _, err := ParsePlatforms("linux/amd64,linux/riscv64"); err == nil || !strings.Contains(err.Error(), "linux/riscv64") {
		t.Errorf("platforms: error %v", err)
	}
	if all, err := ParsePlatforms(""); err != nil || len(all) != 5 {
		t.Errorf("all platforms are %v, error %v", all, err)
	}
}

// A folder with files of somebody else is refused before anything is built, and keeps them. An earlier release may be replaced.
func TestReplaceable(t *testing.T) {
	folder := t.TempDir()
	for _, free := range []string{folder, filepath.Join(folder, "new")} {
		if err := replaceable(free); err != nil {
			t.Errorf("%s: %v, want no error", free, err)
		}
	}
	mine := filepath.Join(folder, "thesis.txt")
	writeFile(t, mine, "text\n")
	r := Release{Root: ".", Version: version}
	err := r.Build(t.Context(), folder, func(what string) { t.Errorf("it goes on: %s", what) })
	if err == nil || !strings.Contains(err.Error(), folder) || !strings.Contains(err.Error(), sumsFile) {
		t.Errorf("error %v, want one that names the folder and %s", err, sumsFile)
	}
	if _, err := os.Stat(mine); err != nil {
		t.Error(err)
	}
	writeFile(t, filepath.Join(folder, sumsFile), "")
	if err := replaceable(folder); err != nil {
		t.Errorf("an earlier release: %v, want no error", err)
	}
}
