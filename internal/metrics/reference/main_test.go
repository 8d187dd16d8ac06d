package main

import (
	"testing"

	"github.com/tandem-gpu/tandem/internal/metrics"
)

// Each label of the tables is explained, and none of the explanations is left over.
func TestLabelsAreExplained(t *testing.T) {
	used := map[string]bool{}
	for _, s := range sections() {
		for _, f := range s.Families {
			for _, l := range f.Labels {
				used[l] = true
			}
		}
	}
	for _, l := range metrics.Labels() {
		if !used[l.Name] {
			t.Errorf("label %s is explained and not used", l.Name)
		}
		delete(used, l.Name)
	}
	if len(used) > 0 {
		t.Errorf("labels %v are not explained", used)
	}
}

// Each row says its unit, its range and its meaning. Histograms have buckets, and only they have.
func TestRowsAreComplete(t *testing.T) {
	for _, s := range sections() {
		for _, f := range s.Families {
			if f.Unit == "" || f.Range == "" || f.Help == "" {
				t.Errorf("%s has the unit %q, the range %q and the meaning %q: want all three", f.Name, f.Unit, f.Range, f.Help)
			}
			if (f.Type == metrics.Histogram) != (len(f.Buckets) > 0) {
				t.Errorf("%s is a %s with %d buckets", f.Name, f.Type, len(f.Buckets))
			}
		}
	}
}
