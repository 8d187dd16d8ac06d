package archive

import (
	"bytes"
	"reflect"
	"testing"
	"time"
)

var at = time.Date(2026, 11, 27, 12, 0, 0, 0, time.UTC)

func files() Files {
	return Files{"b/program": {[]byte("binary"), true}, "LICENSE": {[]byte("text"), false}, "a": {nil, false}}
}

// What was packed is read again, with the right to execute it.
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

// What is no archive is refused.
func TestBrokenArchives(t *testing.T) {
	for name, read := range map[string]func([]byte) (Files, error){"tar": ReadTar, "tar.gz": ReadTarGz, "zip": ReadZip} {
		if _, err := read(bytes.Repeat([]byte("no archive "), 100)); err == nil {
			t.Errorf("%s: no error", name)
		}
	}
}
