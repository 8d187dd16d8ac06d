package traces

import (
	"fmt"
	"io"
	"path/filepath"
	"strings"
	"time"
)

// Step is how long one training step took with the workers placed in one way.
type Step struct {
	// Line of the file, from 1.
	Line int
	// Placement has a digit per node, the number of workers there: "4" is four on one node, "1111" one on each of four.
	Placement string
	// Workers is the sum of the digits.
	Workers int
	// Batch is the samples of a step of each worker.
	Batch int64
	// Time of a step, Sync the part of it that synchronises the workers; the latter is 0 when not given.
	Time time.Duration
	Sync time.Duration
}

// PolluxJobs reads a workload of Pollux (OSDI'21) or Sia (SOSP'23), whose columns PolluxWorkload names. The App is the
// application, and each of the num_replicas workers has a whole GPU. How long a job runs depends on its placement and its
// batch size, so the durations are unknown.
func PolluxJobs(r io.Reader, file string) ([]Job, error) { return jobs(r, file, PolluxWorkload) }

// PolluxPlacements reads the step times of one application on one kind of node, whose columns PolluxPlacementTimes names.
func PolluxPlacements(r io.Reader, file string) ([]Step, error) {
	t, err := readAs(r, file, PolluxPlacementTimes)
	if err != nil {
		return nil, err
	}
	return t.Steps, nil
}

// PlacementsOf returns the application and the kind of node that a file of step times is about, which only its name says:
// "bert-aws.csv" is of bert on aws. Both are "" for other names.
func PlacementsOf(file string) (app, nodes string) {
	name := strings.TrimSuffix(filepath.Base(file), ".gz")
	name, isCSV := strings.CutSuffix(name, ".csv")
	app, nodes, ok := strings.Cut(name, "-")
	if !isCSV || !ok || app == "" || nodes == "" {
		return "", ""
	}
	return app, nodes
}

func polluxJob(t *table, all *Trace) {
	j := t.job(t.text("name"))
	t.unique("name", j.Name, "name")
	j.Arrive = t.time("time", time.Second)
	j.App = t.text("application")
	t.gang(&j, "num_replicas")
	j.Batch = t.wholeOr("batch_size", 1, maxBatch)
	all.Jobs = append(all.Jobs, j)
}

func polluxStep(t *table, all *Trace) {
	const mostNodes = 64
	s := Step{Line: t.line(), Placement: t.field("placement"), Batch: t.whole("local_bsz", 1, maxBatch)}
	if s.Placement == "" || len(s.Placement) > mostNodes || strings.Trim(s.Placement, "123456789") != "" {
		t.fail("placement", "1 to 64 digits from 1 to 9, the workers on each node")
	}
	for _, digit := range s.Placement {
		s.Workers += int(digit - '0')
	}
	t.unique("placement", fmt.Sprint(s.Placement, " ", s.Batch), "placement with this local_bsz")
	if s.Time = t.time("step_time", time.Second); s.Time == 0 {
		t.fail("step_time", "a number above 0 (seconds)")
	}
	if t.field("sync_time") != "" {
		s.Sync = t.time("sync_time", time.Second)
	}
	all.Steps = append(all.Steps, s)
}
