package traces

import (
	"strings"
	"testing"

	"github.com/cockroachdb/datadriven"

	"github.com/tandem-gpu/tandem/internal/simulator/csvtable"
)

// TestScripts reads the traces that testdata/scripts shows. The command "read" has the trace as its input; as=FORMAT reads
// it with that format's reader, without it the format is detected. The output is what was read, or the error.
func TestScripts(t *testing.T) {
	datadriven.Walk(t, "testdata/scripts", func(t *testing.T, path string) {
		datadriven.RunTest(t, path, func(t *testing.T, d *datadriven.TestData) string {
			if d.Cmd != "read" {
				d.Fatalf(t, "unknown command %s", d.Cmd)
			}
			format := ""
			if d.HasArg("as") {
				d.ScanArgs(t, "as", &format)
			}
			var tr *Trace
			var err error
			if format == "" {
				tr, err = Read(strings.NewReader(d.Input), "t.csv")
			} else {
				tr, err = readAs(strings.NewReader(d.Input), "t.csv", csvtable.Format(format))
			}
			if err != nil {
				return err.Error()
			}
			return describe(tr)
		})
	})
}
