package model

import (
	"math"

	"gonum.org/v1/gonum/blas"
	"gonum.org/v1/gonum/blas/blas32"
)

// Unit is the number of units in 1 of a gradient.
const Unit = 1 << 28

// LossUnit is the number of units in 1 of a loss.
const LossUnit = 1 << 32

// Network computes gradients. It is for one caller at a time.
type Network struct {
	spec   Spec
	data   *Data
	layers []layer
	rows   int // samples of a slice
	// values are the inputs, and the outputs of each layer; errors are the gradients of the loss by the outputs.
	values, errors [][]float32
	classes        []int
	gradient       []float32
}

// NewNetwork returns the network of a training.
func NewNetwork(s Spec) *Network {
	n := &Network{spec: s, data: NewData(s), layers: s.layers(), rows: s.Batch / s.Slices}
	n.values = [][]float32{make([]float32, n.rows*Inputs)}
	for _, l := range n.layers {
		n.values = append(n.values, make([]float32, n.rows*l.out))
		n.errors = append(n.errors, make([]float32, n.rows*l.out))
	}
	n.classes = make([]int, n.rows)
	n.gradient = make([]float32, s.Params())
	return n
}

// AddGradient adds the gradient of a slice of a step to a sum, and returns the loss of the slice. Both are parts of the means
// over the whole batch, in Unit and LossUnit. The sum must have room for all slices of a step, as int32 has.
func (n *Network) AddGradient(params []float32, step, slice int, sum []int32) int64 {
	n.data.slice(step, slice, n.values[0], n.classes)
	for i, l := range n.layers {
		n.forward(params, i, l)
	}
	loss := n.loss()
	for i := len(n.layers) - 1; i >= 0; i-- {
		n.backward(params, i, n.layers[i])
	}
	limit := float64(math.MaxInt32 / n.spec.Slices)
	for i, g := range n.gradient {
		sum[i] += int32(math.RoundToEven(max(-limit, min(limit, float64(g)*Unit))))
	}
	return int64(math.RoundToEven(loss / float64(n.spec.Batch) * LossUnit))
}

// forward computes the outputs of a layer.
func (n *Network) forward(params []float32, i int, l layer) {
	out := n.values[i+1]
	for row := range n.rows {
		copy(out[row*l.out:], l.biases(params))
	}
	blas32.Gemm(blas.NoTrans, blas.NoTrans, 1, matrix(n.rows, l.in, n.values[i]), matrix(l.in, l.out, l.weights(params)), 1, matrix(n.rows, l.out, out))
	if i == len(n.layers)-1 {
		return
	}
	for j, v := range out {
		out[j] = max(0, v)
	}
}

// loss returns the sum of the cross entropies of the slice, and puts their gradients by the last outputs into errors. These
// are parts of the mean over the batch.
func (n *Network) loss() float64 {
	sum, last := 0.0, len(n.layers)-1
	for row, class := range n.classes {
		out := n.values[last+1][row*Classes : (row+1)*Classes]
		errs := n.errors[last][row*Classes : (row+1)*Classes]
		top := out[0]
		for _, v := range out {
			top = max(top, v)
		}
		total := 0.0
		for _, v := range out {
			total += math.Exp(float64(v - top))
		}
		for j, v := range out {
			errs[j] = float32(math.Exp(float64(v-top)) / total / float64(n.spec.Batch))
		}
		errs[class] -= float32(1 / float64(n.spec.Batch))
		sum += math.Log(total) - float64(out[class]-top)
	}
	return sum
}

// backward computes the gradients by the parameters of a layer and by its inputs.
func (n *Network) backward(params []float32, i int, l layer) {
	in, errs := matrix(n.rows, l.in, n.values[i]), matrix(n.rows, l.out, n.errors[i])
	blas32.Gemm(blas.Trans, blas.NoTrans, 1, in, errs, 0, matrix(l.in, l.out, l.weights(n.gradient)))
	biases := l.biases(n.gradient)
	clear(biases)
	for row := range n.rows {
		for j, e := range n.errors[i][row*l.out : (row+1)*l.out] {
			biases[j] += e
		}
	}
	if i == 0 {
		return
	}
	before := matrix(n.rows, l.in, n.errors[i-1])
	blas32.Gemm(blas.NoTrans, blas.Trans, 1, errs, matrix(l.in, l.out, l.weights(params)), 0, before)
	for j, v := range n.values[i] {
		if v == 0 {
			before.Data[j] = 0
		}
	}
}

func matrix(rows, columns int, data []float32) blas32.General {
	return blas32.General{Rows: rows, Cols: columns, Stride: columns, Data: data}
}

// Descend changes a range of the parameters by the sum of the gradients of all slices of a step.
func (s Spec) Descend(params []float32, sum []int32) {
	rate := float32(s.Rate / Unit)
	for i, g := range sum {
		// The conversion keeps a compiler from one rounding less, which some processors offer.
		params[i] -= float32(rate * float32(g))
	}
}
