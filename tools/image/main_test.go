package main

import (
	"bytes"
	"maps"
	"os"
	"path/filepath"
	"runtime"
	"testing"

	"github.com/google/go-containerregistry/pkg/v1/tarball"

	"github.com/tandem-gpu/tandem/tools/image/oci"
)

// build is the program of this test as some version.
func build(version, revision string) image {
	return image{Program: oci.Program{Version: version, Revision: revision, Architecture: runtime.GOARCH}}
}

// packed packs the program of this test and returns the archive's path.
func (i image) packed(t *testing.T) string {
	t.Helper()
	program, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	i.Binary, i.tag, i.output = program, "tandem-test:dev", filepath.Join(t.TempDir(), "image.tar")
	if err := i.pack(); err != nil {
		t.Fatal(err)
	}
	return i.output
}

// An image says which build it holds, by the keys that OCI's image specification has for it.
func TestLabels(t *testing.T) {
	for _, c := range []struct {
		name string
		of   image
		want map[string]string
	}{
		{"in a clone", build("v0.3.1", "5c7d74f"), map[string]string{
			"org.opencontainers.image.version": "v0.3.1", "org.opencontainers.image.revision": "5c7d74f",
		}},
		{"outside of a clone", build("unknown", ""), map[string]string{"org.opencontainers.image.version": "unknown"}},
	} {
		img, err := tarball.ImageFromPath(c.of.packed(t), nil)
		if err != nil {
			t.Fatal(err)
		}
		config, err := img.ConfigFile()
		if err != nil {
			t.Fatal(err)
		}
		if got := config.Config.Labels; !maps.Equal(got, c.want) {
			t.Errorf("%s: the labels are %v, want %v", c.name, got, c.want)
		}
	}
}

// The same input gives the same archive, and another version another one.
func TestArchivesAreReproducible(t *testing.T) {
	read := func(i image) []byte {
		content, err := os.ReadFile(i.packed(t))
		if err != nil {
			t.Fatal(err)
		}
		return content
	}
	first := read(build("v1", ""))
	if !bytes.Equal(first, read(build("v1", ""))) {
		t.Error("two archives of the same input differ")
	}
	if bytes.Equal(first, read(build("v2", ""))) {
		t.Error("archives of two versions are the same")
	}
}

// The command refuses an image without a version: it could not be told apart later.
func TestRequired(t *testing.T) {
	if err := (image{Program: oci.Program{Binary: os.Args[0]}, tag: "a:b", output: filepath.Join(t.TempDir(), "image.tar")}).pack(); err == nil {
		t.Error("an image without a version was packed")
	}
}
