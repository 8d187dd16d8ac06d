package reports

import (
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/tandem-gpu/tandem/pkg/shadow"
)

// The forms of a report.
const (
	Text = "text"
	JSON = "json"
)

// Forms returns the forms of a report.
func Forms() []string { return []string{Text, JSON} }

// Write writes a report in a form. The name is that of the other scheduler.
func Write(w io.Writer, r *shadow.Report, name, form string) error {
	switch form {
	case Text:
		return writeText(w, r, name)
	case JSON:
		e := json.NewEncoder(w)
		e.SetIndent("", "  ")
		return e.Encode(r)
	}
	return fmt.Errorf("write report: unknown form %q, legal are %s", form, strings.Join(Forms(), ", "))
}

// row is a line of the table.
type row struct {
	title string
	of    func(f *shadow.Figures) string
}

var rows = []row{
	{"waiting, mean", func(f *shadow.Figures) string { return wait(f, f.Waiting.MeanMillis) }},
	{"waiting, half of the pods at most", func(f *shadow.Figures) string { return wait(f, f.Waiting.P50Millis) }},
	{"waiting, 99 % of the pods at most", func(f *shadow.Figures) string { return wait(f, f.Waiting.P99Millis) }},
	{"pods that wait now", func(f *shadow.Figures) string { return fmt.Sprint(f.Waiting.Still) }},
	{"GPUs that had a pod", func(f *shadow.Figures) string { return fmt.Sprint(f.Touched) }},
	{"GPUs with a pod, on average", func(f *shadow.Figures) string { return fmt.Sprintf("%.2f", f.InUse) }},
	{"GPU that pods had, on average", func(f *shadow.Figures) string { return fmt.Sprintf("%.1f %%", f.Allocated) }},
	{"free GPU that usual requests cannot use", func(f *shadow.Figures) string { return fmt.Sprintf("%.1f %%", f.Fragmented) }},
	{"gangs that ran", func(f *shadow.Figures) string { return fmt.Sprint(f.GangsWhole) }},
	{"GPU hours held by gangs that could not run", func(f *shadow.Figures) string { return fmt.Sprintf("%.2f", float64(f.PartialGPUSeconds)/3600) }},
	{"predicted slowdown by neighbours, mean", slowdown},
}

// wait writes a time of waiting, "unknown" without pods.
func wait(f *shadow.Figures, millis int64) string {
	if f.Waiting.Pods == 0 {
		return "unknown"
	}
	return (time.Duration(millis) * time.Millisecond).Round(time.Second).String()
}

func slowdown(f *shadow.Figures) string {
	s := &f.Slowdown
	switch {
	case s.KnownPercent == 0:
		return "unknown"
	case s.Why != "":
		return fmt.Sprintf("%.3f (%.0f %% known)", s.Mean, s.KnownPercent)
	}
	return fmt.Sprintf("%.3f", s.Mean)
}

func writeText(w io.Writer, r *shadow.Report, name string) error {
	var b strings.Builder
	fmt.Fprintf(&b, "Shadow of %s from %s to %s (%v, periods: %d)\n", name, r.From.UTC().Format(time.RFC3339), r.To.UTC().Format(time.RFC3339), r.To.Sub(r.From), r.Periods)
	if r.Dropped > 0 {
		fmt.Fprintf(&b, "Earlier periods that are no longer in the figures: %d\n", r.Dropped)
	}
	fmt.Fprintf(&b, "GPUs: %d. Pods that came: %d, as shares with Tandem: %d. Gangs that came: %d.\n\n", r.GPUs, r.Pods, r.Shared, r.Gangs)
	table := tabwriter.NewWriter(&b, 0, 0, 3, ' ', 0)
	fmt.Fprintf(table, "\t%s\tTandem\n", name)
	for _, each := range rows {
		fmt.Fprintf(table, "%s\t%s\t%s\n", each.title, each.of(&r.Other), each.of(&r.Tandem))
	}
	if err := table.Flush(); err != nil {
		return fmt.Errorf("write report: %w", err)
	}
	fmt.Fprintf(&b, "\nPods that %s has started and Tandem would not have: %d; the other way round: %d.\n", name, r.OnlyOther, r.OnlyTandem)
	for _, e := range r.Examples {
		fmt.Fprintf(&b, "  %s\n", e)
	}
	for _, why := range reasons(r) {
		fmt.Fprintf(&b, "\nUnknown: %s", why)
	}
	_, err := io.WriteString(w, strings.TrimRight(b.String(), "\n")+"\n")
	return err
}

// reasons says what is unknown and why.
func reasons(r *shadow.Report) []string {
	all := make([]string, 0, len(r.Unknown)+2)
	for _, u := range r.Unknown {
		all = append(all, fmt.Sprintf("%s: %s.", u.What, u.Why))
	}
	for _, each := range []struct {
		of string
		s  *shadow.Slowdown
	}{{"the other scheduler", &r.Other.Slowdown}, {"Tandem", &r.Tandem.Slowdown}} {
		if each.s.Why != "" {
			all = append(all, fmt.Sprintf("the slowdown with %s, for %.0f %% of the pods' time: %s.", each.of, 100-each.s.KnownPercent, each.s.Why))
		}
	}
	return all
}
