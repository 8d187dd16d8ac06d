package measurements

import (
	"fmt"
	"math"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/tandem-gpu/tandem/internal/simulator/csvtable"
	"github.com/tandem-gpu/tandem/internal/simulator/traces"
)

// Step is how long one training step took with the workers placed in one way.
type Step struct {
	// Line of the file, from 1.
	Line int
	// Placement has a digit per node, the number of workers there: "4" is four on one node, "1111" one on each of four.
	// "" stands for unknown placements: the distribution of the workers is then even, as far as possible.
	Placement string
	// Nodes is the number of the digits, Workers their sum.
	Nodes, Workers int
	// Batch is the samples of a step of each worker.
	Batch int64
	// Time of a step, Sync the part of it that synchronises the workers; the latter is 0 when not given. Each is the mean
	// where the file has the step several times.
	Time time.Duration
	Sync time.Duration
	// Repeats is how many further rows have the step.
	Repeats int
}

// PlacementsOf returns the application and the kind of node of a file of step times, which only its path has.
// "bert-aws.csv" is of bert on aws, as is "bert/placements-aws.csv" and "bert/scalability-aws.csv". Both are "" for
// other names.
func PlacementsOf(file string) (app, nodes string) {
	name, folder := nameOf(file)
	app, nodes, ok := strings.Cut(name, "-")
	if app == "placements" || app == "scalability" {
		app = folder
	}
	if !ok || app == "" || nodes == "" {
		return "", ""
	}
	return app, nodes
}

// EpochsOf returns the application and the batch size of a file of epochs, which only its path has.
// "bert-validation-48.csv" is of bert with 48 samples a step, as is "bert/validation-48.csv". Both are zero for other
// names.
func EpochsOf(file string) (app string, batch int64) {
	name, folder := nameOf(file)
	app, size, ok := strings.Cut(name, "validation-")
	if app == "" {
		app = folder + "-"
	}
	app, dash := strings.CutSuffix(app, "-")
	batch, err := strconv.ParseInt(size, 10, 64)
	if !ok || !dash || app == "" || err != nil || batch < 1 || batch > traces.MaxBatch {
		return "", 0
	}
	return app, batch
}

// nameOf returns the name of a CSV file without its endings, "" for other files, and the name of its folder, "" for none.
func nameOf(file string) (name, folder string) {
	name, isCSV := strings.CutSuffix(strings.TrimSuffix(filepath.Base(file), ".gz"), ".csv")
	if !isCSV {
		return "", ""
	}
	if folder = filepath.Base(filepath.Dir(file)); folder == "." || folder == string(filepath.Separator) {
		folder = ""
	}
	return name, folder
}

// polluxStep reads a row of the step times of one application on one kind of node.
func polluxStep(t *csvtable.Table, all *File) {
	const mostNodes = 64
	s := Step{Line: t.Line(), Placement: t.Field("placement"), Batch: t.Whole("local_bsz", 1, traces.MaxBatch)}
	if s.Placement == "" || len(s.Placement) > mostNodes || strings.Trim(s.Placement, "123456789") != "" {
		t.Fail("placement", "1 to 64 digits from 1 to 9, the workers on each node")
	}
	for _, digit := range s.Placement {
		s.Workers += int(digit - '0')
	}
	s.Nodes = len(s.Placement)
	stepTimes(t, &s)
	addStep(t, all, &s)
}

// polluxScaling reads a row of step times by the number of nodes and workers.
func polluxScaling(t *csvtable.Table, all *File) {
	s := Step{Line: t.Line(), Batch: t.Whole("local_bsz", 1, traces.MaxBatch)}
	s.Nodes, s.Workers = int(t.Whole("num_nodes", 1, traces.MaxWorkers)), int(t.Whole("num_replicas", 1, traces.MaxWorkers))
	if s.Workers < s.Nodes {
		t.Fail("num_replicas", fmt.Sprintf("a whole number from num_nodes (%d) on", s.Nodes))
	}
	stepTimes(t, &s)
	addStep(t, all, &s)
}

// addStep adds a step, or its times to those of the same one of an earlier row. Until the end they are sums.
func addStep(t *csvtable.Table, all *File, s *Step) {
	key := fmt.Sprint(s.Placement, " ", s.Nodes, " ", s.Workers, " ", s.Batch)
	at, known := t.Index(key, len(all.Steps))
	if !known {
		all.Steps = append(all.Steps, *s)
		return
	}
	first := &all.Steps[at]
	if s.Time > math.MaxInt64-first.Time || s.Sync > math.MaxInt64-first.Sync {
		t.Fail("step_time", "a time that adds up with those of the rows before to less than 292 years")
		return
	}
	first.Time, first.Sync, first.Repeats = first.Time+s.Time, first.Sync+s.Sync, first.Repeats+1
	all.Repeated++
}

// meanSteps makes means of the sums of repeated measurements.
func meanSteps(_ *csvtable.Table, all *File) {
	for i := range all.Steps {
		s := &all.Steps[i]
		n := time.Duration(s.Repeats + 1)
		s.Time, s.Sync = s.Time/n, s.Sync/n
	}
}

// stepTimes reads how long a step took, and how much of it the workers spent on each other.
func stepTimes(t *csvtable.Table, s *Step) {
	if s.Time = t.Time("step_time", time.Second); s.Time == 0 {
		t.Fail("step_time", "a number above 0 (seconds)")
	}
	if t.Field("sync_time") != "" {
		s.Sync = t.Time("sync_time", time.Second)
	}
}

// Epoch is how far a training had come at the end of one epoch, and how noisy its gradients were.
type Epoch struct {
	// Line of the file, from 1.
	Line int
	// Progress counts from the start, in steps at the smallest batch size that do the same.
	Progress float64
	// Square is the squared length of the mean gradient, Variance that of its noise at the smallest batch size.
	Square, Variance float64
}

// Gain returns by how many steps at the smallest batch size one step at a batch of so many times that size advances.
// The result is 1 at 1, and at most that many times (McCandlish et al. 2018, as Pollux uses it). Without a gradient it
// is 1.
//
// Example: where the noise is three times the gradient, four times the batch gains (3 + 1) ÷ (3/4 + 1) = 2.29.
func (e *Epoch) Gain(scale float64) float64 {
	if e.Square+e.Variance <= 0 {
		return 1
	}
	return (e.Variance + e.Square) / (e.Variance/scale + e.Square)
}

// polluxEpoch reads a row of what each epoch of one application brought at one batch size.
func polluxEpoch(t *csvtable.Table, all *File) {
	const most = 1 << 62 // gradients of large models are long
	e := Epoch{
		Line: t.Line(), Progress: t.Decimal("progress", traces.MaxSteps, "steps"),
		Square: t.Decimal("grad_sqr", most, "a squared length"), Variance: t.Decimal("grad_var", most, "a variance"),
	}
	if n := len(all.Epochs); n > 0 && e.Progress <= all.Epochs[n-1].Progress || e.Progress == 0 {
		t.Fail("progress", "a number above 0, and above that of the row before")
	}
	all.Epochs = append(all.Epochs, e)
}
