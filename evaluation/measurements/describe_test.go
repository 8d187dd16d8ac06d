package measurements

import (
	"fmt"
	"strings"
)

// describe writes measurements for people, a line for each thing in the file, without what is zero.
func describe(tr *File) string {
	var b strings.Builder
	fmt.Fprintln(&b, tr)
	for _, r := range tr.Rates {
		fmt.Fprintf(&b, "%d %s on %s, %d workers: together %v, spread %v", r.Line, r.App, r.Model, r.Workers, r.Together, r.Spread)
		if r.Set != "" {
			fmt.Fprintf(&b, ", set %s", r.Set)
		}
		fmt.Fprintln(&b)
	}
	for _, s := range tr.Steps {
		fmt.Fprintf(&b, "%d %s: %d nodes, %d workers, batch %d, time %v, sync %v\n", s.Line, s.Placement, s.Nodes, s.Workers, s.Batch, s.Time, s.Sync)
	}
	for _, e := range tr.Epochs {
		fmt.Fprintf(&b, "%d progress %v, square %v, variance %v\n", e.Line, e.Progress, e.Square, e.Variance)
	}
	for i := range tr.CoRuns {
		c := &tr.CoRuns[i]
		fmt.Fprintf(&b, "%d on %s: %s | %s", c.Line, c.GPU, describeRunner(&c.A), describeRunner(&c.B))
		if c.Memory > 0 {
			fmt.Fprintf(&b, ", %v", c.Memory)
		}
		if !c.Fits {
			fmt.Fprint(&b, ", does not fit")
		}
		if c.Set != "" {
			fmt.Fprintf(&b, ", set %s", c.Set)
		}
		fmt.Fprintln(&b)
	}
	for i := range tr.Solos {
		s := &tr.Solos[i]
		fmt.Fprintf(&b, "%d %s (%s, batch %d) on %v of %s: SM %.4g, bandwidth %.4g, L2 %.4g, memory %v, rate %.5g, latency %v\n",
			s.Line, s.Workload, s.Family, s.Batch, s.Share, s.GPU, s.SM, s.Bandwidth, s.L2, s.Memory, s.Rate, s.Latency)
	}
	for _, n := range tr.Networks {
		fmt.Fprintf(&b, "%+v\n", n)
	}
	for i := range tr.Servings {
		s := &tr.Servings[i]
		fmt.Fprintf(&b, "%d %s on %d slices, batch %d, %d processes: rate %.6g, latency %v\n", s.Line, s.Model, s.Slices, s.Batch, s.Processes, s.Rate, s.Latency)
	}
	for i := range tr.Deployed {
		d := &tr.Deployed[i]
		fmt.Fprintf(&b, "%d %s on %d slices from %d of GPU %d on node %d, batch %d, %d processes\n", d.Line, d.Model, d.Slices, d.Start, d.GPU, d.Node, d.Batch, d.Processes)
	}
	return b.String()
}

func describeRunner(r *CoRunner) string {
	return fmt.Sprintf("%s (%s) on %v at %.4g", r.Workload, r.Family, r.Share, r.Speed)
}
