package version

import (
	"runtime/debug"
	"testing"
)

func TestOf(t *testing.T) {
	built := &debug.BuildInfo{
		GoVersion: "go1.26.0", Main: debug.Module{Version: "v0.0.0-20261123071802-5c7d74f0a1b2"},
		Deps:     []*debug.Module{{Path: "k8s.io/api", Version: "v0.37.2"}, {Path: "k8s.io/kubernetes", Version: "v1.37.2"}},
		Settings: []debug.BuildSetting{{Key: "vcs", Value: "git"}, {Key: "vcs.revision", Value: "5c7d74f"}},
	}
	agent := *built
	agent.Deps = nil
	for _, c := range []struct {
		name, stamped string
		built         *debug.BuildInfo
		want          string
	}{
		{"stamped", "v1.2.3", built, "v1.2.3 (commit 5c7d74f, go1.26.0, Kubernetes v1.37.2)"},
		{"a plain build", "", built, "v0.0.0-20261123071802-5c7d74f0a1b2 (commit 5c7d74f, go1.26.0, Kubernetes v1.37.2)"},
		{"a program without the scheduler's modules", "v1.2.3", &agent, "v1.2.3 (commit 5c7d74f, go1.26.0)"},
		{"nothing noted", "", &debug.BuildInfo{GoVersion: "go1.26.0"}, "unknown (commit unknown, go1.26.0)"},
	} {
		if got := of(c.stamped, c.built).String(); got != c.want {
			t.Errorf("%s: %s, want %s", c.name, got, c.want)
		}
	}
}
