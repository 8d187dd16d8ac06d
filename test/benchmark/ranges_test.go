package benchmark

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestCompare(t *testing.T) {
	ranges := []Range{
		{Name: "plain", Ours: "A/1", Stock: "B/1", Min: 0.95, Measured: 1.01},
		{Name: "vgpu", Ours: "A/2", Stock: "B/2", Measured: 0.5},
	}
	tests := []struct {
		name string
		rate map[string]float64
		want []string
	}{
		// 95/100 is exactly what is allowed; 10/100 is below nothing.
		{name: "within", rate: map[string]float64{"A/1": 95, "B/1": 100, "A/2": 10, "B/2": 100}},
		{
			name: "below", rate: map[string]float64{"A/1": 94, "B/1": 100, "A/2": 10, "B/2": 100},
			want: []string{"plain: ratio 0.94 is below 0.95"},
		},
		{
			name: "a workload without a result is no pass", rate: map[string]float64{"A/1": 95, "B/1": 100, "A/2": 10},
			want: []string{"vgpu: measured A/2 = 10.0, B/2 = 0.0: a workload did not run"},
		},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			table, broken := Compare(ranges, test.rate)
			if diff := cmp.Diff(test.want, broken); diff != "" {
				t.Errorf("broken (-want +got):\n%s", diff)
			}
			if !strings.Contains(table, "plain") {
				t.Errorf("the table does not name the comparison:\n%s", table)
			}
		})
	}
}

func TestLoadRanges(t *testing.T) {
	ranges, err := LoadRanges("ranges.yaml")
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range ranges {
		if r.Name == "" || r.Ours == "" || r.Stock == "" || r.Measured <= 0 {
			t.Errorf("incomplete range: %+v", r)
		}
		if r.Min > r.Measured {
			t.Errorf("%s: measured %.2f is outside of its own range, ≥ %.2f", r.Name, r.Measured, r.Min)
		}
	}
	path := filepath.Join(t.TempDir(), "ranges.yaml")
	if err := os.WriteFile(path, []byte("- nam: x\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := LoadRanges(path); err == nil || !strings.Contains(err.Error(), `unknown field "nam"`) {
		t.Errorf("a misspelt field gives %v", err)
	}
}
