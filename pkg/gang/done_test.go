package gang

import "testing"

func TestLeastOfDone(t *testing.T) {
	for _, c := range []struct {
		name     string
		done     Done
		declared int
		want     int
	}{
		{"no member is done", Done{ToCome: 1}, 4, 4},
		{"three of four are done", Done{Succeeded: 3, ToCome: -1}, 4, 1},
		{"more are done than must run", Done{Succeeded: 5, ToCome: -1}, 4, 1},
		{"the last one of a Job", Done{Succeeded: 3, ToCome: 1}, 4, 1},
		{"the last wave of a Job of 6 completions", Done{Succeeded: 4, ToCome: 2}, 4, 2},
		{"a full wave follows", Done{Succeeded: 4, ToCome: 8}, 4, 4},
		{"the Job expects none, and one is there", Done{Succeeded: 4, ToCome: 0}, 4, 1},
	} {
		if got := c.done.Least(c.declared); got != c.want {
			t.Errorf("%s: %d must run, want %d", c.name, got, c.want)
		}
	}
}
