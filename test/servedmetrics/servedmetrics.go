// Package servedmetrics checks that a program serves the metrics of its table, and so of docs/reference/metrics.md.
package servedmetrics

import (
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/tandem-gpu/tandem/internal/metrics"
	"github.com/tandem-gpu/tandem/test/must"
)

// Alpha is what Kubernetes' registries put before the help of a metric.
const Alpha = "[ALPHA] "

// Check compares what a registry serves with a table, whose help is served with a text before it: the names, types, labels and helps.
// Each family has a series.
func Check(t testing.TB, served prometheus.Gatherer, before string, table []metrics.Family) {
	t.Helper()
	families, err := served.Gather()
	must.OK(t, err)
	got := map[string]string{}
	for _, f := range families {
		var labels []string
		for _, l := range f.Metric[0].Label {
			labels = append(labels, l.GetName())
		}
		got[f.GetName()] = strings.ToLower(f.GetType().String()) + " " + strings.Join(labels, ",") + " " + f.GetHelp()
	}
	want := map[string]string{}
	for _, f := range table {
		want[f.Name] = string(f.Type) + " " + strings.Join(f.Labels, ",") + " " + before + f.Help
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("metrics (-table +served):\n%s", diff)
	}
	if problems, err := testutil.GatherAndLint(served); err != nil || len(problems) > 0 {
		t.Errorf("lint: %v %v", problems, err)
	}
}

// Sorted returns a table with the labels of each family in the order in which a registry serves them.
func Sorted(table []metrics.Family) []metrics.Family {
	table = slices.Clone(table)
	for i := range table {
		table[i].Labels = slices.Sorted(slices.Values(table[i].Labels))
	}
	return table
}
