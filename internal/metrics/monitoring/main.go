// Command monitoring writes the dashboards and the alerts of Tandem into a folder, deploy/monitoring: a file for each dashboard, the rules, and
// the rules as an object of the Prometheus operator.
package main

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"

	"github.com/tandem-gpu/tandem/internal/metrics/alerts"
	"github.com/tandem-gpu/tandem/internal/metrics/dashboards"
)

func main() {
	if len(os.Args) != 2 {
		fmt.Fprintln(os.Stderr, "usage: monitoring FOLDER")
		os.Exit(2)
	}
	if err := run(os.Args[1]); err != nil {
		fmt.Fprintln(os.Stderr, "monitoring:", err)
		os.Exit(1)
	}
}

// run writes all files below a folder.
func run(dir string) error {
	all, err := files()
	if err != nil {
		return err
	}
	// A dashboard that the table no longer has goes.
	if err := os.RemoveAll(filepath.Join(dir, "dashboards")); err != nil {
		return err
	}
	for name, content := range all {
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			return err
		}
		if err := os.WriteFile(path, content, 0o644); err != nil { //nolint:gosec // everybody may read it
			return err
		}
	}
	return nil
}

// files returns the content of each file by its name.
func files() (map[string][]byte, error) {
	all := map[string][]byte{}
	for _, d := range dashboards.All() {
		var b bytes.Buffer
		if err := d.Write(&b); err != nil {
			return nil, err
		}
		all[filepath.Join("dashboards", d.Name+".json")] = b.Bytes()
	}
	var rules, object bytes.Buffer
	if err := alerts.Write(&rules, alerts.All()); err != nil {
		return nil, err
	}
	if err := alerts.WriteObject(&object, alerts.All()); err != nil {
		return nil, err
	}
	all["rules.yaml"], all["prometheusrule.yaml"] = rules.Bytes(), object.Bytes()
	return all, nil
}
