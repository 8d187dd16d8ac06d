package measurements

import (
	"bytes"
	"encoding/csv"
	"errors"
	"fmt"
	"io"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/tandem-gpu/tandem/internal/simulator/csvtable"
)

// notServed is how a file says that a set does not have a model.
const notServed = "N/A"

// SLO is the demand for one model in a set: the number of requests, and the promised latency.
type SLO struct {
	Model string
	// Rate is requests per second, above 0.
	Rate float64
	// Latency is what a request may take, above 0.
	Latency time.Duration
}

// SLOSet is the models that are to be served together, by name.
type SLOSet struct {
	// Number of the set: its row, from 1. Line is where it stands in the file of the rates.
	Number, Line int
	SLOs         []SLO
}

// LoadSLOs reads the sets of ParvaGPU: a file with latencies in milliseconds and one with requests per second. Row n is
// set n, with a column for each model of a profile. Their columns are in the order of the names; a first line of names,
// as other files may have it, says another order. A model that a set does not have is "N/A" in both.
func LoadSLOs(latencies, rates string, models []string) ([]SLOSet, error) {
	promised, err := loadGrid(latencies, models, "milliseconds")
	if err != nil {
		return nil, err
	}
	asked, err := loadGrid(rates, models, "requests per second")
	if err != nil {
		return nil, err
	}
	if len(promised) != len(asked) {
		return nil, &csvtable.Error{
			File: rates, Value: csvtable.Plural(len(asked), "row"), Legal: fmt.Sprintf("%d as %s has", len(promised), latencies),
		}
	}
	sets := make([]SLOSet, len(asked))
	for i := range asked {
		sets[i] = SLOSet{Number: i + 1, Line: asked[i].line}
		for _, model := range slices.Sorted(slices.Values(models)) {
			rate, latency := asked[i].by[model], promised[i].by[model]
			switch {
			case (rate == 0) != (latency == 0):
				return nil, &csvtable.Error{
					File: rates, Line: asked[i].line, Column: csvtable.Clip(model), Value: cellText(rate),
					Legal: fmt.Sprintf("what goes with %s in %s line %d: a rate with a latency, %s with %[4]s",
						cellText(latency), latencies, promised[i].line, notServed),
				}
			case rate > 0:
				sets[i].SLOs = append(sets[i].SLOs, SLO{
					Model: model, Rate: rate, Latency: time.Duration(math.Round(latency * float64(time.Millisecond))),
				})
			}
		}
	}
	return sets, nil
}

func cellText(v float64) string {
	if v == 0 {
		return notServed
	}
	return strconv.FormatFloat(v, 'g', -1, 64)
}

// gridRow is a number for each model, 0 for notServed.
type gridRow struct {
	line int
	by   map[string]float64
}

// loadGrid reads a file that has a column for each model and a row for each set.
func loadGrid(path string, models []string, words string) ([]gridRow, error) {
	r, err := csvtable.Open(path)
	if err != nil {
		return nil, err
	}
	defer r.Close()
	return readGrid(r, path, models, words)
}

// readGrid is loadGrid for a stream.
func readGrid(r io.Reader, file string, models []string, words string) ([]gridRow, error) {
	t, err := newGrid(r, file, models)
	if err != nil {
		return nil, err
	}
	var rows []gridRow
	for t.Next() {
		row := gridRow{line: t.Line(), by: map[string]float64{}}
		if t.Fields() != len(t.Header()) {
			return nil, &csvtable.Error{
				File: file, Line: t.Line(), Value: csvtable.Plural(t.Fields(), "field"),
				Legal: fmt.Sprintf("%d, one for each of %s", len(t.Header()), strings.Join(t.Header(), ", ")),
			}
		}
		for _, model := range t.Header() {
			if t.Field(model) != notServed {
				row.by[model] = gridCell(t, model, words)
			}
		}
		if len(row.by) == 0 {
			return nil, &csvtable.Error{File: file, Line: t.Line(), Value: notServed + " for all models", Legal: "a number for one at least"}
		}
		rows = append(rows, row)
	}
	if t.Err() != nil {
		return nil, t.Err()
	}
	return rows, nil
}

// gridCell reads a number above 0.
func gridCell(t *csvtable.Table, column, words string) float64 {
	const most = 1_000_000
	v := t.Decimal(column, most, words)
	if !(v >= 1e-6) {
		t.Fail(column, fmt.Sprintf("a number from 0.000001 to %d (%s), or %s", most, words, notServed))
	}
	return v
}

// newGrid begins a file whose first line may be the names of the models.
func newGrid(r io.Reader, file string, models []string) (*csvtable.Table, error) {
	data, err := io.ReadAll(r)
	if err != nil {
		var own *csvtable.Error
		if errors.As(err, &own) {
			return nil, own
		}
		return nil, &csvtable.Error{File: file, Value: err.Error(), Legal: "a file that can be read to its end"}
	}
	data = bytes.TrimPrefix(data, []byte(csvtable.ByteOrderMark))
	if len(bytes.TrimSpace(data)) == 0 {
		return nil, &csvtable.Error{File: file, Value: "an empty file", Legal: "a row of numbers for each set"}
	}
	header := slices.Sorted(slices.Values(models))
	if named(data) {
		t, err := csvtable.New(bytes.NewReader(data), file)
		if err != nil {
			return nil, err
		}
		if !slices.Equal(slices.Sorted(slices.Values(t.Header())), header) {
			return nil, &csvtable.Error{
				File: file, Line: t.HeaderLine(), Value: "the names " + csvtable.Clip(strings.Join(t.Header(), ", ")),
				Legal: "numbers, or the models of the profile, each once: " + strings.Join(header, ", "),
			}
		}
		t.AllowAnyLength()
		return t, nil
	}
	return csvtable.Headless(bytes.NewReader(data), file, header), nil
}

// named reports whether the first line is names: no number stands in it, nor N/A.
func named(data []byte) bool {
	c := csv.NewReader(bytes.NewReader(data))
	first, err := c.Read()
	return err == nil && !slices.ContainsFunc(first, func(field string) bool {
		_, err := strconv.ParseFloat(field, 64)
		return err == nil || field == notServed || field == ""
	})
}
