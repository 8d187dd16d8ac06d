package fragmentation_test

import (
	"fmt"
	"testing"

	"github.com/tandem-gpu/tandem/internal/testkit"
	"github.com/tandem-gpu/tandem/pkg/fragmentation"
	"github.com/tandem-gpu/tandem/pkg/vgpu"
	"github.com/tandem-gpu/tandem/test/must"
)

// BenchmarkFills: what one state of a node of 8 devices costs, with 200 kinds of requests.
func BenchmarkFills(b *testing.B) {
	kinds := make([]fragmentation.Kind, 0, 200)
	for i := range 200 {
		kinds = append(kinds, fragmentation.Kind{MilliCPU: int64(1000 + 250*(i%17)), Memory: vgpu.Bytes(i%13) * vgpu.GiB, Slots: vgpu.Slots(1 + i%10), Weight: int64(1 + i%29)})
	}
	m, err := fragmentation.NewMix(kinds)
	must.OK(b, err)
	fills := fragmentation.NewFills(m.Expecting(2))
	for _, taken := range []int{0, 5, 8, 9} {
		node := "n1 cpu=96 memory=700Gi:"
		for g := range 8 {
			if g > 0 {
				node += " |"
			}
			node += fmt.Sprintf(" g%d A100", g)
			if taken > 0 {
				node += fmt.Sprintf(" [p%d:%d]", g, taken)
			}
		}
		b.Run(fmt.Sprintf("taken=%d", taken), func(b *testing.B) {
			n := nodeOf(b, node)
			free := freeOf(n)
			b.Run("fills", func(b *testing.B) {
				for b.Loop() {
					fills.Of(n, free, n.Room())
				}
			})
			b.Run("mix", func(b *testing.B) {
				for b.Loop() {
					m.Of(n, free, n.Room())
				}
			})
		})
	}
}

func nodeOf(tb testing.TB, text string) *vgpu.Node {
	tb.Helper()
	c, err := testkit.Parse(text)
	must.OK(tb, err)
	return c.Nodes()[0]
}
