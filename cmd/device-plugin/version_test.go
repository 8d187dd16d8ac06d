package main

import (
	"bytes"
	"strings"
	"testing"

	"github.com/tandem-gpu/tandem/internal/version"
)

func TestVersion(t *testing.T) {
	c := command()
	var out bytes.Buffer
	c.SetOut(&out)
	c.SetArgs([]string{"--version"})
	if err := c.Execute(); err != nil {
		t.Fatal(err)
	}
	if want := version.Get().String(); !strings.Contains(out.String(), want) {
		t.Errorf("--version prints %q, want %q", out.String(), want)
	}
}
