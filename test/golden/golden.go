// Package golden compares what a test prints with a file that is kept under testdata. With the flag -update the file is written first.
package golden

import (
	"bytes"
	"flag"
	"io"
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/tandem-gpu/tandem/test/must"
)

var update = flag.Bool("update", false, "write the golden files")

// Text compares a text with the file of a name.
func Text(t *testing.T, name, got string) {
	t.Helper()
	path := filepath.Join("testdata", name)
	if *update {
		must.OK(t, os.WriteFile(path, []byte(got), 0o644))
	}
	want, err := os.ReadFile(path)
	must.OK(t, err)
	if diff := cmp.Diff(string(want), got); diff != "" {
		t.Errorf("%s (-want +got):\n%s", name, diff)
	}
}

// Written compares what a function writes with the file of a name.
func Written(t *testing.T, name string, write func(io.Writer) error) {
	t.Helper()
	var b bytes.Buffer
	must.OK(t, write(&b))
	Text(t, name, b.String())
}
