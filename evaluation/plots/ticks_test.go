package plots

import (
	"strings"
	"testing"
)

func TestTicks(t *testing.T) {
	for _, tc := range []struct {
		from, to float64
		want     string
	}{
		{0, 130, "0 20 40 60 80 100 120"},
		{0, 100, "0 20 40 60 80 100"},
		{0, 99, "0 10 20 30 40 50 60 70 80 90"},
		{0, 1.7, "0 0.2 0.4 0.6 0.8 1 1.2 1.4 1.6"},
		{0, 27, "0 5 10 15 20 25"},
		{-3, 7, "-2 0 2 4 6"},
	} {
		var labels []string
		for _, tick := range ticks(tc.from, tc.to) {
			labels = append(labels, tick.Label)
		}
		if got := strings.Join(labels, " "); got != tc.want {
			t.Errorf("%v to %v: %s, want %s", tc.from, tc.to, got, tc.want)
		}
	}
}
