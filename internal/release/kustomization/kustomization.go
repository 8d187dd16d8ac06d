// Package kustomization renders the folders of deploy/ with the images of a release.
package kustomization

import (
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"sigs.k8s.io/kustomize/api/krusty"
	"sigs.k8s.io/kustomize/kyaml/filesys"
	"sigs.k8s.io/yaml"
)

// Overlay is what an administrator writes above folders of the repository.
type Overlay struct {
	// Root is the repository.
	Root string
	// Resources and Components are folders below deploy/; "" is deploy/ itself.
	Resources, Components []string
	// Images are the names of images with their tags, such as registry.example.com/tandem-scheduler:v0.1.0, by the name in deploy/.
	Images map[string]string
}

// Build returns the objects as one YAML text.
func (o Overlay) Build() ([]byte, error) {
	folder, err := os.MkdirTemp("", "tandem-overlay-")
	if err != nil {
		return nil, fmt.Errorf("render deploy/: %w", err)
	}
	defer os.RemoveAll(folder)
	if folder, err = filepath.EvalSymlinks(folder); err != nil {
		return nil, fmt.Errorf("render deploy/: %w", err)
	}
	text, err := o.text(folder)
	if err != nil {
		return nil, err
	}
	if err := os.WriteFile(filepath.Join(folder, "kustomization.yaml"), text, 0o600); err != nil {
		return nil, fmt.Errorf("render deploy/: %w", err)
	}
	rendered, err := krusty.MakeKustomizer(krusty.MakeDefaultOptions()).Run(filesys.MakeFsOnDisk(), folder)
	if err != nil {
		return nil, fmt.Errorf("render deploy/: %w", err)
	}
	return rendered.AsYaml()
}

// text is the kustomization in the folder.
func (o Overlay) text(folder string) ([]byte, error) {
	root, err := filepath.Abs(o.Root)
	if err == nil {
		root, err = filepath.EvalSymlinks(root)
	}
	if err != nil {
		return nil, fmt.Errorf("render deploy/: %w", err)
	}
	deploy, err := filepath.Rel(folder, filepath.Join(root, "deploy"))
	if err != nil {
		return nil, fmt.Errorf("render deploy/: %w", err)
	}
	below := func(names []string) []string {
		paths := make([]string, 0, len(names))
		for _, name := range names {
			paths = append(paths, filepath.Join(deploy, name))
		}
		return paths
	}
	images := make([]map[string]string, 0, len(o.Images))
	for _, name := range slices.Sorted(maps.Keys(o.Images)) {
		at := strings.LastIndex(o.Images[name], ":")
		images = append(images, map[string]string{"name": name, "newName": o.Images[name][:at], "newTag": o.Images[name][at+1:]})
	}
	return yaml.Marshal(map[string]any{"resources": below(o.Resources), "components": below(o.Components), "images": images})
}
