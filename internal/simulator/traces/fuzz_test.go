package traces

import (
	"bytes"
	"encoding/csv"
	"errors"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/tandem-gpu/tandem/pkg/vgpu"
)

// checkTrace holds a trace that was read to what its types promise.
func checkTrace(t testing.TB, tr *Trace) {
	t.Helper()
	names := map[string]bool{}
	for i := range tr.Hosts {
		h := &tr.Hosts[i]
		if names[h.Name] || h.Line < 2 || h.Room.MilliCPU < 1 || h.Room.Memory < vgpu.MiB || (h.Model == "") != (h.Devices == 0) {
			t.Fatalf("host %+v", h)
		}
		names[h.Name] = true
		if _, err := h.Node(SlotsPerDevice); err != nil {
			t.Fatal(err)
		}
	}
	for i := range tr.Jobs {
		j := &tr.Jobs[i]
		if names[j.Name] || j.Origin != j.Name || j.Line < 2 || j.Steps < 0 || j.Batch < 0 || j.Priority < 0 && tr.Format != JobList {
			t.Fatalf("job %+v", j)
		}
		names[j.Name] = true
		checkTimes(t, j)
		r, err := j.Request("u")
		if err != nil {
			t.Fatal(err)
		}
		if err := r.Validate(); err != nil && len(r.Containers) > 0 {
			t.Fatal(err)
		}
	}
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
		if !(e.Progress > 0 && e.Progress <= maxSteps && e.Square >= 0 && e.Variance >= 0) || i > 0 && e.Progress <= tr.Epochs[i-1].Progress {
			t.Fatalf("epoch %+v", e)
		}
	}
	checkMeasured(t, tr)
	checkServed(t, tr)
	if len(tr.Hosts)+len(tr.Jobs)+len(tr.Rates)+len(tr.Steps)+len(tr.Epochs)+len(tr.CoRuns)+len(tr.Solos)+len(tr.Networks)+len(tr.Servings)+len(tr.Deployed) == 0 {
		t.Fatal("a trace without rows")
	}
}

