package measurements

import (
	"bytes"
	"errors"
	"math"
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/tandem-gpu/tandem/internal/simulator/csvtable"
	"github.com/tandem-gpu/tandem/internal/simulator/traces"
	"github.com/tandem-gpu/tandem/pkg/vgpu"
	"github.com/tandem-gpu/tandem/test/drawntable"
	"github.com/tandem-gpu/tandem/test/must"
)

// checkFile holds a file that was read to what its types promise.
func checkFile(t testing.TB, tr *File) {
	t.Helper()
	for _, r := range tr.Rates {
		if !(r.Together >= 0 && r.Together <= maxRate && r.Spread >= 0 && r.Spread <= maxRate) || r.Workers < 1 || r.Model == "" || r.App == "" {
			t.Fatalf("rate %+v", r)
		}
	}
	for _, s := range tr.Steps {
		if s.Workers < s.Nodes || s.Nodes < 1 || (tr.Format == PolluxPlacementTimes) != (s.Nodes == len(s.Placement)) || s.Batch < 1 || s.Time <= 0 || s.Sync < 0 {
			t.Fatalf("step %+v", s)
		}
	}
	for i := range tr.Epochs {
		e := &tr.Epochs[i]
		if !(e.Progress > 0 && e.Progress <= traces.MaxSteps && e.Square >= 0 && e.Variance >= 0) || i > 0 && e.Progress <= tr.Epochs[i-1].Progress {
			t.Fatalf("epoch %+v", e)
		}
	}
	checkMeasured(t, tr)
	checkServed(t, tr)
	if len(tr.Rates)+len(tr.Steps)+len(tr.Epochs)+len(tr.CoRuns)+len(tr.Solos)+len(tr.Networks)+len(tr.Servings)+len(tr.Deployed) == 0 {
		t.Fatal("a file without rows")
	}
}

// checkMeasured holds what was measured of workloads to what its types promise.
func checkMeasured(t testing.TB, tr *File) {
	t.Helper()
	for i := range tr.CoRuns {
		c := &tr.CoRuns[i]
		for _, r := range []*CoRunner{&c.A, &c.B} {
			if r.Workload == "" || r.Family == "" || r.Share < 10 || r.Share > vgpu.WholeGPU || legalSpeed(r.Speed) != c.Fits || (r.Speed == 0) == c.Fits {
				t.Fatalf("co-run %+v", c)
			}
		}
		if c.GPU == "" || c.Memory < 0 || c.Line < 2 {
			t.Fatalf("co-run %+v", c)
		}
	}
	for i := range tr.Solos {
		s := &tr.Solos[i]
		for _, part := range []float64{s.SM, s.Bandwidth, s.L2} {
			if part < 0 || part > 1 || math.IsInf(part, 0) {
				t.Fatalf("solo profile %+v", s)
			}
		}
		if s.Workload == "" || s.Family == "" || s.Batch < 1 || s.Share < 10 || s.Share > vgpu.WholeGPU || s.Memory < 0 || s.Line < 2 ||
			s.Latency < 0 || !(s.Rate >= 0) || math.IsInf(s.Rate, 0) {
			t.Fatalf("solo profile %+v", s)
		}
	}
	for _, n := range tr.Networks {
		for _, part := range []float64{n.Busy, n.Graphics, n.SM, n.Occupancy, n.FP32} {
			if !(part >= 0 && part <= 1) {
				t.Fatalf("network %+v", n)
			}
		}
		if n.Depth < 1 || n.Parameters < 1 || n.Activations < 1 || n.Batch < 1 || n.Norms < 0 || n.Dropouts < 0 || n.Memory < 0 {
			t.Fatalf("network %+v", n)
		}
	}
}

// checkRead reads data as a format: it is sound, whatever the order of its columns, or a *csvtable.Error that says what
// is wrong.
func checkRead(t *testing.T, data []byte, format csvtable.Format) {
	tr, err := readAs(bytes.NewReader(data), "f.csv", format)
	if err != nil {
		var own *csvtable.Error
		if !errors.As(err, &own) || own.File != "f.csv" || own.Value == "" || own.Legal == "" || own.Line < 0 {
			t.Fatalf("error %#v", err)
		}
		return
	}
	checkFile(t, tr)
	again, err := readAs(bytes.NewReader(drawntable.Reversed(t, data)), "f.csv", format)
	if err != nil {
		t.Fatalf("with its columns reversed: %v", err)
	}
	for _, tr := range []*File{tr, again} {
		dropLines(tr)
	}
	if diff := cmp.Diff(tr, again, cmpopts.EquateNaNs()); diff != "" {
		t.Fatalf("with its columns reversed (-want +got):\n%s", diff)
	}
}

