package main

import (
	"strings"
	"testing"

	"github.com/tandem-gpu/tandem/internal/simulator/command"
	"github.com/tandem-gpu/tandem/test/golden"
)

func TestScore(t *testing.T) {
	golden.Text(t, "help_score.txt", succeed(t, "score"))
	golden.Text(t, "help_score_curves.txt", succeed(t, "score", "curves", "--help"))
	golden.Text(t, "help_score_features.txt", succeed(t, "score", "features", "--help"))
	curves := []string{"score", "curves", "--curves", "testdata/fit_miso.csv"}
	golden.Text(t, "score_curves.txt", succeed(t, curves...))
	golden.Text(t, "score_curves.json", succeed(t, append(curves, "-o", "json")...))
	golden.Text(t, "score_features.txt", succeed(t, "score", "features", "--features", networks(t, 20)))
}

func TestScoreBadInput(t *testing.T) {
	for _, tc := range []struct {
		name string
		args []string
		says []string
	}{
		{"unknown thing to score", []string{"score", "everything"}, []string{`"everything"`, "curves, features"}},
		{"no curves", []string{"score", "curves"}, []string{"--curves is missing"}},
		{"missing curves", []string{"score", "curves", "--curves", "none.csv"}, []string{"--curves", "none.csv", "no such file"}},
		{"curves without parts", []string{"score", "curves", "--curves", file(t, "singles.csv", singles)}, []string{"lucid-singles", "no speeds by part"}},
		{"no features", []string{"score", "features"}, []string{"--features is missing"}},
		{"other features", []string{"score", "features", "--features", "testdata/pods.csv"}, []string{"testdata/pods.csv", "no networks"}},
		{"curves in another form", []string{"score", "curves", "--curves", "testdata/fit_miso.csv", "-o", "go"}, []string{"--output", `"go"`}},
		{"unknown coefficients", predicting("--coefficients", "mine"), []string{"--coefficients", `"mine"`, "shipped and fitted"}},
		{"nothing to fit to", predicting("--coefficients", "fitted"), []string{"--coefficients", "without --hold-out"}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			code, out, errs := evaluate(tc.args...)
			if code != command.Broken || out != "" || strings.Count(errs, "\n") != 1 {
				t.Errorf("ends with %d, prints %q, stderr:\n%s", code, out, errs)
			}
			for _, want := range tc.says {
				if !strings.Contains(errs, want) {
					t.Errorf("%s does not say %q", errs, want)
				}
			}
		})
	}
}