// checkMeasured holds what was measured of workloads to what its types promise.
func checkMeasured(t testing.TB, tr *Trace) {
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

func checkTimes(t testing.TB, j *Job) {
	t.Helper()
	most := time.Duration(maxSeconds) * time.Second
	if tr := 4 * most; j.Arrive < 0 || j.Arrive > tr { // Philly's are dates of one century
		t.Fatalf("job %s arrives at %v", j.Name, j.Arrive)
	}
	if j.Duration < 0 || j.Duration > most || j.StepTime < 0 || j.StepTime > most {
		t.Fatalf("job %s runs for %v, a step takes %v", j.Name, j.Duration, j.StepTime)
	}
}

// checkRead reads data as a format: it is a sound trace, whatever the order of its columns, or an *Error that says what
// is wrong.
func checkRead(t *testing.T, data []byte, format Format) {
	tr, err := readAs(bytes.NewReader(data), "f.csv", format)
	if err != nil {
		var own *Error
		if !errors.As(err, &own) || own.File != "f.csv" || own.Value == "" || own.Legal == "" || own.Line < 0 {
			t.Fatalf("error %#v", err)
		}
		return
	}
	checkTrace(t, tr)
	again, err := readAs(bytes.NewReader(reversed(t, data)), "f.csv", format)
	if err != nil {
		t.Fatalf("with its columns reversed: %v", err)
	}
	for _, tr := range []*Trace{tr, again} {
		dropLines(tr)
	}
	if diff := cmp.Diff(tr, again, cmpopts.EquateNaNs()); diff != "" {
		t.Fatalf("with its columns reversed (-want +got):\n%s", diff)
	}
}

// reversed writes a table with its columns in the reverse order. Fields may have several lines, so the numbers of lines
// change.
func reversed(t testing.TB, data []byte) []byte {
	t.Helper()
	r := csv.NewReader(bytes.NewReader(bytes.TrimPrefix(data, []byte(byteOrderMark))))
	r.FieldsPerRecord = -1 // rows may end in a comma
	rows, err := r.ReadAll()
	if err != nil {
		t.Fatal(err)
	}
	var b bytes.Buffer
	w := csv.NewWriter(&b)
	for _, row := range rows {
		row = row[:len(rows[0])]
		slices.Reverse(row)
		if err := w.Write(row); err != nil {
			t.Fatal(err)
		}
	}
	w.Flush()
	return b.Bytes()
}

func dropLines(tr *Trace) {
	for i := range tr.Hosts {
		tr.Hosts[i].Line = 0
	}
	for i := range tr.Jobs {
		tr.Jobs[i].Line = 0
	}
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
func fuzz(f *testing.F, format Format) {
	data, err := os.ReadFile(filepath.Join("testdata", string(format)+".csv"))
	if err != nil {
		f.Fatal(err)
	}
	f.Add(data)
	f.Add(bytes.ReplaceAll(data, []byte("\n"), []byte("\r\n")))
	f.Add(append([]byte(byteOrderMark), data...))
	f.Add(data[:bytes.IndexByte(data, '\n')])
	for _, value := range []string{"", "-1", "NaN", "1e400", "9223372036854775808", `"`, "a\nb"} {
		f.Add(bytes.Replace(data, []byte(",1,"), []byte(","+value+","), 1))
	}
	f.Fuzz(func(t *testing.T, data []byte) { checkRead(t, data, format) })
}

func FuzzJobs(f *testing.F)             { fuzz(f, JobList) }
func FuzzOpenbNodes(f *testing.F)       { fuzz(f, OpenbNodeList) }
func FuzzOpenbPods(f *testing.F)        { fuzz(f, OpenbPodList) }
func FuzzGavelJobs(f *testing.F)        { fuzz(f, GavelTrace) }
func FuzzGavelScaling(f *testing.F)     { fuzz(f, GavelThroughputs) }
func FuzzGavelIsolated(f *testing.F)    { fuzz(f, GavelPairs) }
func FuzzPhillyJobs(f *testing.F)       { fuzz(f, PhillyTrace) }
func FuzzPolluxJobs(f *testing.F)       { fuzz(f, PolluxWorkload) }
func FuzzPolluxPlacements(f *testing.F) { fuzz(f, PolluxPlacementTimes) }
func FuzzPolluxScaling(f *testing.F)    { fuzz(f, PolluxScalingTimes) }
func FuzzPolluxEpochs(f *testing.F)     { fuzz(f, PolluxValidation) }
func FuzzMuriJobs(f *testing.F)         { fuzz(f, MuriTrace) }
func FuzzDLRMJobs(f *testing.F)         { fuzz(f, DLRMTrace) }
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

// FuzzRead reads bytes that may be compressed, in any format.
func FuzzRead(f *testing.F) {
	for i := range schemas {
		data, err := os.ReadFile(filepath.Join("testdata", string(schemas[i].format)+".csv"))
		if err != nil {
			f.Fatal(err)
		}
		f.Add(data)
	}
	f.Add(zip(f, twoPods))
	f.Add(zip(f, twoPods)[:20])
	f.Fuzz(func(t *testing.T, data []byte) {
		r, err := unzip(bytes.NewReader(data), "f.csv")
		var tr *Trace
		if err == nil {
			tr, err = Read(r, "f.csv")
		}
		var own *Error
		switch {
		case err == nil:
			checkTrace(t, tr)
		case !errors.As(err, &own) || own.File != "f.csv":
			t.Fatalf("error %#v", err)
		}
	})
}

// FuzzDetect gives headers, with their columns separated by commas.
func FuzzDetect(f *testing.F) {
	f.Add("name,cpu_milli,memory_mib,num_gpu,gpu_milli")
	f.Add("timestamp,duration")
	f.Add("")
	f.Fuzz(func(t *testing.T, text string) {
		header := strings.Split(text, ",")
		if s, err := detect(header); (s == nil) != (err != nil) {
			t.Fatalf("schema %v, error %v", s, err)
		}
	})
}
