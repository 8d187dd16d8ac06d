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
	return b.String()
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
