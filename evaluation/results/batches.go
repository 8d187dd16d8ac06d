package results

import (
	"fmt"
	"io"
	"strconv"

	"github.com/tandem-gpu/tandem/internal/simulator/report"
)

// Batches is what whole GPUs serve over the batch size, with one process, several at a time, and several by turns.
type Batches struct {
	Results []BatchResult `json:"results"`
	// Means of all models.
	Means []BatchMean `json:"means"`
}

// Throughput is what a GPU serves.
type Throughput struct {
	// Rate is images a second of all processes together, Millis how many milliseconds a batch takes.
	Rate   float64 `json:"rate"`
	Millis float64 `json:"latency_ms"`
}

// BatchResult is what a GPU serves of a model with a batch size, which is that of each process.
type BatchResult struct {
	Model     string `json:"model"`
	Batch     int    `json:"batch"`
	Processes int    `json:"processes"`
	// Exclusive is one process, as measured. Shared is all processes at a time, as measured. TimeSliced is all processes by turns, by a model.
	Exclusive  Throughput `json:"exclusive"`
	TimeSliced Throughput `json:"time_sliced"`
	Shared     Throughput `json:"shared"`
	// Larger is one process with a batch as large as those of all processes together, as measured; nil where it was not.
	Larger *Throughput `json:"larger_batch"`
}

// BatchMean has geometric means over models.
type BatchMean struct {
	Batch     int `json:"batch"`
	Processes int `json:"processes"`
	Models    int `json:"models"`
	// Rate is that of several processes at a time as a part of that by turns, Least and Most are those of single models, and Latency is the same
	// of the time of a batch.
	Rate    float64 `json:"rate"`
	Least   float64 `json:"least_rate"`
	Most    float64 `json:"most_rate"`
	Latency float64 `json:"latency"`
	// OfLarger is the rate as a part of that of one process with a batch as large as all together; nil where that was not measured.
	OfLarger *float64 `json:"rate_of_larger_batch"`
}

// Table writes a row per model, batch size and number of processes, and then the means.
func (b Batches) Table(w io.Writer) error {
	t := report.Table{Columns: []report.Column{
		{Head: "model", Text: true}, {Head: "batch"}, {Head: "processes"}, {Head: "exclusive img/s"}, {Head: "ms"}, {Head: "time-sliced img/s"},
		{Head: "ms"}, {Head: "shared img/s"}, {Head: "ms"}, {Head: "larger batch img/s"}, {Head: "ms"},
	}}
	for i := range b.Results {
		r := &b.Results[i]
		row := []string{r.Model, strconv.Itoa(r.Batch), strconv.Itoa(r.Processes)}
		for _, x := range []*Throughput{&r.Exclusive, &r.TimeSliced, &r.Shared, r.Larger} {
			row = append(row, x.cells()...)
		}
		t.Rows = append(t.Rows, row)
	}
	if err := t.Write(w); err != nil {
		return err
	}
	if _, err := fmt.Fprintln(w, "\nshared GPUs as a part of time-sliced ones: geometric means of all models"); err != nil {
		return err
	}
	return b.writeMeans(w)
}

// cells writes a throughput, two empty cells for none.
func (t *Throughput) cells() []string {
	if t == nil {
		return []string{"", ""}
	}
	return []string{fmt.Sprintf("%.0f", t.Rate), fmt.Sprintf("%.0f", t.Millis)}
}

func (b Batches) writeMeans(w io.Writer) error {
	t := report.Table{Columns: []report.Column{
		{Head: "processes"}, {Head: "batch"}, {Head: "models"}, {Head: "img/s"}, {Head: "least"}, {Head: "most"}, {Head: "ms"},
		{Head: "img/s ÷ larger batch"},
	}}
	for _, m := range b.Means {
		ofLarger := ""
		if m.OfLarger != nil {
			ofLarger = fmt.Sprintf("%.2f", *m.OfLarger)
		}
		t.Rows = append(t.Rows, []string{
			strconv.Itoa(m.Processes), strconv.Itoa(m.Batch), strconv.Itoa(m.Models), fmt.Sprintf("%.2f", m.Rate), fmt.Sprintf("%.2f", m.Least),
			fmt.Sprintf("%.2f", m.Most), fmt.Sprintf("%.2f", m.Latency), ofLarger,
		})
	}
	return t.Write(w)
}
