package oci

import (
	"archive/tar"
	"bytes"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"slices"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
)

// The labels that OCI's image specification has for a build.
const (
	LabelVersion  = "org.opencontainers.image.version"
	LabelRevision = "org.opencontainers.image.revision"
)

// Program is what an image is made of.
type Program struct {
	// Binary is the path of the program.
	Binary string
	// Version of the program.
	Version string
	// Revision is the commit of the build; "" outside of a clone.
	Revision string
	// Architecture in Go's words, such as arm64.
	Architecture string
	// Libraries is the folder with the shared libraries of another architecture. "" means those of this machine.
	Libraries string
	// User is that of the process, as UID:GID; "" is root.
	User string
	// Files are further files, by their path in the image without the first slash.
	Files map[string][]byte
}

// Image makes the image.
func (p Program) Image() (v1.Image, error) {
	inImage := "usr/bin/" + filepath.Base(p.Binary)
	layer, err := p.layer(inImage)
	if err != nil {
		return nil, err
	}
	img, err := mutate.AppendLayers(empty.Image, layer)
	if err != nil {
		return nil, err
	}
	config, err := img.ConfigFile()
	if err != nil {
		return nil, err
	}
	config = config.DeepCopy()
	config.OS, config.Architecture = "linux", p.Architecture
	config.Config.Entrypoint = []string{"/" + inImage}
	config.Config.Env = []string{"PATH=/usr/bin:/bin"}
	config.Config.Labels = p.labels()
	config.Config.User = p.User
	return mutate.ConfigFile(img, config)
}

// labels say which build the image holds, whatever its tag is.
func (p Program) labels() map[string]string {
	labels := map[string]string{LabelVersion: p.Version}
	if p.Revision != "" {
		labels[LabelRevision] = p.Revision
	}
	return labels
}

// file is one of the image. Programs and libraries may be executed.
type file struct {
	content []byte
	mode    int64
}

// layer has the binary at inImage, its libraries, the further files, and the directories above them.
func (p Program) layer(inImage string) (v1.Layer, error) {
	sources := map[string]string{inImage: p.Binary}
	libraries, err := p.libraries()
	if err != nil {
		return nil, err
	}
	maps.Copy(sources, libraries)
	files := map[string]file{}
	for path, source := range sources {
		content, err := os.ReadFile(source)
		if err != nil {
			return nil, err
		}
		files[path] = file{content, 0o755}
	}
	for path, content := range p.Files {
		files[path] = file{content, 0o644}
	}
	raw, err := pack(files)
	if err != nil {
		return nil, err
	}
	return tarball.LayerFromOpener(func() (io.ReadCloser, error) {
		return io.NopCloser(bytes.NewReader(raw)), nil
	})
}

// pack returns a tar archive of the files in the order of their names.
func pack(files map[string]file) ([]byte, error) {
	var buf bytes.Buffer
	w := tar.NewWriter(&buf)
	for _, dir := range directories(files) {
		mode := int64(0o755)
		if dir == "tmp/" {
			mode = 0o1777
		}
		if err := w.WriteHeader(&tar.Header{Name: dir, Typeflag: tar.TypeDir, Mode: mode}); err != nil {
			return nil, err
		}
	}
	for _, path := range slices.Sorted(maps.Keys(files)) {
		f := files[path]
		if err := w.WriteHeader(&tar.Header{Name: path, Typeflag: tar.TypeReg, Mode: f.mode, Size: int64(len(f.content))}); err != nil {
			return nil, fmt.Errorf("pack %s: %w", path, err)
		}
		if _, err := w.Write(f.content); err != nil {
			return nil, fmt.Errorf("pack %s: %w", path, err)
		}
	}
	if err := w.Close(); err != nil {
		return nil, err
	}
	return buf.Bytes(), nil
}

// directories lists all parents of the files and /tmp, parents first.
func directories(files map[string]file) []string {
	seen := map[string]bool{"tmp/": true}
	for path := range files {
		for dir := filepath.Dir(path); dir != "."; dir = filepath.Dir(dir) {
			seen[dir+"/"] = true
		}
	}
	return slices.Sorted(maps.Keys(seen))
}
