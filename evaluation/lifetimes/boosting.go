package lifetimes

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math"
	"os/exec"
)

// boosting runs a program that fits gradient boosting: it reads rows, targets and rows to predict as JSON, and writes predictions of the
// latter and of the former. The repository has one, boosting.py, which uses scikit-learn and is no part of the build.
type boosting struct{ program []string }

type boostingTask struct {
	From    [][]float64 `json:"from"`
	Lengths []float64   `json:"lengths"`
	Predict [][]float64 `json:"predict"`
}

type boostingResult struct {
	Predicted []float64 `json:"predicted"`
	Fitted    []float64 `json:"fitted"`
}

func (b boosting) fit(from, predict []*job) (predicted, fitted []float64, err error) {
	rows := func(jobs []*job) [][]float64 {
		out := make([][]float64, len(jobs))
		for i, j := range jobs {
			out[i] = append([]float64{float64(j.category[0]), float64(j.category[1])}, j.features...)
		}
		return out
	}
	task := boostingTask{From: rows(from), Predict: rows(predict)}
	for _, j := range from {
		task.Lengths = append(task.Lengths, math.Log(j.length))
	}
	in, err := json.Marshal(task)
	if err != nil {
		return nil, nil, fmt.Errorf("write the task of %q: %w", b.program, err)
	}
	c := exec.Command(b.program[0], b.program[1:]...)
	c.Stdin = bytes.NewReader(in)
	var errs bytes.Buffer
	c.Stderr = &errs
	out, err := c.Output()
	if err != nil {
		return nil, nil, fmt.Errorf("run %q: %w: %s", b.program, err, errs.String())
	}
	var r boostingResult
	if err := json.Unmarshal(out, &r); err != nil {
		return nil, nil, fmt.Errorf("read the result of %q: %w", b.program, err)
	}
	if len(r.Predicted) != len(predict) || len(r.Fitted) != len(from) {
		return nil, nil, fmt.Errorf("result of %q: %d and %d predictions, want %d and %d", b.program, len(r.Predicted), len(r.Fitted), len(predict), len(from))
	}
	return r.Predicted, r.Fitted, nil
}
