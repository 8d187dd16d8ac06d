package traces

import (
	"bytes"
	"compress/gzip"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/iotest"

	"github.com/google/go-cmp/cmp"

	"github.com/tandem-gpu/tandem/internal/simulator/csvtable"
	"github.com/tandem-gpu/tandem/test/must"
)

const twoPods = "name,cpu_milli,memory_mib,num_gpu,gpu_milli\np,6000,12288,1,460\nq,12000,16384,2,1000\n"

func zip(t testing.TB, text string) []byte {
	t.Helper()
	var b bytes.Buffer
	w := gzip.NewWriter(&b)
	if _, err := io.WriteString(w, text); err != nil {
		t.Fatal(err)
	}
	must.OK(t, w.Close())
	return b.Bytes()
}

func write(t testing.TB, name string, data []byte) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), name)
	must.OK(t, os.WriteFile(path, data, 0o600))
	return path
}

// TestLoadForms reads one trace in all the forms that files come in.
func TestLoadForms(t *testing.T) {
	want, err := Read(strings.NewReader(twoPods), "pods")
	must.OK(t, err)
	crlf := strings.ReplaceAll(twoPods, "\n", "\r\n")
	for name, data := range map[string][]byte{
		"plain":                 []byte(twoPods),
		"gzip":                  zip(t, twoPods),
		"two gzip streams":      append(zip(t, twoPods[:60]), zip(t, twoPods[60:])...),
		"lines end with CR LF":  []byte(crlf),
		"byte order mark":       []byte(csvtable.ByteOrderMark + twoPods),
		"both, in gzip":         zip(t, csvtable.ByteOrderMark+crlf),
		"no end of line at end": []byte(strings.TrimSuffix(twoPods, "\n")),
		"quoted":                []byte(strings.ReplaceAll(twoPods, "460", `"460"`)),
		"empty lines":           []byte(twoPods + "\n\n"),
	} {
		t.Run(name, func(t *testing.T) {
			got, err := Load(write(t, "pods", data))
			must.OK(t, err)
			got.File = want.File
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("trace (-want +got):\n%s", diff)
			}
		})
	}
}

// TestLoadErrors reads files that are broken as such. DIR stands for the directory.
func TestLoadErrors(t *testing.T) {
	whole := zip(t, twoPods)
	sum := bytes.Clone(whole)
	sum[len(sum)-5] ^= 1
	long := twoPods + "p2," + strings.Repeat("9", 70_000) + ",12288,1,460\n"
	bomb := "job_type,scale_factor,total_steps,arrival_s,comment\n" +
		strings.Repeat("bert,1,1,0,"+strings.Repeat(" ", 60_000)+"\n", csvtable.MaxBytes/60_000+1)
	models := ""
	for i := range 65 {
		models += fmt.Sprintf("|m%d", i)
	}
	for name, tc := range map[string]struct {
		data []byte
		want string
	}{
		"empty":           {nil, "read DIR/pods: found an empty file, want a header and at least one row"},
		"only empty gzip": {zip(t, ""), "read DIR/pods: found an empty file, want a header and at least one row"},
		"only a mark":     {[]byte(csvtable.ByteOrderMark), "read DIR/pods: found an empty file, want a header and at least one row"},
		"torn gzip":       {whole[:len(whole)-12], "read DIR/pods: found broken gzip (unexpected EOF), want a whole gzip file"},
		"torn at start":   {whole[:2], "read DIR/pods: found broken gzip (unexpected EOF), want a whole gzip file"},
		"no gzip":         {append([]byte{0x1f, 0x8b}, "name,cpu_milli"...), "read DIR/pods: found broken gzip (gzip: invalid header), want a whole gzip file"},
		"gzip checksum":   {sum, "read DIR/pods: found broken gzip (gzip: invalid checksum), want a whole gzip file"},
		"more behind":     {append(bytes.Clone(whole), "more of it, not compressed"...), "read DIR/pods: found broken gzip (gzip: invalid header), want a whole gzip file"},
		"gzip in gzip": {zip(t, string(whole)), "read DIR/pods line 1: found the columns " +
			`\x1f\x8b\b\x00\x00\x00\x00\x00\x00\xff`},
		"bomb":      {zip(t, bomb), "read DIR/pods: found more than 67108864 bytes, want at most so many after decompression"},
		"long line": {[]byte(long), "read DIR/pods line 4: found a line of more than 65536 bytes, want a shorter one"},
		"UTF-16":    {[]byte("\xff\xfen\x00a\x00"), `read DIR/pods line 1: found the columns \xff\xfen\x00a\x00, want those of a known trace`},
		"old Mac":   {[]byte(strings.ReplaceAll(twoPods, "\n", "\r")), "read DIR/pods line 1: found the columns name, cpu_milli"},
		"NUL":       {[]byte(strings.ReplaceAll(twoPods, "6000", "6\x00")), `read DIR/pods line 2 column cpu_milli: found "6\x00", want a whole number from 0 to 10000000`},
		"name":      {[]byte(strings.ReplaceAll(twoPods, "q,", "\xff,")), `read DIR/pods line 3 column name: found "\xff", want 1 to 253 bytes of printable text without spaces around it`},
		"models": {[]byte("gpu_spec," + strings.Replace(twoPods, "\np,", "\n"+models[1:]+",p,", 1)), "read DIR/pods line 2 column gpu_spec: found " +
			`"` + csvtable.Clip(models[1:]) + `", want at most 64 GPU models`},
		"long name": {[]byte(strings.ReplaceAll(twoPods, "q,", strings.Repeat("ä", 127)+",")), `read DIR/pods line 3 column name: found "` +
			strings.Repeat("ä", 120) + `…", want 1 to 253 bytes of printable text without spaces around it`},
	} {
		t.Run(name, func(t *testing.T) {
			path := write(t, "pods", tc.data)
			_, err := Load(path)
			var own *csvtable.Error
			if !errors.As(err, &own) {
				t.Fatalf("error %v, want a *csvtable.Error", err)
			}
			got := strings.ReplaceAll(err.Error(), filepath.Dir(path), "DIR")
			if !strings.HasPrefix(got, tc.want) {
				t.Errorf("error\n%q, want\n%q", got, tc.want)
			}
		})
	}
}

func TestOpenErrors(t *testing.T) {
	dir := t.TempDir()
	if _, err := Load(filepath.Join(dir, "none.csv")); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("a file that does not exist: error %v, want %v", err, os.ErrNotExist)
	}
	if _, err := Load(dir); err == nil || !strings.Contains(err.Error(), "is a directory") {
		t.Errorf("a directory: error %v", err)
	}
}

// TestReadError reads from what breaks after the first row.
func TestReadError(t *testing.T) {
	broken := io.MultiReader(strings.NewReader(twoPods+"r,1"), iotest.ErrReader(errors.New("disk on fire")))
	_, err := OpenbPods(broken, "pods.csv")
	const want = "read pods.csv: found disk on fire, want a file that can be read to its end"
	if err == nil || err.Error() != want {
		t.Errorf("error %v, want %s", err, want)
	}
}
