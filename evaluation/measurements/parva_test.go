package measurements

import (
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/tandem-gpu/tandem/evaluation/mig"
	"github.com/tandem-gpu/tandem/internal/simulator/csvtable"
	"github.com/tandem-gpu/tandem/test/must"
	"github.com/tandem-gpu/tandem/test/published"
)

// checkServed holds what serves models to what its types promise.
func checkServed(t testing.TB, tr *File) {
	t.Helper()
	for i := range tr.Servings {
		s := &tr.Servings[i]
		if s.Model == "" || s.Slices.Memory() == 0 || s.Batch < 1 || s.Processes < 1 || s.Line < 2 || (s.Rate == 0) != (s.Latency == 0) ||
			!(s.Rate >= 0) || math.IsInf(s.Rate, 0) || s.Latency < 0 {
			t.Fatalf("served variant %+v", s)
		}
	}
	for i := range tr.Deployed {
		d := &tr.Deployed[i]
		if d.Model == "" || d.Slices.Memory() == 0 || d.Batch < 1 || d.Processes < 1 || d.Line < 2 || d.Node < 0 || d.GPU < 0 || d.Start < 0 || d.Start > 7 {
			t.Fatalf("instance %+v", d)
		}
	}
}

// loadSLOs reads two files with these contents, DIR/latency.csv and DIR/rate.csv in errors.
func loadSLOs(t *testing.T, latencies, rates string, models ...string) ([]SLOSet, error) {
	t.Helper()
	l, r := write(t, "latency.csv", []byte(latencies)), write(t, "rate.csv", []byte(rates))
	sets, err := LoadSLOs(l, r, models)
	if err == nil {
		return sets, nil
	}
	var own *csvtable.Error
	if !errors.As(err, &own) {
		t.Errorf("error %v, want a *csvtable.Error", err)
	}
	text := strings.ReplaceAll(err.Error(), filepath.Dir(l), "DIR")
	return nil, errors.New(strings.ReplaceAll(text, filepath.Dir(r), "DIR"))
}

// TestLoadSLOs: row n is set n, columns are the models by name, wherever the profile has them.
func TestLoadSLOs(t *testing.T) {
	want := []SLOSet{
		{Number: 1, Line: 1, SLOs: []SLO{{"bert", 19, 6434 * time.Millisecond}, {"vgg", .5, 418500 * time.Microsecond}}},
		{Number: 2, Line: 2, SLOs: []SLO{{"bert", 19, 69500 * time.Microsecond}, {"resnet", 7, 300 * time.Microsecond}, {"vgg", 1, 1}}},
	}
	latencies, rates := "6434,N/A,418.5\n69.5,.3,1e-6\n", "19,N/A,.5\n19,7,1"
	named := slices.Clone(want)
	for i := range named {
		named[i].Line++
	}
	for name, tc := range map[string]struct {
		latencies, rates string
		want             []SLOSet
	}{
		"without names": {latencies, rates, want},
		"as Windows writes it": {
			csvtable.ByteOrderMark + strings.ReplaceAll(latencies, "\n", "\r\n"), csvtable.ByteOrderMark + strings.ReplaceAll(rates, "\n", "\r\n"), want,
		},
		"with names":            {"vgg,bert,resnet\n418.5,6434,N/A\n1e-6,69.5,.3\n", "bert,resnet,vgg\n" + rates, named},
		"with names in one":     {"vgg,bert,resnet\n418.5,6434,N/A\n1e-6,69.5,.3\n", rates, want},
		"equal numbers":         {"5,5,5\n", "5,5,5\n", []SLOSet{{Number: 1, Line: 1, SLOs: []SLO{{"bert", 5, 5e6}, {"resnet", 5, 5e6}, {"vgg", 5, 5e6}}}}},
		"with an unnamed first": {"N/A,5,N/A\n", "N/A,5,N/A\n", []SLOSet{{Number: 1, Line: 1, SLOs: []SLO{{"resnet", 5, 5e6}}}}},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := loadSLOs(t, tc.latencies, tc.rates, "vgg", "bert", "resnet")
			must.OK(t, err)
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("sets (-want +got):\n%s", diff)
			}
		})
	}
}

