package traces

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/tandem-gpu/tandem/internal/simulator/csvtable"
	"github.com/tandem-gpu/tandem/pkg/vgpu"
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

func FuzzJobs(f *testing.F)       { drawn.Fuzz(f, JobList) }
func FuzzOpenbNodes(f *testing.F) { drawn.Fuzz(f, OpenbNodeList) }
func FuzzOpenbPods(f *testing.F)  { drawn.Fuzz(f, OpenbPodList) }
func FuzzGavelJobs(f *testing.F)  { drawn.Fuzz(f, GavelTrace) }
func FuzzPhillyJobs(f *testing.F) { drawn.Fuzz(f, PhillyTrace) }
func FuzzPolluxJobs(f *testing.F) { drawn.Fuzz(f, PolluxWorkload) }
func FuzzMuriJobs(f *testing.F)   { drawn.Fuzz(f, MuriTrace) }
func FuzzDLRMJobs(f *testing.F)   { drawn.Fuzz(f, DLRMTrace) }

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
