package gangs

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/tandem-gpu/tandem/pkg/vgpu"
	"github.com/tandem-gpu/tandem/test/must"
)

// TestForecasts: nothing is predicted before eight jobs have ended. Then nine of ten jobs like these have ended by the end that is predicted,
// which is later for a job that has run for longer than they did.
func TestForecasts(t *testing.T) {
	f, err := newForecasts()
	must.OK(t, err)
	app := &gangApp{name: "elm"}
	job := func(id int) *gangJob { return &gangJob{id: id, app: app, workers: 2} }
	at := func(now float64, jobs ...*gangJob) {
		t.Helper()
		must.OK(t, f.learn(&gangCluster{now: now, jobs: jobs}))
	}
	for id := range 7 {
		f.begin(job(id), 0, nil)
	}
	last := job(7)
	f.begin(last, 0, []vgpu.UID{"last"})
	at(1000, last)
	if got := f.endOf("last"); got != 0 {
		t.Errorf("after seven jobs the end is predicted for %d", got)
	}
	at(1000)
	runs := job(8)
	f.begin(runs, 1000, []vgpu.UID{"runs"})
	at(1100, runs)
	if got := f.endOf("runs"); got < 1900 || got > 3000 {
		t.Errorf("after eight jobs of 1000 s, one that started at 1000 ends by %d", got)
	}
	at(4000, runs)
	if got := f.endOf("runs"); got <= 4000 {
		t.Errorf("a job that runs at 4000 ends by %d", got)
	}
	if got := f.endOf("nobody"); got != 0 {
		t.Errorf("a pod of no job ends by %d", got)
	}
}

// TestForecastsPay: with jobs alike in length, devices are kept for a job of no more workers than the mean of the others that wait.
func TestForecastsPay(t *testing.T) {
	f, err := newForecasts()
	must.OK(t, err)
	app := &gangApp{name: "elm"}
	var jobs []*gangJob
	for id, workers := range []int{2, 4, 3, 9} {
		jobs = append(jobs, &gangJob{id: id, app: app, workers: workers, nodes: []int{nowhere}})
	}
	jobs[3].nodes = []int{0} // it runs
	got := map[int]bool{}
	for _, j := range jobs[:3] {
		got[j.workers] = f.pays(&gangCluster{jobs: jobs}, j)
	}
	if diff := cmp.Diff(map[int]bool{2: true, 3: true, 4: false}, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if !f.pays(&gangCluster{jobs: jobs[3:]}, jobs[1]) {
		t.Error("no devices are kept for the only job that waits")
	}
}