func TestLoadSLOErrors(t *testing.T) {
	const number = "want a number from 0 to 1000000"
	for name, tc := range map[string]struct{ latencies, rates, want string }{
		"empty":           {"", "1,1\n", "read DIR/latency.csv: found an empty file, want a row of numbers for each set"},
		"empty lines":     {"1,1\n", "\n \n", "read DIR/rate.csv: found an empty file, want a row of numbers for each set"},
		"names only":      {"a,b\n", "1,1\n", "read DIR/latency.csv line 1: found a header without rows, want at least one row"},
		"other names":     {"a,c\n1,1\n", "1,1\n", "read DIR/latency.csv line 1: found the names a, c, want numbers, or the models of the profile, each once: a, b"},
		"a name twice":    {"a,a\n1,1\n", "1,1\n", "read DIR/latency.csv line 1 column a: found the name at columns 1 and 2, want each name once"},
		"a column less":   {"1,1\n1\n", "1,1\n", "read DIR/latency.csv line 2: found 1 field, want 2, one for each of a, b"},
		"a column more":   {"1,1\n", "1,1,1\n", "read DIR/rate.csv line 1: found 3 fields, want 2, one for each of a, b"},
		"more than names": {"b,a\n1,1,1\n", "1,1\n", "read DIR/latency.csv line 2: found 3 fields, want 2, one for each of b, a"},
		"no number":       {"1,1\n1,x\n", "1,1\n", `read DIR/latency.csv line 2 column b: found "x", ` + number + " (milliseconds)"},
		"NaN":             {"1,1\n", "1,NaN\n", `read DIR/rate.csv line 1 column b: found "NaN", ` + number + " (requests per second)"},
		"negative":        {"1,1\n", "-1,1\n", `read DIR/rate.csv line 1 column a: found "-1", ` + number},
		"huge":            {"1,1e7\n", "1,1\n", `read DIR/latency.csv line 1 column b: found "1e7", ` + number},
		"zero":            {"1,0\n", "1,1\n", `read DIR/latency.csv line 1 column b: found "0", want a number from 0.000001 to 1000000 (milliseconds), or N/A`},
		"nothing":         {"1,1\n,1\n", "1,1\n", `read DIR/latency.csv line 2 column a: found "", ` + number},
		"nobody":          {"1,1\nN/A,N/A\n", "1,1\n", "read DIR/latency.csv line 2: found N/A for all models, want a number for one at least"},
		"nobody at first": {"N/A,N/A\n1,1\n", "1,1\n", "read DIR/latency.csv line 1: found N/A for all models, want a number for one at least"},
		"a row less":      {"1,1\n1,1\n", "1,1\n", "read DIR/rate.csv: found 1 row, want 2 as DIR/latency.csv has"},
		"not served here": {"1,N/A\n", "1,1\n", "read DIR/rate.csv line 1 column b: found 1, want what goes with N/A in DIR/latency.csv line 1: a rate with a latency, N/A with N/A"},
		"not served":      {"1,1\n", "N/A,1\n", "read DIR/rate.csv line 1 column a: found N/A, want what goes with 1 in DIR/latency.csv line 1: a rate with a latency, N/A with N/A"},
		"a stray quote":   {"1,1\n\"1,1\n", "1,1\n", "read DIR/latency.csv line 2: found a stray or missing quote"},
		"a long line":     {strings.Repeat("1", 1<<16+1), "1,1\n", "read DIR/latency.csv line 1: found a line of more than 65536 bytes"},
		"torn gzip":       {"\x1f\x8b\b", "1,1\n", "read DIR/latency.csv: found broken gzip (unexpected EOF), want a whole gzip file"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := loadSLOs(t, tc.latencies, tc.rates, "b", "a")
			if err == nil || !strings.HasPrefix(err.Error(), tc.want) {
				t.Errorf("error\n%v, want\n%s", err, tc.want)
			}
		})
	}
	if _, err := LoadSLOs("none.csv", "none.csv", nil); err == nil || !strings.Contains(err.Error(), "none.csv") {
		t.Errorf("a missing file: error %v", err)
	}
}

