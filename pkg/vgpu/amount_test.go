package vgpu_test

import (
	"math"
	"math/big"
	"testing"

	"pgregory.net/rapid"

	"github.com/tandem-gpu/tandem/pkg/vgpu"
)

// Sums and differences are those of numbers without bounds, cut at the ends of 64 bits.
func TestSumsSaturate(t *testing.T) {
	number := rapid.OneOf(rapid.Int64(), rapid.SampledFrom([]int64{math.MinInt64, math.MinInt64 + 1, -1, 0, 1, math.MaxInt64 - 1, math.MaxInt64}))
	cut := func(x *big.Int) int64 {
		switch {
		case x.IsInt64():
			return x.Int64()
		case x.Sign() < 0:
			return math.MinInt64
		}
		return math.MaxInt64
	}
	rapid.Check(t, func(t *rapid.T) {
		a, b := number.Draw(t, "a"), number.Draw(t, "b")
		x, y := big.NewInt(a), big.NewInt(b)
		if got, want := vgpu.Sum(a, b), cut(new(big.Int).Add(x, y)); got != want {
			t.Errorf("%d + %d is %d, want %d", a, b, got, want)
		}
		if got, want := vgpu.Difference(a, b), cut(new(big.Int).Sub(x, y)); got != want {
			t.Errorf("%d - %d is %d, want %d", a, b, got, want)
		}
	})
}

func TestRoom(t *testing.T) {
	all := vgpu.Room{MilliCPU: math.MaxInt64, Memory: math.MaxInt64}
	some := vgpu.Room{MilliCPU: 1500, Memory: vgpu.GiB}
	for name, c := range map[string]struct{ got, want vgpu.Room }{
		"plus":       {some.Plus(vgpu.Room{MilliCPU: 500, Memory: 1}), vgpu.Room{MilliCPU: 2000, Memory: vgpu.GiB + 1}},
		"plus all":   {some.Plus(all), all},
		"minus":      {some.Minus(vgpu.Room{MilliCPU: 2000, Memory: 1}), vgpu.Room{Memory: vgpu.GiB - 1}},
		"minus debt": {all.Minus(vgpu.Room{MilliCPU: -1, Memory: -1}), all},
		"less":       {some.Less(vgpu.Room{MilliCPU: 2000, Memory: 1}), vgpu.Room{MilliCPU: -500, Memory: vgpu.GiB - 1}},
		"less all":   {vgpu.Room{MilliCPU: -2, Memory: -2}.Less(all), vgpu.Room{MilliCPU: math.MinInt64, Memory: math.MinInt64}},
	} {
		if c.got != c.want {
			t.Errorf("%s: %v, want %v", name, c.got, c.want)
		}
	}
}
