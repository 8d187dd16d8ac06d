// Command image packs a binary and the shared libraries that it needs into an OCI image archive, without a
// container engine and without a base image.
//
//	go run . --binary bin/tandem-device-plugin --name tandem-device-plugin:dev --version v0.3.1 --output device-plugin.tar
//
// The image holds the binary under /usr/bin, the libraries that `ldd` names at their paths, and an empty /tmp. Its labels
// name the version and the commit of the binary. Files have no times and fixed owners, so the same input gives the same
// digest.
package main

import (
	"archive/tar"
	"bytes"
	"debug/elf"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"sort"

	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
)

// The labels that OCI's image specification has for a build.
const (
	labelVersion  = "org.opencontainers.image.version"
	labelRevision = "org.opencontainers.image.revision"
)

// image is what to pack.
type image struct {
	binary, tag, output string
	version             string // of the binary
	revision            string // the commit of the build; "" outside of a clone
}

func main() {
	var i image
	flag.StringVar(&i.binary, "binary", "", "the program to pack")
	flag.StringVar(&i.tag, "name", "", "name:tag of the image")
	flag.StringVar(&i.output, "output", "", "the archive to write (docker-archive format: `ctr images import`, `docker load`)")
	flag.StringVar(&i.version, "version", "", "the version of the program, for the label "+labelVersion)
	flag.StringVar(&i.revision, "revision", "", "the commit of the program, for the label "+labelRevision+"; without it there is no such label")
	flag.Parse()
	if err := i.pack(); err != nil {
		fmt.Fprintln(os.Stderr, "pack image:", err)
		os.Exit(1)
	}
}

func (i image) pack() error {
	if i.binary == "" || i.tag == "" || i.output == "" || i.version == "" {
		return errors.New("--binary, --name, --version and --output are required")
	}
	ref, err := name.NewTag(i.tag)
	if err != nil {
		return err
	}
	inImage := "usr/bin/" + filepath.Base(i.binary)
	layer, err := filesLayer(i.binary, inImage)
	if err != nil {
		return err
	}
	img, err := mutate.AppendLayers(empty.Image, layer)
	if err != nil {
		return err
	}
	config, err := img.ConfigFile()
	if err != nil {
		return err
	}
	config = config.DeepCopy()
	config.OS, config.Architecture = "linux", runtime.GOARCH
	config.Config.Entrypoint = []string{"/" + inImage}
	config.Config.Env = []string{"PATH=/usr/bin:/bin"}
	config.Config.Labels = i.labels()
	if img, err = mutate.ConfigFile(img, config); err != nil {
		return err
	}
	return tarball.WriteToFile(i.output, ref, img)
}

// labels say which build the image holds, whatever its tag is.
func (i image) labels() map[string]string {
	labels := map[string]string{labelVersion: i.version}
	if i.revision != "" {
		labels[labelRevision] = i.revision
	}
	return labels
}

// filesLayer is a layer with the binary at inImage, its libraries, and the directories above them.
func filesLayer(binary, inImage string) (v1.Layer, error) {
	files := map[string]string{inImage: binary}
	libraries, err := sharedLibraries(binary)
	if err != nil {
		return nil, err
	}
	for _, path := range libraries {
		files[path[1:]] = path
	}
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
	for _, path := range sortedKeys(files) {
		if err := addFile(w, path, files[path]); err != nil {
			return nil, err
		}
	}
	if err := w.Close(); err != nil {
		return nil, err
	}
	return tarball.LayerFromOpener(func() (io.ReadCloser, error) {
		return io.NopCloser(bytes.NewReader(buf.Bytes())), nil
	})
}

func addFile(w *tar.Writer, path, source string) error {
	content, err := os.ReadFile(source)
	if err != nil {
		return err
	}
	if err := w.WriteHeader(&tar.Header{Name: path, Typeflag: tar.TypeReg, Mode: 0o755, Size: int64(len(content))}); err != nil {
		return err
	}
	_, err = w.Write(content)
	return err
}

// library finds the paths in ldd's lines: "libc.so.6 => /lib/…/libc.so.6 (0x…)" and "/lib64/ld-linux… (0x…)".
var library = regexp.MustCompile(`(?m)(/\S+) \(0x[0-9a-f]+\)$`)

func sharedLibraries(binary string) ([]string, error) {
	f, err := elf.Open(binary)
	if err != nil {
		return nil, fmt.Errorf("read %s: %w", binary, err)
	}
	defer f.Close()
	if f.Section(".interp") == nil {
		return nil, nil // static
	}
	out, err := exec.Command("ldd", binary).Output()
	if err != nil {
		return nil, fmt.Errorf("ldd %s: %w", binary, err)
	}
	var paths []string
	for _, m := range library.FindAllSubmatch(out, -1) {
		paths = append(paths, string(m[1]))
	}
	return paths, nil
}

// directories lists all parents of the files and /tmp, parents first.
func directories(files map[string]string) []string {
	seen := map[string]string{"tmp/": ""}
	for path := range files {
		for dir := filepath.Dir(path); dir != "."; dir = filepath.Dir(dir) {
			seen[dir+"/"] = ""
		}
	}
	return sortedKeys(seen)
}

func sortedKeys(m map[string]string) []string {
	keys := make([]string, 0, len(m))
	for k := range m {
		keys = append(keys, k)
	}
	sort.Strings(keys)
	return keys
}