// FuzzSLOs gives the rates of two models.
func FuzzSLOs(f *testing.F) {
	for _, text := range []string{"1,2\n", "b,a\n1,2\n", "N/A,1\r\n3,4", "1\n", "\"1\",2\n", "a,b\n", csvtable.ByteOrderMark + "1,2\n", "1,2\n\n3,4\n"} {
		f.Add([]byte(text))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		rows, err := readGrid(strings.NewReader(string(data)), "f.csv", []string{"b", "a"}, "milliseconds")
		var own *csvtable.Error
		if err != nil && (!errors.As(err, &own) || own.File != "f.csv" || own.Value == "" || own.Legal == "") {
			t.Fatalf("error %#v", err)
		}
		if (err == nil) != (len(rows) > 0) {
			t.Fatalf("%d rows, error %v", len(rows), err)
		}
		for _, row := range rows {
			for model, v := range row.by {
				if (model != "a" && model != "b") || !(v > 0 && v <= 1e6) || row.line < 1 {
					t.Fatalf("row %+v", row)
				}
			}
		}
	})
}

// TestPublishedParva compares the files of ParvaGPU with each other: row n of the SLOs is the set of deployment n, since
// the deployment has its models and reaches its rates, but not those of the next row with the same models.
func TestPublishedParva(t *testing.T) {
	profile := load(t, "parvagpu", "a100_mig_mps_profile.csv")
	var models []string
	rates := map[string]float64{}
	ran := 0
	for _, s := range profile.Servings {
		models = append(models, s.Model)
		rates[fmt.Sprint(s.Model, s.Slices, s.Batch, s.Processes)] = s.Rate
		if s.Rate > 0 {
			ran++
		}
	}
	slices.Sort(models)
	if models = slices.Compact(models); len(models) != 11 || len(profile.Servings) != 2475 || ran != 2475-728 {
		t.Errorf("%d models, %d rows, of which %d ran", len(models), len(profile.Servings), ran)
	}
	dir := filepath.Join(published.Data(t), "parvagpu")
	sets, err := LoadSLOs(filepath.Join(dir, "SLO_latency.csv"), filepath.Join(dir, "SLO_req_rate.csv"), models)
	if err != nil || len(sets) != 6 {
		t.Fatalf("%d sets, want 6, error %v", len(sets), err)
	}
	for number, gpus := range map[int]int{1: 2, 2: 3, 3: 5, 5: 13} {
		reached, on := map[string]float64{}, map[[2]int]mig.Slices{}
		for _, d := range load(t, "parvagpu", fmt.Sprintf("SLO%d_ParvaGPU_deploy.csv", number)).Deployed {
			reached[d.Model] += rates[fmt.Sprint(d.Model, d.Slices, d.Batch, d.Processes)]
			on[[2]int{d.Node, d.GPU}] += d.Slices
		}
		serves := func(set SLOSet) bool {
			return len(set.SLOs) == len(reached) && !slices.ContainsFunc(set.SLOs, func(s SLO) bool { return reached[s.Model] < s.Rate })
		}
		if !serves(sets[number-1]) || (number != 5 && serves(sets[number])) || len(on) != gpus {
			t.Errorf("deployment %d: reaches %v on %d GPUs, want the rates of row %d only, on %d", number, reached, len(on), number, gpus)
		}
	}
}

// write writes a file of a test and returns its path.
func write(t testing.TB, name string, data []byte) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), name)
	must.OK(t, os.WriteFile(path, data, 0o600))
	return path
}
