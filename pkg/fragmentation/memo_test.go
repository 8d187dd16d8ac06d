package fragmentation_test

import (
	"testing"

	"github.com/tandem-gpu/tandem/pkg/fragmentation"
)

// TestMemo asks one memo about nodes that differ in one thing each.
func TestMemo(t *testing.T) {
	m := mixOf(t, "slots=5 cpu=2 memory=4Gi models=A100 weight=2\nslots=3 weight=1\nslots=20 weight=1")
	memo := fragmentation.NewMemo(m)
	tests := []struct {
		name, node string
		known      int
	}{
		{"the first", "n1 cpu=2 memory=8Gi: g0 A100 [a:6] | g1 A100", 1},
		{"the same under another name", "n2 cpu=2 memory=8Gi: g0 A100 [b:6] | g1 A100", 1},
		{"the same in another order", "n1 cpu=2 memory=8Gi: g0 A100 | g1 A100 [a:6]", 1},
		{"a full device more", "n1 cpu=2 memory=8Gi: g0 A100 | g1 A100 [a:6] | g2 A100 [c:10]", 1},
		{"more CPU", "n1 cpu=3 memory=8Gi: g0 A100 [a:6] | g1 A100", 2},
		{"less memory", "n1 cpu=2 memory=3Gi: g0 A100 [a:6] | g1 A100", 3},
		{"less free", "n1 cpu=2 memory=8Gi: g0 A100 [a:7] | g1 A100", 4},
		{"a device more", "n1 cpu=2 memory=8Gi: g0 A100 [a:6] | g1 A100 | g2 A100", 5},
		{"another model", "n1 cpu=2 memory=8Gi: g0 V100 [a:6] | g1 V100", 6},
		{"two models: not remembered", "n1 cpu=2 memory=8Gi: g0 A100 [a:6] | g1 V100", 6},
		{"two models, free the other way round", "n1 cpu=2 memory=8Gi: g0 A100 | g1 V100 [a:6]", 6},
		{"no devices: not remembered", "n1 cpu=2 memory=8Gi:", 6},
		{"nine devices: not remembered", "n1 cpu=2 memory=8Gi: g0 A100 [a:6] | g1 A100 | g2 A100 | g3 A100 | g4 A100 | g5 A100 | g6 A100 | g7 A100 | g8 A100", 6},
	}
	for _, tc := range tests {
		t.Run(tc.name, func(t *testing.T) {
			n := drawn(t, tc.node)
			for range 2 {
				if got, want := memo.Of(n, freeOf(n), n.Room()), m.Of(n, freeOf(n), n.Room()); got != want {
					t.Errorf("loss %+v, by the mix %+v", got, want)
				}
			}
			if memo.Known() != tc.known {
				t.Errorf("%d states are remembered, want %d", memo.Known(), tc.known)
			}
		})
	}
}
