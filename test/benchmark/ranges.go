package benchmark

import (
	"fmt"
	"os"
	"strings"
	"text/tabwriter"

	"sigs.k8s.io/yaml"
)

// Ranges is what the measurements may give, with what they gave.
type Ranges struct {
	Ratios []Ratio `json:"ratios"`
	// Gangs compares gangs per second of algorithm time instead of pods per second: a ratio of 5 is a fifth of the time for
	// each gang.
	Gangs []Ratio `json:"gangs"`
	// Preemptions compares the preemptors that got their nodes per second, until 95 % had (MostPodsPerSecond).
	Preemptions []Ratio `json:"preemptions"`
	Costs       []Cost  `json:"costs"`
}

// Ratio compares pods per second with those of the stock scheduler in the same run.
type Ratio struct {
	// Name says in words what the comparison is.
	Name string `json:"name"`
	// Ours and Stock name the workloads as scheduler_perf does: "case/workload".
	Ours  string `json:"ours"`
	Stock string `json:"stock"`
	// Min is the least allowed ratio; 0 for a comparison that is only in the report.
	Min float64 `json:"min,omitempty"`
	// Measured is the ratio that a quiet machine gave, for the reader; 0 before one did.
	Measured float64 `json:"measured,omitempty"`
}

// Cost is the time of one operation of a Go benchmark.
type Cost struct {
	Name string `json:"name"`
	// Benchmark is the name that `go test -bench` prints, without the number of CPUs.
	Benchmark string `json:"benchmark"`
	// MaxMilliseconds is the bound for one operation.
	MaxMilliseconds float64 `json:"maxMilliseconds"`
	// Measured is what a quiet machine gave, for the reader; 0 before one did.
	Measured float64 `json:"measured,omitempty"`
}

// LoadRanges reads a file of ranges. Unknown fields are errors.
func LoadRanges(path string) (Ranges, error) {
	raw, err := os.ReadFile(path)
	if err != nil {
		return Ranges{}, fmt.Errorf("load ranges: %w", err)
	}
	var r Ranges
	if err := yaml.UnmarshalStrict(raw, &r); err != nil {
		return Ranges{}, fmt.Errorf("load ranges: %s: %w", path, err)
	}
	return r, nil
}

// CompareRatios holds what happened per second, by "case/workload", against the ratios. The results are a table for
// people and one line for each ratio out of range: a ratio below Min, or a workload without a measurement.
func CompareRatios(ratios []Ratio, perSecond map[string]float64) (table string, broken []string) {
	var b strings.Builder
	w := tabwriter.NewWriter(&b, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "comparison\tours/s\tstock/s\tratio\tallowed\tmeasured before")
	for _, r := range ratios {
		ours, stock := perSecond[r.Ours], perSecond[r.Stock]
		if ours <= 0 || stock <= 0 {
			broken = append(broken, fmt.Sprintf("%s: %s = %.1f, %s = %.1f: a workload was not measured", r.Name, r.Ours, ours, r.Stock, stock))
			continue
		}
		allowed := "reported"
		if r.Min > 0 {
			allowed = fmt.Sprintf("≥ %.2f", r.Min)
		}
		fmt.Fprintf(w, "%s\t%.1f\t%.1f\t%.2f\t%s\t%s\n", r.Name, ours, stock, ours/stock, allowed, before(r.Measured))
		if ours/stock < r.Min {
			broken = append(broken, fmt.Sprintf("%s: ratio %.2f is below %.2f", r.Name, ours/stock, r.Min))
		}
	}
	_ = w.Flush() // writes to memory
	return b.String(), broken
}

// CompareCosts does the same for milliseconds per operation, by the name of the benchmark.
func CompareCosts(costs []Cost, milliseconds map[string]float64) (table string, broken []string) {
	var b strings.Builder
	w := tabwriter.NewWriter(&b, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "cost\tms\tallowed\tmeasured before")
	for _, c := range costs {
		got, ok := milliseconds[c.Benchmark]
		if !ok {
			broken = append(broken, fmt.Sprintf("%s: %s was not measured", c.Name, c.Benchmark))
			continue
		}
		fmt.Fprintf(w, "%s\t%.3g\t≤ %.3g\t%s\n", c.Name, got, c.MaxMilliseconds, before(c.Measured))
		if got > c.MaxMilliseconds {
			broken = append(broken, fmt.Sprintf("%s: %.3g ms is above %.3g ms", c.Name, got, c.MaxMilliseconds))
		}
	}
	_ = w.Flush() // writes to memory
	return b.String(), broken
}

// before shows an earlier value.
func before(measured float64) string {
	if measured == 0 {
		return "-"
	}
	return fmt.Sprintf("%.3g", measured)
}
