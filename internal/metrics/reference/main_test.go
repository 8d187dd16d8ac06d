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
