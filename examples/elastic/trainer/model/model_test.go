package model

import (
	"math"
	"slices"
	"testing"

	"pgregory.net/rapid"
)

var small = Spec{Seed: 3, Width: 16, Batch: 24, Slices: 6, Rate: 0.05}

// mean returns the loss of a step and its gradient, slice by slice in an order.
func mean(n *Network, params []float32, step int, order []int) (float64, []int32) {
	sum, loss := make([]int32, len(params)), int64(0)
	for _, slice := range order {
		loss += n.AddGradient(params, step, slice, sum)
	}
	return float64(loss) / LossUnit, sum
}

func inOrder(n int) []int {
	order := make([]int, n)
	for i := range order {
		order[i] = i
	}
	return order
}

// trained returns parameters after some steps, where no gradient is zero for a reason of its own.
func trained(s Spec, steps int) (params []float32, losses []float64) {
	n, params := NewNetwork(s), s.Initial()
	for step := range steps {
		loss, sum := mean(n, params, step, inOrder(s.Slices))
		s.Descend(params, sum)
		losses = append(losses, loss)
	}
	return params, losses
}

// The gradient is the slope of the loss, along the gradient and along single parameters.
func TestGradientIsTheSlope(t *testing.T) {
	params, _ := trained(small, 20)
	n := NewNetwork(small)
	_, sum := mean(n, params, 50, inOrder(small.Slices))
	along := func(direction func(i int) float64) (measured, computed float64) {
		const h = 1e-2
		at := func(h float64) float64 {
			moved := slices.Clone(params)
			for i := range moved {
				moved[i] += float32(h * direction(i))
			}
			loss, _ := mean(n, moved, 50, inOrder(small.Slices))
			return loss
		}
		for i, g := range sum {
			computed += float64(g) / Unit * direction(i)
		}
		return (at(h) - at(-h)) / (2 * h), computed
	}
	length := 0.0
	for _, g := range sum {
		length += float64(g) / Unit * float64(g) / Unit
	}
	length = math.Sqrt(length)
	if m, c := along(func(i int) float64 { return float64(sum[i]) / Unit / length }); math.Abs(m-c) > 0.02*math.Abs(c) {
		t.Errorf("the slope along the gradient is %v, computed %v", m, c)
	}
	for _, l := range small.layers() {
		for _, p := range []int{l.offset + l.in/2*l.out + l.out/2, l.offset + l.in*l.out} { // a weight and a bias
			m, c := along(func(i int) float64 {
				if i == p {
					return 1
				}
				return 0
			})
			if math.Abs(m-c) > 0.02*math.Abs(c)+1e-3 {
				t.Errorf("the slope along parameter %d is %v, computed %v", p, m, c)
			}
		}
	}
}

// The sum of a step is the same to the last bit, however its slices are shared and in whatever order they come.
func TestSumDoesNotDependOnTheOrder(t *testing.T) {
	params, _ := trained(small, 3)
	wantLoss, want := mean(NewNetwork(small), params, 3, inOrder(small.Slices))
	rapid.Check(t, func(t *rapid.T) {
		order := rapid.Permutation(inOrder(small.Slices)).Draw(t, "order")
		cut := rapid.IntRange(0, len(order)).Draw(t, "cut")
		one, sum := mean(NewNetwork(small), params, 3, order[:cut])
		other, more := mean(NewNetwork(small), params, 3, order[cut:])
		for i := range sum {
			sum[i] += more[i]
		}
		if !slices.Equal(sum, want) || one+other != wantLoss {
			t.Fatalf("order %v cut at %d: the sum differs, or the loss %v from %v", order, cut, one+other, wantLoss)
		}
	})
}

// The first loss is that of a guess, and it falls, in the network of the flags' defaults too.
func TestLossFalls(t *testing.T) {
	for _, c := range []struct {
		spec  Spec
		steps int
		most  float64
	}{
		{small, 200, 1},
		{Spec{Seed: 1, Width: 896, Batch: 48, Slices: 12, Rate: 0.02}, 30, 1.6}, // as the trainer's defaults
	} {
		_, losses := trained(c.spec, c.steps)
		if math.Abs(losses[0]-math.Log(Classes)) > 1e-6 || losses[c.steps-1] > c.most {
			t.Errorf("%+v: the loss falls from %v to %v, want from %v to %v at most", c.spec, losses[0], losses[c.steps-1], math.Log(Classes), c.most)
		}
	}
}

// Gradients that are out of all bounds are clipped, so that the sum of all slices does not overflow.
func TestClipped(t *testing.T) {
	params := small.Initial()
	for i := range params {
		params[i] *= 1e6
	}
	l := small.layers()[2]
	for i := range l.weights(params) {
		l.weights(params)[i] = float32(i%7-3) * 1e6
	}
	_, sum := mean(NewNetwork(small), params, 0, inOrder(small.Slices))
	limit := int32(math.MaxInt32 / small.Slices * small.Slices)
	if top, least := slices.Max(sum), slices.Min(sum); top > limit || least < -limit || top < limit/2 && least > -limit/2 {
		t.Errorf("the gradients are from %d to %d, want some near the limit %d and none beyond", least, top, limit)
	}
}

// Samples depend on the seed and on nothing else; no two slices have the same ones.
func TestSamples(t *testing.T) {
	take := func(seed uint64, step, slice int) []float32 {
		s := small
		s.Seed = seed
		inputs := make([]float32, 4*Inputs)
		NewData(s).slice(step, slice, inputs, make([]int, 4))
		return inputs
	}
	first := take(1, 2, 3)
	if !slices.Equal(first, take(1, 2, 3)) {
		t.Error("the same slice has other samples the second time")
	}
	for _, other := range [][]float32{take(2, 2, 3), take(1, 3, 3), take(1, 2, 4)} {
		if slices.Equal(first, other) {
			t.Error("two slices have the same samples")
		}
	}
}
