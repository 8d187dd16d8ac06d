package archive

import (
	"archive/tar"
	"archive/zip"
	"bytes"
	"reflect"
	"testing"
	"time"
)

var at = time.Date(2026, 11, 27, 12, 0, 0, 0, time.UTC)

func files() Files {
	return Files{"b/program": {[]byte("binary"), true}, "LICENSE": {[]byte("text"), false}, "a": {nil, false}}
}

// A file that was packed is read again, with the right to execute it.
func TestArchivesHoldTheFiles(t *testing.T) {
	for name, c := range map[string]struct {
		pack func(Files, time.Time) ([]byte, error)
		read func([]byte) (Files, error)
	}{"tar": {Files.Tar, ReadTar}, "tar.gz": {Files.TarGz, ReadTarGz}, "zip": {Files.Zip, ReadZip}} {
		raw, err := c.pack(files(), at)
		if err != nil {
			t.Fatal(err)
		}
		got, err := c.read(raw)
		if err != nil {
			t.Fatal(err)
		}
		want := files()
		want["a"] = File{[]byte{}, false}
		if !reflect.DeepEqual(got, want) {
			t.Errorf("%s: got %v, want %v", name, got, want)
		}
		// In Go, maps are walked in another order each time.
		for range 20 {
			again, err := c.pack(files(), at.In(time.FixedZone("elsewhere", 7200)))
			if err != nil {
				t.Fatal(err)
			}
			if !bytes.Equal(raw, again) {
				t.Fatalf("%s: two archives of the same files differ", name)
			}
		}
	}
}

// Files have the time of the commit, not that of the build.
func TestTimes(t *testing.T) {
	raw, err := files().Tar(at)
	if err != nil {
		t.Fatal(err)
	}
	header, err := tar.NewReader(bytes.NewReader(raw)).Next()
	if err != nil || !header.ModTime.Equal(at) {
		t.Errorf("the time is %v, error %v", header.ModTime, err)
	}
	if raw, err = files().Zip(at); err != nil {
		t.Fatal(err)
	}
	r, err := zip.NewReader(bytes.NewReader(raw), int64(len(raw)))
	if err != nil || !r.File[0].Modified.Equal(at) {
		t.Errorf("the time is %v, error %v", r.File[0].Modified, err)
	}
}

// A file that is no archive is refused.
func TestBrokenArchives(t *testing.T) {
	for name, read := range map[string]func([]byte) (Files, error){"tar": ReadTar, "tar.gz": ReadTarGz, "zip": ReadZip} {
		if _, err := read(bytes.Repeat([]byte("no archive "), 100)); err == nil {
			t.Errorf("%s: no error", name)
		}
	}
}
