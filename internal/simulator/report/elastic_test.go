package report_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/tandem-gpu/tandem/internal/simulator/report"
)

// TestElasticTable: a row for each elastic job, up to ten of a run, with up to eight numbers of workers; a value that never
// was is –.
func TestElasticTable(t *testing.T) {
	jobs := []report.ElasticJob{
		{
			Job: "jobs/train", State: "finished", Min: new(2), Mean: new(5.25), Max: new(8), Moves: 1, PausedSeconds: 40, JCTSeconds: new(600.0),
			Workers: []report.Workers{{Workers: 2}, {AtSeconds: 60, Workers: 8}, {AtSeconds: 600}},
		},
		{Job: "jobs/late", State: "waiting", Workers: slices.Repeat([]report.Workers{{AtSeconds: 5}}, 9)},
	}
	for i := range 10 {
		jobs = append(jobs, report.ElasticJob{Job: fmt.Sprintf("drawn/%02d", i), State: "waiting"})
	}
	var b strings.Builder
	if err := (report.Scenario{Results: []report.RunResult{{Policy: "tandem", Seed: 1, Elastic: jobs}}}).Table(&b); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		"policy  seed  elastic job  state     min  mean  max  moves  paused    JCT  workers over time\n",
		"tandem     1  jobs/train   finished    2  5.25    8      1     40s  10m0s  0s 2, 1m0s 8, 10m0s 0\n",
		"tandem     1  jobs/late    waiting     –     –    –      0      0s      –  5s 0, 5s 0, 5s 0, 5s 0, 5s 0, 5s 0, 5s 0, 5s 0, …\n",
		"drawn/07",
		"… and 2 more elastic jobs; -o json has all\n",
	} {
		if !strings.Contains(b.String(), want) {
			t.Errorf("the table lacks %q:\n%s", want, b.String())
		}
	}
	if strings.Contains(b.String(), "drawn/08") {
		t.Errorf("the table has more than ten jobs of a run:\n%s", b.String())
	}
}
