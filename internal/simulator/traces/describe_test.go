package traces

import (
	"fmt"
	"strings"
)

// describe writes a trace for people, a line for each thing in it, without what is zero.
func describe(tr *Trace) string {
	var b strings.Builder
	fmt.Fprintln(&b, tr)
	for i := range tr.Hosts {
		h := &tr.Hosts[i]
		fmt.Fprintf(&b, "%d %s: %v, %d %s\n", h.Line, h.Name, h.Room, h.Devices, h.Model)
	}
	for i := range tr.Jobs {
		fmt.Fprintln(&b, describeJob(&tr.Jobs[i]))
	}
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

func describeJob(j *Job) string {
	words := []string{fmt.Sprintf("%d %s:", j.Line, j.Name)}
	add := func(format string, value any) {
		if s := fmt.Sprint(value); s != "" && s != "0" && s != "0s" && s != "[]" && s != "0m 0" && s != "0%" {
			words = append(words, fmt.Sprintf(format, value))
		}
	}
	add("app=%v", j.App)
	add("tenant=%v", j.Tenant)
	add("class=%v", j.Class)
	add("priority=%v", j.Priority)
	add("arrive=%v", j.Arrive)
	add("duration=%v", j.Duration)
	add("workers=%v", j.Workers)
	add("devices=%v", j.Devices)
	add("compute=%v", j.Compute)
	if j.DeviceMemory > 0 {
		add("memory=%v", j.DeviceMemory)
	}
	add("host=%v", j.Host)
	add("models=%v", j.Models)
	add("steps=%v", j.Steps)
	add("batch=%v", j.Batch)
	add("step=%v", j.StepTime)
	return strings.Join(words, " ")
}
