package benchmark

import (
	"fmt"
	"os"
	"strings"
	"text/tabwriter"

	"sigs.k8s.io/yaml"
)

// Range is what one comparison may give.
type Range struct {
	// Name says in words what is compared.
	Name string `json:"name"`
	// Ours and Stock name the workloads as scheduler_perf does: "case/workload".
	Ours  string `json:"ours"`
	Stock string `json:"stock"`
	// Min is the least allowed ratio of our pods per second to those of the stock scheduler; 0 where the comparison is
	// only reported.
	Min float64 `json:"min,omitempty"`
	// Measured is the ratio that was measured when Min was last set, for the reader.
	Measured float64 `json:"measured"`
}

// LoadRanges reads a file of ranges. Unknown fields are errors.
func LoadRanges(path string) ([]Range, error) {
	raw, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("load ranges: %w", err)
	}
	var ranges []Range
	if err := yaml.UnmarshalStrict(raw, &ranges); err != nil {
		return nil, fmt.Errorf("load ranges: %s: %w", path, err)
	}
	return ranges, nil
}

// Compare holds the pods per second of workloads against the ranges. It returns a table for people and one line for
// each range that is broken: a ratio below Min, or a workload that was not measured.
func Compare(ranges []Range, podsPerSecond map[string]float64) (table string, broken []string) {
	var b strings.Builder
	w := tabwriter.NewWriter(&b, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "comparison\tours/s\tstock/s\tratio\tallowed\tmeasured before")
	for _, r := range ranges {
		ours, stock := podsPerSecond[r.Ours], podsPerSecond[r.Stock]
		if ours <= 0 || stock <= 0 {
			broken = append(broken, fmt.Sprintf("%s: measured %s = %.1f, %s = %.1f: a workload did not run", r.Name, r.Ours, ours, r.Stock, stock))
			continue
		}
		ratio := ours / stock
		allowed := "reported"
		if r.Min > 0 {
			allowed = fmt.Sprintf("≥ %.2f", r.Min)
		}
		fmt.Fprintf(w, "%s\t%.1f\t%.1f\t%.2f\t%s\t%.2f\n", r.Name, ours, stock, ratio, allowed, r.Measured)
		if ratio < r.Min {
			broken = append(broken, fmt.Sprintf("%s: ratio %.2f is below %.2f", r.Name, ratio, r.Min))
		}
	}
	w.Flush()
	return b.String(), broken
}
