package record

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/tandem-gpu/tandem/test/must"
)

func TestReportGoesOnWhereItWas(t *testing.T) {
	path := filepath.Join(t.TempDir(), "out", "report.json")
	r, err := Open(path)
	must.OK(t, err)
	for name, f := range map[string]Figure{"good": {Values: []float64{3, 1, 2}}, "failed": {Values: []float64{1}, Error: "no"}} {
		must.OK(t, r.Set(name, f))
	}
	if r, err = Open(path); err != nil {
		t.Fatal(err)
	}
	if !r.Has("good") || r.Has("failed") || r.Has("never") {
		t.Errorf("has good %v, failed %v, never %v; want the first alone", r.Has("good"), r.Has("failed"), r.Has("never"))
	}
	if got := r.Figures["good"].Median(); got != 2 {
		t.Errorf("median %v, want 2", got)
	}
	if got := (Figure{Values: []float64{4, 1, 2, 3}}).Median(); got != 2.5 {
		t.Errorf("median of four %v, want 2.5", got)
	}
}

func TestBrokenReportIsNotOverwritten(t *testing.T) {
	path := filepath.Join(t.TempDir(), "report.json")
	must.OK(t, os.WriteFile(path, []byte("{"), 0o600))
	if _, err := Open(path); err == nil {
		t.Error("a broken report was opened")
	}
}
