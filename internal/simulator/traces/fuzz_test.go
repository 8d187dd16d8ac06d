package traces

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/tandem-gpu/tandem/internal/simulator/csvtable"
	"github.com/tandem-gpu/tandem/pkg/vgpu"
	"github.com/tandem-gpu/tandem/test/drawntable"
	"github.com/tandem-gpu/tandem/test/must"
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
		must.OK(t, err)
		if err := r.Validate(); err != nil && len(r.Containers) > 0 {
			t.Fatal(err)
		}
	}
	if len(tr.Hosts)+len(tr.Jobs) == 0 {
		t.Fatal("a trace without rows")
	}
}

func checkTimes(t testing.TB, j *Job) {
	t.Helper()
	most := time.Duration(csvtable.MaxSeconds) * time.Second
	if tr := 4 * most; j.Arrive < 0 || j.Arrive > tr { // Philly's are dates of one century
		t.Fatalf("job %s arrives at %v", j.Name, j.Arrive)
	}
	if j.Duration < 0 || j.Duration > most || j.StepTime < 0 || j.StepTime > most {
		t.Fatalf("job %s runs for %v, a step takes %v", j.Name, j.Duration, j.StepTime)
	}
}

// checkRead reads data as a format: it is a sound trace, whatever the order of its columns, or a *csvtable.Error that says what
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
	checkTrace(t, tr)
	again, err := readAs(bytes.NewReader(drawntable.Reversed(t, data)), "f.csv", format)
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

func dropLines(tr *Trace) {
	for i := range tr.Hosts {
		tr.Hosts[i].Line = 0
	}
	for i := range tr.Jobs {
		tr.Jobs[i].Line = 0
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

func FuzzJobs(f *testing.F)       { fuzz(f, JobList) }
func FuzzOpenbNodes(f *testing.F) { fuzz(f, OpenbNodeList) }
func FuzzOpenbPods(f *testing.F)  { fuzz(f, OpenbPodList) }
func FuzzGavelJobs(f *testing.F)  { fuzz(f, GavelTrace) }
func FuzzPhillyJobs(f *testing.F) { fuzz(f, PhillyTrace) }
func FuzzPolluxJobs(f *testing.F) { fuzz(f, PolluxWorkload) }
func FuzzMuriJobs(f *testing.F)   { fuzz(f, MuriTrace) }
func FuzzDLRMJobs(f *testing.F)   { fuzz(f, DLRMTrace) }

// FuzzRead reads bytes in any format.
func FuzzRead(f *testing.F) {
	for i := range schemas {
		data, err := os.ReadFile(filepath.Join("testdata", string(schemas[i].Format)+".csv"))
		must.OK(f, err)
		f.Add(data)
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		tr, err := Read(bytes.NewReader(data), "f.csv")
		var own *csvtable.Error
		switch {
		case err == nil:
			checkTrace(t, tr)
		case !errors.As(err, &own) || own.File != "f.csv":
			t.Fatalf("error %#v", err)
		}
	})
}
