package main

import (
	"bytes"
	"encoding/xml"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/tandem-gpu/tandem/test/must"
)

// played is a scenario of the simulator's tests.
const played = "../cmd/simulator/testdata/scenario.yaml"

// TestSameBytes: the same seeds give the same bytes and the same figures, however many runs go at once.
func TestSameBytes(t *testing.T) {
	for name, args := range map[string][]string{
		"fragmentation": fragmentation("--no-timing", "-o", "json"),
		"draw":          {"draw", played},
	} {
		t.Run(name, func(t *testing.T) {
			defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(0))
			var got []string
			for _, processors := range []int{1, 8, 8} {
				runtime.GOMAXPROCS(processors)
				dir := filepath.Join(t.TempDir(), fmt.Sprint(len(got)))
				code, out, errs := evaluate(append(args[:len(args):len(args)], "--plot", dir)...)
				if code != 0 {
					t.Fatalf("ends with %d:\n%s", code, errs)
				}
				got = append(got, out+pictures(t, dir))
			}
			if got[0] != got[1] || got[1] != got[2] {
				t.Errorf("one processor, eight, eight again differ:\n%s", cmp.Diff(got[0], got[1])+cmp.Diff(got[1], got[2]))
			}
		})
	}
}

// pictures returns the files of a directory, one after the other.
func pictures(t *testing.T, dir string) string {
	t.Helper()
	paths, err := filepath.Glob(filepath.Join(dir, "*"))
	must.OK(t, err)
	var all strings.Builder
	for _, p := range paths {
		b, err := os.ReadFile(p)
		must.OK(t, err)
		all.WriteString(filepath.Base(p) + "\n" + string(b))
	}
	return all.String()
}

func TestPlots(t *testing.T) {
	for name, tc := range map[string]struct {
		args  []string
		files []string
	}{
		"fragmentation": {fragmentation("--seeds", "1"), []string{"allocation", "fragmentation"}},
		"draw":          {[]string{"draw", played}, []string{"utilisation", "fragmentation", "wait_cdf", "jct_cdf"}},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			code, _, errs := evaluate(append(tc.args, "--plot", dir)...)
			if code != 0 {
				t.Fatalf("ends with %d:\n%s", code, errs)
			}
			told := ""
			for _, f := range tc.files {
				path := filepath.Join(dir, f)
				told += "wrote " + path + ".svg\nwrote " + path + ".png\n"
				if err := wellFormed(path+".svg", "tandem", "packed"); err != nil {
					t.Error(err)
				}
			}
			if diff := cmp.Diff(told, errs); diff != "" {
				t.Errorf("stderr (-want +got):\n%s", diff)
			}
		})
	}
}

// wellFormed returns an error unless the file is XML in which the texts stand.
func wellFormed(path string, texts ...string) error {
	b, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	decoder := xml.NewDecoder(bytes.NewReader(b))
	for {
		if _, err := decoder.Token(); errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			return fmt.Errorf("%s: %w", path, err)
		}
	}
	for _, text := range texts {
		if !bytes.Contains(b, []byte(">"+text+"<")) {
			return fmt.Errorf("%s: no series %s", path, text)
		}
	}
	return nil
}

// TestDrawExamples: all examples can be drawn, and nothing is printed beside the paths of the figures.
func TestDrawExamples(t *testing.T) {
	paths, err := filepath.Glob("../examples/*.yaml")
	if err != nil || len(paths) < 3 {
		t.Fatalf("%d examples, want three or more: %v", len(paths), err)
	}
	for _, path := range paths {
		t.Run(filepath.Base(path), func(t *testing.T) {
			code, out, errs := evaluate("draw", path, "--plot", t.TempDir())
			if code != 0 || out != "" || !strings.Contains(errs, "utilisation.svg") {
				t.Errorf("ends with %d:\n%s%s", code, out, errs)
			}
		})
	}
}
