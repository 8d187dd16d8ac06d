package report_test

import (
	"strings"
	"testing"

	"github.com/tandem-gpu/tandem/internal/simulator/report"
)

// TestWorkTable: a row for each run with work, and one for each part with an order; a value that never was is –.
func TestWorkTable(t *testing.T) {
	s := report.Scenario{Results: []report.RunResult{
		{Policy: "native", Seed: 1, Work: &report.Work{
			Useful: report.Kinds{All: 12.34, Training: 10, Inference: 2.04, Notebooks: .3}, GPUs: report.Kinds{All: 7.77}, Windows: 90, Broken: 4,
			TrainingJCTSeconds: &report.Quantiles{Mean: 600}, NotebookWaitSeconds: &report.Quantiles{Mean: 61}, BurstSlowdown: new(1.256),
			Ordered: []report.Part{{Part: "a", ArrivedSeconds: new(0.0), StartedSeconds: new(60.0)}, {Part: "b", After: "a"}},
		}},
		{Policy: "tandem", Seed: 2, Work: &report.Work{}},
		{Policy: "packed", Seed: 3},
	}}
	var b strings.Builder
	if err := s.Table(&b); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{`
policy  seed  useful GPU-h  training  inference  notebooks  GPUs in use  training JCT  windows  broken  notebook wait  burst slowdown
native     1          12.3      10.0        2.0        0.3          7.8         10m0s       90       4           1m1s            1.26
tandem     2           0.0       0.0        0.0        0.0          0.0             –        0       0              –               –

policy  seed  part  after  arrives  starts  ends
native     1  a                 0s    1m0s     –
native     1  b     a            –       –     –
`} {
		if !strings.Contains(b.String(), want) {
			t.Errorf("the table lacks %q:\n%s", want, b.String())
		}
	}
}
