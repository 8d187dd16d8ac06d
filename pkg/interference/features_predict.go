package interference

import (
	"math"

	"github.com/tandem-gpu/tandem/pkg/vgpu"
)

// Predictor predicts what training a network uses of a device from features of its graph. FittedPredictor returns the
// shipped one; `go run ./evaluation fit features` makes one from measurements.
type Predictor struct {
	// SM are the coefficients of UseTerms.
	SM [UseTerms]float64
	// Memory are the coefficients of MemoryTerms, in bytes.
	Memory [MemoryTerms]float64
	// Bandwidth times the square of SM is the part of the time in which training uses device memory.
	Bandwidth float64
	// Range of the networks in the fit of the coefficients.
	Range Range
	// SMError, BandwidthError and MemoryError (bytes) are standard errors within the range.
	SMError, BandwidthError, MemoryError float64
	// Widening is the increase of the standard error of SM for each factor of ten outside the range.
	Widening float64
}

// memoryWidening is the increase of the standard error of the memory, as a part of it, for each factor of ten outside
// the range. Convolutional networks are about four factors of ten outside (their activations, and their operations per
// parameter). Their memory is 1.5 to 3.1 times the prediction (decisions/0012). A smaller value would claim a precision
// without a measurement.
const memoryWidening = 0.35

// Estimate is a predicted profile with its standard errors.
type Estimate struct {
	Profile Profile
	// SMError, BandwidthError and MemoryError are standard errors of the fields of the profile. For SM and Bandwidth
	// they are at most maxUseError.
	SMError, BandwidthError float64
	MemoryError             vgpu.Bytes
	// Outside is how far the features lie outside the measured range, in factors of ten: see Range.Outside.
	Outside float64
}

// maxUseError is the standard deviation of a number that is 0 or 1 with equal chance.
const maxUseError = 0.5

// fillsDevice is the least SM of training that fills a device: ClassTraining.
const fillsDevice = 0.7

// maxPredicted bounds predicted memory, so that legal features never overflow.
const maxPredicted = 1 << 50

// Predict returns what training a network with the features uses of a device. Outside the measured range the profile is
// Guessed, its class unknown, its SM that of the nearest features within, and its errors grow with the distance. The
// error names a feature that no network has.
//
// The authors do not name the device. SM stands for a device like it, a current data-centre GPU.
func (p *Predictor) Predict(f Features) (Estimate, error) {
	if err := f.Validate(); err != nil {
		return Estimate{}, err
	}
	out := p.Range.Outside(&f)
	near := p.Range.clamp(&f)
	use, memory := near.UseTerms(), f.MemoryTerms()
	sm := min(max(dot(p.SM[:], use[:]), 0), 1)
	bytes := min(max(dot(p.Memory[:], memory[:]), 0), maxPredicted)
	g := Estimate{
		Profile: Profile{
			SM: sm, Bandwidth: min(max(p.Bandwidth*sm*sm, 0), 1), Memory: vgpu.Bytes(math.Ceil(bytes)), Guessed: out > 0,
		},
		Outside: out,
	}
	g.SMError = min(math.Hypot(p.SMError, p.Widening*out), maxUseError)
	// An error of SM moves the bandwidth by the slope of the square.
	g.BandwidthError = min(math.Hypot(p.BandwidthError, 2*p.Bandwidth*sm*g.SMError), maxUseError)
	g.MemoryError = vgpu.Bytes(math.Ceil(math.Hypot(p.MemoryError, memoryWidening*out*bytes)))
	switch {
	case out > 0:
	case sm >= fillsDevice:
		g.Profile.Class = ClassTraining
	default:
		g.Profile.Class = ClassLight
	}
	return g, nil
}

func dot(a, b []float64) float64 {
	sum := 0.0
	for i := range a {
		sum += a[i] * b[i]
	}
	return sum
}

// FittedPredictor returns the shipped predictor.
func FittedPredictor() Predictor { return fittedPredictor }
