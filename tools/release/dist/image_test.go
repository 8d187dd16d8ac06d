package dist

import (
	"io"
	"maps"
	"path/filepath"
	"strings"
	"testing"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/types"

	"github.com/tandem-gpu/tandem/tools/image/oci"
	"github.com/tandem-gpu/tandem/tools/release/archive"
)

// unpacked returns the images in an archive, in order, with their platforms.
func unpacked(t *testing.T, raw []byte) (platforms []*v1.Platform, list []v1.Image) {
	t.Helper()
	folder := t.TempDir()
	path := filepath.Join(folder, "image.tar")
	writeFile(t, path, string(raw))
	index, _, err := open(path, filepath.Join(folder, "layout"))
	if err != nil {
		t.Fatal(err)
	}
	manifest, err := index.IndexManifest()
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range manifest.Manifests {
		img, err := index.Image(m.Digest)
		if err != nil {
			t.Fatal(err)
		}
		platforms, list = append(platforms, m.Platform), append(list, img)
	}
	return platforms, list
}

// inImage returns the files of an image.
func inImage(t *testing.T, img v1.Image) archive.Files {
	t.Helper()
	layers, err := img.Layers()
	if err != nil || len(layers) != 1 {
		t.Fatalf("%d layers, error %v; want one", len(layers), err)
	}
	r, err := layers[0].Uncompressed()
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	raw, err := io.ReadAll(r)
	if err != nil {
		t.Fatal(err)
	}
	files, err := archive.ReadTar(raw)
	if err != nil {
		t.Fatal(err)
	}
	return files
}

// Images have the time and the commit of the release and come with all licence texts. The agent's alone runs as root.
func TestImages(t *testing.T) {
	r, p := example(t)
	files := packed(t, r, p)
	for _, program := range images {
		platforms, list := unpacked(t, files[imageFile(program, version)])
		if len(list) != 2 || platforms[0].String() != first.String() || platforms[1].String() != second.String() {
			t.Fatalf("%s has images for %v, want %s and %s", program, platforms, first, second)
		}
		for i, img := range list {
			config, err := img.ConfigFile()
			if err != nil {
				t.Fatal(err)
			}
			user := unprivileged
			if program == agent {
				user = ""
			}
			if config.Config.User != user || config.Architecture != platforms[i].Architecture {
				t.Errorf("%s for %s: the user is %q, want %q; the architecture %s", program, platforms[i], config.Config.User, user, config.Architecture)
			}
			if !config.Created.Equal(r.Time) || config.Config.Labels[oci.LabelRevision] != r.Revision {
				t.Errorf("%s for %s: created at %v with the labels %v, want the time and the commit of the release", program, platforms[i], config.Created, config.Config.Labels)
			}
			in := inImage(t, img)
			licence, others := string(in["usr/share/doc/tandem/LICENSE"].Content), string(in["usr/share/doc/tandem/THIRD-PARTY.txt"].Content)
			if licence != "Apache License\n" || !strings.Contains(others, "example.com/m v1.0.0: LICENSE") || !strings.Contains(others, "MIT License") {
				t.Errorf("%s for %s: the licence texts are %q and %q", program, platforms[i], licence, others)
			}
		}
	}
}

// An image whose configuration is not that of the release is found.
func TestCheckFindsConfigurations(t *testing.T) {
	r, p := example(t)
	sound := packed(t, r, p)
	for name, c := range map[string]struct {
		program string
		change  func(*v1.Config)
		want    string
	}{
		"another version":       {"shadow", func(c *v1.Config) { c.Labels = map[string]string{oci.LabelVersion: "v0.0.9"} }, `tandem-shadow_v0.1.0.oci.tar: linux/arm64: the label org.opencontainers.image.version is "v0.0.9"`},
		"root":                  {"controller", func(c *v1.Config) { c.User = "" }, `tandem-controller_v0.1.0.oci.tar: linux/arm64: the user is ""`},
		"an agent without root": {agent, func(c *v1.Config) { c.User = unprivileged }, `tandem-device-plugin_v0.1.0.oci.tar: linux/arm64: the user is "65532:65532"`},
	} {
		t.Run(name, func(t *testing.T) {
			files := maps.Clone(sound)
			file := imageFile(c.program, version)
			files[file] = reconfigured(t, r, c.program, files[file], c.change)
			delete(files, sumsFile)
			files[sumsFile] = sums(files)
			if err := checked(t, r, files); err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("error %v, want one with %q", err, c.want)
			}
		})
	}
}

// reconfigured returns the archive with another configuration of the last platform's image.
func reconfigured(t *testing.T, r *Release, program string, raw []byte, change func(*v1.Config)) []byte {
	t.Helper()
	index := mutate.IndexMediaType(empty.Index, types.OCIImageIndex)
	platforms, list := unpacked(t, raw)
	for i, img := range list {
		if i == len(list)-1 {
			config, err := img.ConfigFile()
			if err != nil {
				t.Fatal(err)
			}
			changed := config.DeepCopy().Config
			change(&changed)
			if img, err = mutate.Config(img, changed); err != nil {
				t.Fatal(err)
			}
		}
		index = mutate.AppendManifests(index, mutate.IndexAddendum{Add: img, Descriptor: v1.Descriptor{Platform: platforms[i]}})
	}
	again, err := r.packImage(index, program)
	if err != nil {
		t.Fatal(err)
	}
	return again
}
