package dist

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"sigs.k8s.io/yaml"

	"github.com/tandem-gpu/tandem/tools/release/archive"
	"github.com/tandem-gpu/tandem/tools/release/bill"
	"github.com/tandem-gpu/tandem/tools/release/licence"
)

// Build writes the release into the folder, which it replaces when all is built. A folder with other files than those of a release is
// an error: its files would be lost.
func (r *Release) Build(ctx context.Context, folder string, say func(string)) error {
	if err := replaceable(folder); err != nil {
		return err
	}
	temp, err := os.MkdirTemp("", "tandem-release-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(temp)
	omitted, err := r.binaries(ctx, temp, say)
	if err != nil {
		return err
	}
	say("collect licences")
	programs, err := r.modules(ctx)
	if err != nil {
		return err
	}
	say("render manifests and chart")
	manifests, err := r.manifests(ctx)
	if err != nil {
		return err
	}
	say("pack")
	files, err := r.pack(parts{temp, omitted, programs, manifests})
	if err != nil {
		return err
	}
	return write(folder, files)
}

// replaceable fails where the folder has files and no checksums of a release.
func replaceable(folder string) error {
	entries, err := os.ReadDir(folder)
	switch {
	case errors.Is(err, fs.ErrNotExist), err == nil && len(entries) == 0:
		return nil
	case err != nil:
		return fmt.Errorf("look into the folder for the release: %w", err)
	}
	if _, err := os.Stat(filepath.Join(folder, sumsFile)); err != nil {
		return fmt.Errorf("write the release into %s: the folder has files, and no %s of an earlier release: name a new folder, or remove these files", folder, sumsFile)
	}
	return nil
}

// write replaces the folder.
func write(folder string, files map[string][]byte) error {
	if err := os.RemoveAll(folder); err != nil {
		return err
	}
	if err := os.MkdirAll(folder, 0o755); err != nil {
		return err
	}
	for name, content := range files {
		if err := os.WriteFile(filepath.Join(folder, name), content, 0o644); err != nil {
			return err
		}
	}
	return nil
}

// parts are what a release is packed from.
type parts struct {
	// binaries is the folder with the programs of all platforms.
	binaries string
	// omitted says what could not be built, and why.
	omitted []string
	// programs are the modules of each program.
	programs map[string][]licence.Module
	// manifests are install.yaml and others, and the chart in the folder tandem.
	manifests archive.Files
}

// pack makes all files of the release.
func (r *Release) pack(p parts) (map[string][]byte, error) {
	files := map[string][]byte{}
	var err error
	for _, program := range images {
		if files[imageFile(program, r.Version)], err = r.image(program, p.binaries, licence.Notices(p.programs[program])); err != nil {
			return nil, err
		}
	}
	if err := r.clients(p.binaries, licence.Notices(p.programs[client]), files); err != nil {
		return nil, err
	}
	if err := r.chart(p.manifests, files); err != nil {
		return nil, err
	}
	if files[licenceFile], err = os.ReadFile(filepath.Join(r.Root, licenceFile)); err != nil {
		return nil, err
	}
	if files[noticesFile(r.Version)], err = r.notices(p.programs); err != nil {
		return nil, err
	}
	named := map[string][]licence.Module{}
	for program, modules := range p.programs {
		named[filepath.Base(binary("", Platform{OS: "linux"}, program))] = modules
	}
	b := bill.Bill{Version: r.Version, Revision: r.Revision, Created: r.Time, Programs: named}
	if files[billFile(r.Version)], err = b.JSON(); err != nil {
		return nil, err
	}
	if len(p.omitted) > 0 {
		files[omittedFile] = []byte(strings.Join(p.omitted, "\n") + "\n")
	}
	files[sumsFile] = sums(files)
	return files, nil
}

// modules returns what each program is built from, on any platform of the release.
func (r *Release) modules(ctx context.Context) (map[string][]licence.Module, error) {
	programs := map[string][]licence.Module{}
	for _, program := range append(slices.Clone(images), client) {
		var lists [][]licence.Module
		for _, p := range r.Platforms {
			if program != client && !slices.Contains(imagePlatforms, p) {
				continue
			}
			cgo := "0"
			if program == agent {
				cgo = "1"
			}
			env := []string{"GOWORK=off", "GOFLAGS=", "GOOS=" + p.OS, "GOARCH=" + p.Architecture, "CGO_ENABLED=" + cgo}
			list, err := licence.Of(ctx, r.Root, env, "./cmd/"+program)
			if err != nil {
				return nil, err
			}
			lists = append(lists, list)
		}
		programs[program] = licence.Merge(lists...)
	}
	return programs, nil
}

// notices packs the licence texts of all modules, in a folder for each.
func (r *Release) notices(programs map[string][]licence.Module) ([]byte, error) {
	files := archive.Files{}
	for _, program := range slices.Sorted(maps.Keys(programs)) {
		for _, m := range programs[program] {
			folder := m.Path
			if m.Version != "" {
				folder += "@" + m.Version
			}
			for path, text := range m.Texts {
				files[folder+"/"+path] = archive.File{Content: text}
			}
		}
	}
	return files.TarGz(r.Time)
}

// manifests has the repository's own command write the manifests and the chart.
func (r *Release) manifests(ctx context.Context) (archive.Files, error) {
	folder, err := os.MkdirTemp("", "tandem-manifests-")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(folder)
	cmd := r.command(ctx, nil, "go", "run", "./internal/release/manifests", "-version", r.Version, "-registry", r.Registry, "-output", folder)
	if out, err := cmd.CombinedOutput(); err != nil {
		return nil, fmt.Errorf("render manifests: %w\n%s", err, out)
	}
	return read(folder)
}

// chart packs the chart, whose folder has the chart's name, and adds the other manifests as they are.
func (r *Release) chart(manifests archive.Files, files map[string][]byte) error {
	chart := archive.Files{}
	for path, f := range manifests {
		if strings.HasPrefix(path, "tandem/") {
			chart[path] = f
			continue
		}
		files[path] = f.Content
	}
	var err error
	files[chartFile(r.Version)], err = chart.TarGz(r.Time)
	return err
}

// clients packs kubectl-tandem for each platform, and writes the manifest for krew, the package manager of kubectl's plugins.
func (r *Release) clients(binaries string, notices []byte, files map[string][]byte) error {
	licence, err := os.ReadFile(filepath.Join(r.Root, licenceFile))
	if err != nil {
		return err
	}
	platforms := make([]any, 0, len(r.Platforms))
	for _, p := range r.Platforms {
		path := binary(binaries, p, client)
		content, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		packed := archive.Files{
			filepath.Base(path): {Content: content, Executable: true}, licenceFile: {Content: licence}, "THIRD-PARTY.txt": {Content: notices},
		}
		pack := packed.TarGz
		if p.OS == "windows" {
			pack = packed.Zip
		}
		name := clientFile(r.Version, p)
		if files[name], err = pack(r.Time); err != nil {
			return err
		}
		platforms = append(platforms, map[string]any{
			"selector": map[string]any{"matchLabels": map[string]any{"os": p.OS, "arch": p.Architecture}},
			"uri":      "https://github.com/tandem-gpu/tandem/releases/download/" + r.Version + "/" + name,
			"sha256":   digest(files[name]), "bin": filepath.Base(path),
		})
	}
	files[krewFile], err = yaml.Marshal(map[string]any{
		"apiVersion": "krew.googlecontainertools.github.com/v1alpha2", "kind": "Plugin", "metadata": map[string]any{"name": "tandem"},
		"spec": map[string]any{
			"version": r.Version, "homepage": "https://github.com/tandem-gpu/tandem", "platforms": platforms,
			"shortDescription": "Show who shares which GPU and why pods wait",
			"description":      "Shows which pods have which part of which GPU, why pods wait for GPUs and what would help, in clusters with Tandem.\n",
		},
	})
	return err
}

func digest(content []byte) string {
	sum := sha256.Sum256(content)
	return hex.EncodeToString(sum[:])
}

// sums is what `sha256sum --check` reads.
func sums(files map[string][]byte) []byte {
	var b strings.Builder
	for _, name := range slices.Sorted(maps.Keys(files)) {
		fmt.Fprintf(&b, "%s  %s\n", digest(files[name]), name)
	}
	return []byte(b.String())
}