func dropLines(tr *File) {
	for i := range tr.Rates {
		tr.Rates[i].Line = 0
	}
	for i := range tr.Steps {
		tr.Steps[i].Line = 0
	}
	for i := range tr.Epochs {
		tr.Epochs[i].Line = 0
	}
	for i := range tr.CoRuns {
		tr.CoRuns[i].Line = 0
	}
	for i := range tr.Solos {
		tr.Solos[i].Line = 0
	}
	for i := range tr.Networks {
		tr.Networks[i].Line = 0
	}
	for i := range tr.Servings {
		tr.Servings[i].Line = 0
	}
	for i := range tr.Deployed {
		tr.Deployed[i].Line = 0
	}
}

// fuzz starts from the example of the format under testdata, from that with one thing broken, and from the corpus under
// testdata/fuzz.
func fuzz(f *testing.F, format csvtable.Format) {
	data, err := os.ReadFile(filepath.Join("testdata", string(format)+".csv"))
	must.OK(f, err)
	f.Add(data)
	f.Add(bytes.ReplaceAll(data, []byte("\n"), []byte("\r\n")))
	f.Add(append([]byte(csvtable.ByteOrderMark), data...))
	f.Add(data[:bytes.IndexByte(data, '\n')])
	for _, value := range []string{"", "-1", "NaN", "1e400", "9223372036854775808", `"`, "a\nb"} {
		f.Add(bytes.Replace(data, []byte(",1,"), []byte(","+value+","), 1))
	}
	f.Fuzz(func(t *testing.T, data []byte) { checkRead(t, data, format) })
}

func FuzzGavelScaling(f *testing.F)     { fuzz(f, GavelThroughputs) }
func FuzzGavelIsolated(f *testing.F)    { fuzz(f, GavelPairs) }
func FuzzPolluxPlacements(f *testing.F) { fuzz(f, PolluxPlacementTimes) }
func FuzzPolluxScaling(f *testing.F)    { fuzz(f, PolluxScalingTimes) }
func FuzzPolluxEpochs(f *testing.F)     { fuzz(f, PolluxValidation) }
func FuzzLucidPairs(f *testing.F)       { fuzz(f, LucidPairs) }
func FuzzLucidSingles(f *testing.F)     { fuzz(f, LucidSingles) }
func FuzzIgniterPairs(f *testing.F)     { fuzz(f, IgniterPairs) }
func FuzzIgniterCurves(f *testing.F)    { fuzz(f, IgniterCurves) }
func FuzzTandemPairs(f *testing.F)      { fuzz(f, TandemPairs) }
func FuzzTandemSingles(f *testing.F)    { fuzz(f, TandemSingles) }
func FuzzGPUMemNet(f *testing.F)        { fuzz(f, GPUMemNetFeatures) }
func FuzzGlet(f *testing.F)             { fuzz(f, GletUtilisation) }
func FuzzMISO(f *testing.F)             { fuzz(f, MISOSlices) }
func FuzzMuxServe(f *testing.F)         { fuzz(f, MuxServeLatencies) }
func FuzzParvaProfile(f *testing.F)     { fuzz(f, ParvaProfile) }
func FuzzParvaDeployment(f *testing.F)  { fuzz(f, ParvaDeployment) }

// FuzzRead reads bytes in any format, also those of traces.
func FuzzRead(f *testing.F) {
	for i := range schemas {
		data, err := os.ReadFile(filepath.Join("testdata", string(schemas[i].Format)+".csv"))
		if errors.Is(err, os.ErrNotExist) {
			data, err = os.ReadFile(filepath.Join("../../internal/simulator/traces/testdata", string(schemas[i].Format)+".csv"))
		}
		must.OK(f, err)
		f.Add(data)
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		tr, err := Read(bytes.NewReader(data), "f.csv")
		var own *csvtable.Error
		switch {
		case err == nil && len(tr.Hosts)+len(tr.Jobs) == 0:
			checkFile(t, tr)
		case err == nil:
		case !errors.As(err, &own) || own.File != "f.csv":
			t.Fatalf("error %#v", err)
		}
	})
}
