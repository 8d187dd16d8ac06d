package dist

import (
	"archive/tar"
	"archive/zip"
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"
	"time"

	spdxjson "github.com/spdx/tools-golang/json"

	"github.com/tandem-gpu/tandem/tools/release/archive"
)

// SHA256SUMS has a line for every other file, in the form of sha256sum.
func TestChecksums(t *testing.T) {
	r, p := example(t)
	files := packed(t, r, p)
	listed := map[string]string{}
	for line := range strings.Lines(string(files[sumsFile])) {
		sum, name, _ := strings.Cut(strings.TrimSuffix(line, "\n"), "  ")
		listed[name] = sum
	}
	if len(listed) != len(files)-1 {
		t.Errorf("%d files are listed, want all of %d but the list itself", len(listed), len(files))
	}
	for name, content := range files {
		if want := fmt.Sprintf("%x", sha256.Sum256(content)); name != sumsFile && listed[name] != want {
			t.Errorf("the sum of %s is %q, want %s", name, listed[name], want)
		}
	}
}

// Everything in the archives has the time of the commit, and so has the bill.
func TestTimes(t *testing.T) {
	r, p := example(t)
	files := packed(t, r, p)
	archives := 0
	for name, content := range files {
		times := timesIn(t, name, content)
		if len(times) > 0 {
			archives++
		}
		for path, at := range times {
			if !at.Equal(r.Time) {
				t.Errorf("%s in %s has the time %v, want %v", path, name, at, r.Time)
			}
		}
	}
	if want := len(images) + 3 + 2; archives != want { // images; clients of three platforms; the chart and the licences
		t.Errorf("%d archives, want %d", archives, want)
	}
	document, err := spdxjson.Read(bytes.NewReader(files[billFile(version)]))
	if err != nil || document.CreationInfo.Created != r.Time.Format(time.RFC3339) {
		t.Errorf("the bill is of %+v, error %v", document.CreationInfo, err)
	}
}

// timesIn returns the times of the files in an archive, by path; none for what is no archive.
func timesIn(t *testing.T, name string, content []byte) map[string]time.Time {
	t.Helper()
	times := map[string]time.Time{}
	if strings.HasSuffix(name, ".zip") {
		r, err := zip.NewReader(bytes.NewReader(content), int64(len(content)))
		if err != nil {
			t.Fatal(err)
		}
		for _, f := range r.File {
			times[f.Name] = f.Modified
		}
		return times
	}
	var plain io.Reader = bytes.NewReader(content)
	switch {
	case strings.HasSuffix(name, ".tgz"), strings.HasSuffix(name, ".tar.gz"):
		z, err := gzip.NewReader(plain)
		if err != nil {
			t.Fatal(err)
		}
		if !z.ModTime.IsZero() {
			t.Errorf("%s has the time %v in the header of gzip", name, z.ModTime)
		}
		plain = z
	case !strings.HasSuffix(name, ".tar"):
		return nil
	}
	for r := tar.NewReader(plain); ; {
		header, err := r.Next()
		if errors.Is(err, io.EOF) {
			return times
		}
		if err != nil {
			t.Fatal(err)
		}
		times[header.Name] = header.ModTime
	}
}

// The licence texts are in a folder for each module: the release's own, whose version is that of the file, and others by version.
func TestNotices(t *testing.T) {
	r, p := example(t)
	files, err := archive.ReadTarGz(packed(t, r, p)[noticesFile(version)])
	if err != nil {
		t.Fatal(err)
	}
	for path, want := range map[string]string{"example.com/m@v1.0.0/LICENSE": "MIT License\n", "example.com/own/LICENSE": "Apache License\n"} {
		if got := string(files[path].Content); got != want {
			t.Errorf("%s is %q, want %q", path, got, want)
		}
	}
	if len(files) != 2 {
		t.Errorf("%d texts, want 2", len(files))
	}
}
