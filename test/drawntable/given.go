package drawntable

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/cockroachdb/datadriven"
	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/tandem-gpu/tandem/internal/simulator/csvtable"
	"github.com/tandem-gpu/tandem/test/must"
)

// apartFromLines leaves the numbers of lines out of a comparison.
var apartFromLines = cmp.FilterPath(func(p cmp.Path) bool { return p.Last().String() == ".Line" }, cmp.Ignore())

// Scripts reads the files that testdata/scripts shows. The command "read" has the file as its input; as=FORMAT reads it with that
// format's reader, without it the format is detected. The output is what was read, or the error.
func (r *Reader) Scripts(t *testing.T) {
	datadriven.Walk(t, "testdata/scripts", func(t *testing.T, path string) {
		datadriven.RunTest(t, path, func(t *testing.T, d *datadriven.TestData) string {
			if d.Cmd != "read" {
				d.Fatalf(t, "unknown command %s", d.Cmd)
			}
			format := ""
			if d.HasArg("as") {
				d.ScanArgs(t, "as", &format)
			}
			var got any
			var err error
			if format == "" {
				got, err = r.Read(strings.NewReader(d.Input), "t.csv")
			} else {
				got, err = r.ReadAs(strings.NewReader(d.Input), "t.csv", csvtable.Format(format))
			}
			if err != nil {
				return err.Error()
			}
			return r.Describe(got)
		})
	})
}

// Fuzz starts from the example of the format under testdata, from that with one thing broken, and from the corpus under
// testdata/fuzz. The reader reads a sound table, whatever the order of its columns, or returns a *csvtable.Error that says what
// is wrong.
func (r *Reader) Fuzz(f *testing.F, format csvtable.Format) {
	data, err := os.ReadFile(filepath.Join("testdata", string(format)+".csv"))
	must.OK(f, err)
	f.Add(data)
	f.Add(bytes.ReplaceAll(data, []byte("\n"), []byte("\r\n")))
	f.Add(append([]byte(csvtable.ByteOrderMark), data...))
	f.Add(data[:bytes.IndexByte(data, '\n')])
	for _, value := range []string{"", "-1", "NaN", "1e400", "9223372036854775808", `"`, "a\nb"} {
		f.Add(bytes.Replace(data, []byte(",1,"), []byte(","+value+","), 1))
	}
	f.Fuzz(func(t *testing.T, data []byte) { r.checkRead(t, data, format) })
}

func (r *Reader) checkRead(t *testing.T, data []byte, format csvtable.Format) {
	got, err := r.ReadAs(bytes.NewReader(data), "f.csv", format)
	if err != nil {
		var own *csvtable.Error
		if !errors.As(err, &own) || own.File != "f.csv" || own.Value == "" || own.Legal == "" || own.Line < 0 {
			t.Fatalf("error %#v", err)
		}
		return
	}
	r.Check(t, got)
	again, err := r.ReadAs(bytes.NewReader(Reversed(t, data)), "f.csv", format)
	if err != nil {
		t.Fatalf("with its columns reversed: %v", err)
	}
	if diff := cmp.Diff(got, again, cmpopts.EquateNaNs(), apartFromLines); diff != "" {
		t.Fatalf("with its columns reversed (-want +got):\n%s", diff)
	}
}
