package vgpu

import "testing"

// A host that is over its CPU takes pods that ask for no CPU, and no others.
func TestRoomWithin(t *testing.T) {
	for _, tc := range []struct {
		name      string
		want, has Room
		fits      bool
	}{
		{"all of it", Room{1000, GiB}, Room{1000, GiB}, true},
		{"a little more CPU", Room{1001, GiB}, Room{1000, GiB}, false},
		{"a little more memory", Room{1000, GiB + 1}, Room{1000, GiB}, false},
		{"nothing of a host that owes", Room{}, Room{-500, -1}, true},
		{"memory of a host that owes CPU", Room{0, GiB}, Room{-500, GiB}, true},
		{"CPU of a host that owes CPU", Room{1, 0}, Room{-500, GiB}, false},
	} {
		if got := tc.want.Within(tc.has); got != tc.fits {
			t.Errorf("%s: %v", tc.name, got)
		}
	}
}
