package main

import (
	"os"
	"os/exec"
	"strings"
	"testing"

	"github.com/tandem-gpu/tandem/internal/version"
)

// --version tells Tandem's version, and needs no API server.
func TestVersion(t *testing.T) {
	for _, flag := range []string{"--version", "--version=raw"} {
		cmd := exec.CommandContext(t.Context(), os.Args[0], flag)
		cmd.Env = append(os.Environ(), asScheduler+"=1")
		output, err := cmd.Output() // not stderr, where a build with the race detector says that it is one
		want := "tandem-scheduler " + version.Get().String()
		if err != nil || strings.TrimSpace(string(output)) != want {
			t.Errorf("%s: %v, %q, want %q", flag, err, output, want)
		}
	}
}
