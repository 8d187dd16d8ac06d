package model

import (
	"fmt"
	"math"
)

// Inputs is the number of inputs of the network, Classes that of the classes of its samples.
const (
	Inputs  = 256
	Classes = 10
)

// Bounds of the fields of Spec. A wider network would not fit into a message.
const (
	minWidth, maxWidth = 8, 2048
	maxBatch           = 4096
	maxRate            = 10.0
)

// Spec describes a training; the same Spec gives the same parameters after the same number of steps.
type Spec struct {
	// Seed draws the first parameters and the samples.
	Seed uint64 `json:"seed"`
	// Width is the number of neurons of each hidden layer.
	Width int `json:"width"`
	// Batch is the number of samples of a step, Slices that of slices; Batch is a multiple of it.
	Batch  int `json:"batch"`
	Slices int `json:"slices"`
	// Rate is the step size of the descent.
	Rate float64 `json:"rate"`
}

// Validate returns an error that names the flag of the field and its legal values.
func (s Spec) Validate() error {
	switch {
	case s.Width < minWidth || s.Width > maxWidth:
		return fmt.Errorf("--width: %d is not from %d to %d", s.Width, minWidth, maxWidth)
	case s.Batch < 1 || s.Batch > maxBatch:
		return fmt.Errorf("--batch: %d is not from 1 to %d", s.Batch, maxBatch)
	case s.Slices < 1 || s.Batch%s.Slices != 0:
		return fmt.Errorf("--slices: %d is not a divisor of the batch of %d samples", s.Slices, s.Batch)
	case !(s.Rate > 0 && s.Rate <= maxRate):
		return fmt.Errorf("--rate: %v is not above 0 and at most %v", s.Rate, maxRate)
	}
	return nil
}

// Params returns the number of parameters of the network.
func (s Spec) Params() int {
	n := 0
	for _, l := range s.layers() {
		n += l.size()
	}
	return n
}

// layer is a fully connected layer. Its weights begin at an offset of the parameters, row by row of an input each, and its
// biases follow them.
type layer struct{ offset, in, out int }

func (l layer) size() int { return (l.in + 1) * l.out }

func (l layer) weights(params []float32) []float32 { return params[l.offset : l.offset+l.in*l.out] }

func (l layer) biases(params []float32) []float32 {
	return params[l.offset+l.in*l.out : l.offset+l.size()]
}

// layers returns the layers from the inputs to the classes.
func (s Spec) layers() []layer {
	sizes := []int{Inputs, s.Width, s.Width, Classes}
	layers, offset := make([]layer, len(sizes)-1), 0
	for i := range layers {
		layers[i] = layer{offset: offset, in: sizes[i], out: sizes[i+1]}
		offset += layers[i].size()
	}
	return layers
}

// Initial returns the parameters before the first step: He's uniform distribution for the weights of hidden layers, and 0
// for all else. So the first loss is that of a guess, the logarithm of Classes.
func (s Spec) Initial() []float32 {
	params := make([]float32, 0, s.Params())
	for _, l := range s.layers() {
		bound := math.Sqrt(6 / float64(l.in))
		if l.out == Classes {
			bound = 0
		}
		for i := range l.in * l.out {
			params = append(params, float32(bound*(2*unit(s.Seed, uint64(l.offset+i))-1)))
		}
		params = append(params, make([]float32, l.out)...)
	}
	return params
}

// unit returns the number from 0 to before 1 that the seed has at an index, by SplitMix64 (Steele et al., OOPSLA 2014).
func unit(seed, index uint64) float64 {
	z := seed + (index+1)*0x9e3779b97f4a7c15
	z = (z ^ z>>30) * 0xbf58476d1ce4e5b9
	z = (z ^ z>>27) * 0x94d049bb133111eb
	return float64((z^z>>31)>>11) / (1 << 53)
}
