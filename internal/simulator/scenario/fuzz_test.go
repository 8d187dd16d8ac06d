package scenario_test

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/tandem-gpu/tandem/internal/simulator/scenario"
	"github.com/tandem-gpu/tandem/test/must"
)

// FuzzParse: whatever stands in a scenario, it is refused with an Error that names the file and says what is wanted, or it
// has nodes, policies and seeds, and its jobs can be drawn.
func FuzzParse(f *testing.F) {
	scripts, err := filepath.Glob("testdata/scripts/*")
	must.OK(f, err)
	for _, path := range scripts {
		data, err := os.ReadFile(path)
		must.OK(f, err)
		for _, part := range strings.Split(string(data), "\n\n") {
			if _, yaml, ok := strings.Cut(part, "parse\n"); ok {
				yaml, _, _ = strings.Cut(yaml, "----")
				f.Add([]byte(yaml))
			}
		}
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		s, err := scenario.Parse("fuzz.yaml", data)
		var refused *scenario.Error
		if err != nil {
			if !errors.As(err, &refused) || refused.File != "fuzz.yaml" || refused.Found == "" || refused.Want == "" {
				t.Fatalf("error %v (%T)", err, err)
			}
			if strings.ContainsAny(err.Error(), "\n\r") {
				t.Fatalf("the error has several lines: %q", err)
			}
			return
		}
		if len(s.Nodes) == 0 || len(s.Policies) == 0 || len(s.Seeds) == 0 {
			t.Fatalf("read %+v", s)
		}
		if jobs, err := s.Jobs(s.Seeds[0]); err != nil || len(jobs) == 0 {
			t.Fatalf("drew %d jobs: %v", len(jobs), err)
		}
	})
}
