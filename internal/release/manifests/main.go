// Command manifests writes the manifests of a release into a folder: install.yaml with all of deploy/, crds.yaml, shadow.yaml, and the
// Helm chart in the folder tandem.
//
//	go run ./internal/release/manifests -version v0.1.0 -registry registry.example.com/team -output DIR
//
// With -values it prints the table of the chart's values instead.
package main

import (
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"

	"github.com/tandem-gpu/tandem/internal/release/chart"
	"github.com/tandem-gpu/tandem/internal/release/kustomization"
)

// options are the flags.
type options struct {
	root, version, registry, output string
	values                          bool
}

func main() {
	var o options
	flag.StringVar(&o.root, "root", ".", "the repository")
	flag.StringVar(&o.version, "version", "", "the version of the release, such as v0.1.0")
	flag.StringVar(&o.registry, "registry", "", "what is put before the names of the images, such as registry.example.com/team")
	flag.StringVar(&o.output, "output", "", "the folder to write into")
	flag.BoolVar(&o.values, "values", false, "print the table of the chart's values")
	flag.Parse()
	if err := o.run(); err != nil {
		fmt.Fprintln(os.Stderr, "manifests:", err)
		os.Exit(1)
	}
}

func (o options) run() error {
	if o.values {
		table, err := chart.Table(o.root)
		fmt.Print(table)
		return err
	}
	if o.version == "" || o.output == "" {
		return errors.New("-version and -output are required")
	}
	for name, folder := range map[string]string{"install": "", "crds": "crds", "shadow": "shadow"} {
		overlay := kustomization.Overlay{Root: o.root, Resources: []string{folder}, Images: o.images(folder)}
		raw, err := overlay.Build()
		if err != nil {
			return err
		}
		if err := os.WriteFile(filepath.Join(o.output, name+".yaml"), raw, 0o644); err != nil {
			return err
		}
	}
	return chart.Chart{Root: o.root, Version: o.version, Registry: o.registry}.Write(filepath.Join(o.output, "tandem"))
}

// images are the names of the release's images.
func (o options) images(folder string) map[string]string {
	images := map[string]string{}
	programs := map[string][]string{"": {"scheduler", "controller", "activator", "device-plugin"}, "shadow": {"shadow"}}
	for _, program := range programs[folder] {
		name := "tandem-" + program
		images[name] = name + ":" + o.version
		if o.registry != "" {
			images[name] = o.registry + "/" + images[name]
		}
	}
	return images
}
