// Package version has the version of the program: the stamp of the build, else Go's own note on the build.
//
// hack/version.sh names the version after git, and the Makefile and hack/image.sh stamp it. A plain `go build` in a clone has Go's
// own name of the commit.
package version

import (
	"cmp"
	"fmt"
	"runtime"
	"runtime/debug"
)

// stamped is set by the linker: -ldflags "-X github.com/tandem-gpu/tandem/internal/version.stamped=v1.2.3".
var stamped string

// unknown stands for what neither the linker nor Go noted.
const unknown = "unknown"

// Info is a build.
type Info struct {
	// Version of Tandem, for example v0.3.1 or v0.0.0-20261123071802-5c7d74f0a1b2+dirty.
	Version string
	// Revision is the commit.
	Revision string
	// Go is the version of the compiler.
	Go string
	// Kubernetes is the version of the scheduler's modules, "" for programs without them.
	Kubernetes string
}

// Get returns the build of this program.
func Get() Info {
	built, ok := debug.ReadBuildInfo()
	if !ok {
		built = &debug.BuildInfo{}
	}
	return of(stamped, built)
}

func of(stamped string, built *debug.BuildInfo) Info {
	i := Info{Version: cmp.Or(stamped, built.Main.Version, unknown), Revision: unknown, Go: cmp.Or(built.GoVersion, runtime.Version())}
	for _, s := range built.Settings {
		if s.Key == "vcs.revision" {
			i.Revision = s.Value
		}
	}
	for _, d := range built.Deps {
		if d.Path == "k8s.io/kubernetes" {
			i.Kubernetes = d.Version
		}
	}
	return i
}

// Metric is the name of the metric with the build, which is always 1.
const Metric = "tandem_build_info"

// MetricHelp describes the metric.
const MetricHelp = "1, with the version of the running program as labels."

// MetricLabels are the labels of the metric, and Values their values.
func MetricLabels() []string { return []string{"version", "revision", "go"} }

// Values are those of the labels of the metric, in their order.
func (i Info) Values() []string { return []string{i.Version, i.Revision, i.Go} }

// String says the build in one line, for people.
func (i Info) String() string {
	text := fmt.Sprintf("%s (commit %s, %s", i.Version, i.Revision, i.Go)
	if i.Kubernetes != "" {
		text += ", Kubernetes " + i.Kubernetes
	}
	return text + ")"
}
