package measurements

import (
	"bytes"
	"errors"
	"math"
	"os"
	"path/filepath"
	"testing"

	"github.com/tandem-gpu/tandem/internal/simulator/csvtable"
	"github.com/tandem-gpu/tandem/internal/simulator/traces"
	"github.com/tandem-gpu/tandem/pkg/vgpu"
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

func FuzzGavelScaling(f *testing.F)     { drawn.Fuzz(f, GavelThroughputs) }
func FuzzGavelIsolated(f *testing.F)    { drawn.Fuzz(f, GavelPairs) }
func FuzzPolluxPlacements(f *testing.F) { drawn.Fuzz(f, PolluxPlacementTimes) }
func FuzzPolluxScaling(f *testing.F)    { drawn.Fuzz(f, PolluxScalingTimes) }
func FuzzPolluxEpochs(f *testing.F)     { drawn.Fuzz(f, PolluxValidation) }
func FuzzLucidPairs(f *testing.F)       { drawn.Fuzz(f, LucidPairs) }
func FuzzLucidSingles(f *testing.F)     { drawn.Fuzz(f, LucidSingles) }
func FuzzIgniterPairs(f *testing.F)     { drawn.Fuzz(f, IgniterPairs) }
func FuzzIgniterCurves(f *testing.F)    { drawn.Fuzz(f, IgniterCurves) }
func FuzzTandemPairs(f *testing.F)      { drawn.Fuzz(f, TandemPairs) }
func FuzzTandemSingles(f *testing.F)    { drawn.Fuzz(f, TandemSingles) }
func FuzzGPUMemNet(f *testing.F)        { drawn.Fuzz(f, GPUMemNetFeatures) }
func FuzzGlet(f *testing.F)             { drawn.Fuzz(f, GletUtilisation) }
func FuzzMISO(f *testing.F)             { drawn.Fuzz(f, MISOSlices) }
func FuzzMuxServe(f *testing.F)         { drawn.Fuzz(f, MuxServeLatencies) }
func FuzzParvaProfile(f *testing.F)     { drawn.Fuzz(f, ParvaProfile) }
func FuzzParvaDeployment(f *testing.F)  { drawn.Fuzz(f, ParvaDeployment) }

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
