package dist

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/google/go-containerregistry/pkg/authn"
	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/google/go-containerregistry/pkg/v1/types"

	"github.com/tandem-gpu/tandem/tools/image/oci"
	"github.com/tandem-gpu/tandem/tools/release/archive"
)

// unprivileged is the user of all images but the agent's, who has to be root: the same number as in deploy/.
const unprivileged = "65532:65532"

// The annotations by which engines name what they import: containerd's own, and OCI's.
const (
	annotationName = "io.containerd.image.name"
	annotationTag  = "org.opencontainers.image.ref.name"
)

// reference is the whole name of an image.
func (r *Release) reference(program string) string {
	short := "tandem-" + program + ":" + r.Version
	if r.Registry == "" {
		return short
	}
	return r.Registry + "/" + short
}

// image packs a program of all platforms into one archive in OCI's layout.
func (r *Release) image(program, binaries string, notices []byte) ([]byte, error) {
	index := mutate.IndexMediaType(empty.Index, types.OCIImageIndex)
	for _, p := range r.Platforms {
		path := binary(binaries, p, program)
		if _, err := os.Stat(path); err != nil {
			continue
		}
		img, err := r.platformImage(program, path, p, notices)
		if err != nil {
			return nil, fmt.Errorf("pack the image of %s for %s: %w", program, p, err)
		}
		index = mutate.AppendManifests(index, mutate.IndexAddendum{
			Add: img, Descriptor: v1.Descriptor{Platform: &v1.Platform{OS: p.OS, Architecture: p.Architecture}},
		})
	}
	if manifest, err := index.IndexManifest(); err != nil || len(manifest.Manifests) == 0 {
		return nil, errors.Join(fmt.Errorf("pack the image of %s: it could be built for none of %v", program, r.Platforms), err)
	}
	return r.packImage(index, program)
}

// packImage packs the images of all platforms of a program.
func (r *Release) packImage(index v1.ImageIndex, program string) ([]byte, error) {
	named, err := r.named(index, program)
	if err != nil {
		return nil, err
	}
	folder, err := os.MkdirTemp("", "tandem-image-")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(folder)
	if _, err := layout.Write(folder, named); err != nil {
		return nil, fmt.Errorf("pack the image of %s: %w", program, err)
	}
	files, err := read(folder)
	if err != nil {
		return nil, err
	}
	return files.Tar(r.Time)
}

// named puts the index below one that names it, as an archive for several platforms has it.
func (r *Release) named(index v1.ImageIndex, program string) (v1.ImageIndex, error) {
	ref, err := name.NewTag(r.reference(program))
	if err != nil {
		return nil, err
	}
	// Engines write out the registry of names without one, and say docker.io.
	full := strings.Replace(ref.Name(), name.DefaultRegistry+"/", "docker.io/", 1)
	outer := mutate.IndexMediaType(empty.Index, types.OCIImageIndex)
	return mutate.AppendManifests(outer, mutate.IndexAddendum{
		Add: index, Descriptor: v1.Descriptor{Annotations: map[string]string{annotationName: full, annotationTag: r.Version}},
	}), nil
}

// platformImage is the image of one platform. The licence texts of what is in it come with it.
func (r *Release) platformImage(program, path string, p Platform, notices []byte) (v1.Image, error) {
	licence, err := os.ReadFile(filepath.Join(r.Root, licenceFile))
	if err != nil {
		return nil, err
	}
	of := oci.Program{
		Binary: path, Version: r.Version, Revision: r.Revision, Architecture: p.Architecture, User: unprivileged,
		Files: map[string][]byte{"usr/share/doc/tandem/LICENSE": licence, "usr/share/doc/tandem/THIRD-PARTY.txt": notices},
	}
	if program == agent {
		of.User = ""
		if !p.native() {
			of.Libraries = crosses[p.Architecture].libraries
		}
	}
	img, err := of.Image()
	if err != nil {
		return nil, err
	}
	if img, err = mutate.CreatedAt(img, v1.Time{Time: r.Time}); err != nil {
		return nil, err
	}
	return mutate.ConfigMediaType(mutate.MediaType(img, types.OCIManifestSchema1), types.OCIConfigJSON), nil
}

// read returns the files below a folder.
func read(folder string) (archive.Files, error) {
	files := archive.Files{}
	err := filepath.WalkDir(folder, func(path string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		rel, err := filepath.Rel(folder, path)
		if err != nil {
			return err
		}
		content, err := os.ReadFile(path)
		files[filepath.ToSlash(rel)] = archive.File{Content: content}
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("read %s: %w", folder, err)
	}
	return files, nil
}

// open unpacks an archive of images into the folder, and returns the index that the archive names.
func open(path, folder string) (v1.ImageIndex, v1.Descriptor, error) {
	raw, err := os.ReadFile(path)
	if err != nil {
		return nil, v1.Descriptor{}, err
	}
	files, err := archive.ReadTar(raw)
	if err != nil {
		return nil, v1.Descriptor{}, fmt.Errorf("read %s: %w", path, err)
	}
	for file, f := range files {
		if !filepath.IsLocal(file) {
			return nil, v1.Descriptor{}, fmt.Errorf("read %s: it has the file %s", path, file)
		}
		if err := os.MkdirAll(filepath.Dir(filepath.Join(folder, file)), 0o755); err != nil {
			return nil, v1.Descriptor{}, err
		}
		if err := os.WriteFile(filepath.Join(folder, file), f.Content, 0o600); err != nil {
			return nil, v1.Descriptor{}, err
		}
	}
	outer, err := layout.ImageIndexFromPath(folder)
	if err != nil {
		return nil, v1.Descriptor{}, fmt.Errorf("read %s: %w", path, err)
	}
	manifest, err := outer.IndexManifest()
	if err != nil {
		return nil, v1.Descriptor{}, fmt.Errorf("read %s: %w", path, err)
	}
	if len(manifest.Manifests) != 1 {
		return nil, v1.Descriptor{}, fmt.Errorf("read %s: it has %d images, want one for all platforms", path, len(manifest.Manifests))
	}
	inner, err := outer.ImageIndex(manifest.Manifests[0].Digest)
	return inner, manifest.Manifests[0], err
}

// Push writes the images of a release to a registry, with the accounts of docker's configuration, and returns their names there. Registries on loopback are reached without TLS.
func Push(ctx context.Context, folder, version, registry string) ([]string, error) {
	pushed := make([]string, 0, len(images))
	for _, program := range images {
		ref, err := name.NewTag(registry + "/tandem-" + program + ":" + version)
		if err != nil {
			return nil, fmt.Errorf("push to %q: %w", registry, err)
		}
		if err := push(ctx, filepath.Join(folder, imageFile(program, version)), ref); err != nil {
			return nil, fmt.Errorf("push %s: %w", ref, err)
		}
		pushed = append(pushed, ref.String())
	}
	return pushed, nil
}

func push(ctx context.Context, path string, ref name.Tag) error {
	folder, err := os.MkdirTemp("", "tandem-push-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(folder)
	index, _, err := open(path, folder)
	if err != nil {
		return err
	}
	return remote.WriteIndex(ref, index, remote.WithContext(ctx), remote.WithAuthFromKeychain(authn.DefaultKeychain))
}
