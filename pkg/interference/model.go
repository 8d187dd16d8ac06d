package interference

import (
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/tandem-gpu/tandem/pkg/vgpu"
)

// Model predicts the speeds of the tenants of one device. ByName returns it, and the caller keeps it; the zero value is
// none.
type Model struct {
	// Name as in ByName.
	Name string
	// Coefficients as shipped, or as Fit found them; their meaning differs by model.
	Coefficients []float64
	// form says how to use the coefficients. A function would be slower: arguments of a function that is unknown at
	// compile time go to the heap, and the scheduler predicts for every device that a pod might get.
	form form
	// learns says that the model uses Traits, or measured pairs.
	learns bool
	// spread is the standard error of its speeds as a part of them, as shipped: see docs/experiments.md.
	spread float64
	table  *Table
}

// Fit computed the shipped coefficients on all pairs of Lucid (Hu et al., ASPLOS 2023; RTX 3090; 1,012 speeds, without
// VGG, whose speed alone is wrong). The coefficients for tenants with SMs of their own are from iGniter (Xu et al.,
// TPDS 2023; V100 under MPS; 600 speeds). The coefficients of hinge and linear-hinge are an earlier fit on Lucid.
// docs/experiments.md has their errors on other workloads; a test fits them again.

// form is a formula.
type form uint8

const (
	noHarm form = iota
	fixed
	bySum
	byHinge
	byLinearHinge
	byProduct
)

// models by name.
var models = []Model{constant, product, hinge, linearHinge, none, rank1, table, utilSum}

// Models returns the names that ByName knows, sorted.
func Models() []string {
	names := make([]string, 0, len(models))
	for i := range models {
		names = append(names, models[i].Name)
	}
	return names
}

// ByName returns the model with a name of Models, with its shipped coefficients.
func ByName(name string) (Model, error) {
	i := slices.IndexFunc(models, func(m Model) bool { return m.Name == name })
	if i < 0 {
		return Model{}, fmt.Errorf("choose interference model: unknown name %q, known are %s", name, strings.Join(Models(), ", "))
	}
	return models[i], nil
}

// Learns reports whether observed co-runs change what the model predicts.
func (m *Model) Learns() bool { return m.learns }

// Predict returns the speed of each tenant of a device beside the others, in their order. Predict appends to out[:0]
// and allocates nothing where that has room. A tenant without neighbours has speed 1.
func (m *Model) Predict(on []Tenant, out []Prediction) []Prediction {
	out = out[:0]
	for range on {
		out = append(out, Prediction{Speed: 1})
	}
	if m.form == noHarm || len(on) < 2 {
		return out
	}
	if m.table != nil && m.table.predict(on, out) {
		return out
	}
	switch m.form {
	case fixed:
		predictFixed(m.Coefficients, out)
	case bySum:
		predictSum(m.Coefficients, on, out)
	case byHinge:
		predictHinge(m.Coefficients, on, out)
	case byLinearHinge:
		predictLinearHinge(m.Coefficients, on, out)
	default:
		predictProduct(m.Coefficients, on, out)
	}
	for i := range out {
		out[i].Speed = max(slowest, out[i].Speed)
		if out[i].Error == 0 {
			out[i].Error = m.spread
		}
	}
	return out
}

// slowest is the least predicted speed: some models are straight lines and would cross zero.
const slowest = .02

// Fits reports whether the memory that workloads hold is at most that of the device. The limit is hard: the last
// workload would fail, not slow down. Speeds do not show it.
func Fits(profiles []*Profile, device vgpu.Bytes) bool {
	left := device
	for _, p := range profiles {
		if p.Memory > left {
			return false
		}
		left -= p.Memory
	}
	return true
}

// none predicts no harm.
var none = Model{Name: "none"}

// constant predicts the same speed in every neighbourhood.
//
//	speed = c0
var constant = Model{Name: "constant", Coefficients: []float64{.935}, spread: .13, form: fixed}

func predictFixed(c []float64, out []Prediction) {
	for i := range out {
		out[i].Speed = c[0]
	}
}

// utilSum uses the sum of the SM utilisations, as Horus does (Yeung et al., IEEE TPDS 2022).
//
//	speed = c0 − c1·ΣSM
var utilSum = Model{Name: "util-sum", Coefficients: []float64{1.057, .137}, spread: .11, form: bySum}

func predictSum(c []float64, on []Tenant, out []Prediction) {
	speed := c[0] - c[1]*total(on).sm
	for i := range out {
		out[i].Speed = speed
	}
}

// hinge predicts harm where the SM utilisations add up to more than a device.
//
//	speed = c0 − c1·max(0, ΣSM − 1)
var hinge = Model{Name: "hinge", Coefficients: []float64{.985, .371}, spread: .11, form: byHinge}

func predictHinge(c []float64, on []Tenant, out []Prediction) {
	speed := c[0] - c[1]*max(0, total(on).sm-1)
	for i := range out {
		out[i].Speed = speed
	}
}

// linearHinge adds to the hinge what the tenant and its neighbours use of the SMs and of the memory bandwidth.
//
//	speed = c0 − c1·SM − c2·SM' + c3·B + c4·B' − c5·max(0, ΣSM − 1) − c6·max(0, ΣB − 1)
//
// SM and B are the tenant's use, SM' and B' that of all its neighbours.
var linearHinge = Model{
	Name: "linear-hinge", Coefficients: []float64{1.033, .083, .097, .080, .020, .279, .059}, spread: .11, form: byLinearHinge,
}

func predictLinearHinge(c []float64, on []Tenant, out []Prediction) {
	sum := total(on)
	over := c[5]*max(0, sum.sm-1) + c[6]*max(0, sum.bandwidth-1)
	for i := range out {
		t := &on[i]
		out[i].Speed = c[0] - c[1]*t.SM - c[2]*(sum.sm-t.SM) + c[3]*t.Bandwidth + c[4]*(sum.bandwidth-t.Bandwidth) - over
	}
}

// sums are the sums of what tenants use.
type sums struct{ sm, bandwidth, caps float64 }

func total(on []Tenant) sums {
	var s sums
	for i := range on {
		s.sm += on[i].SM
		s.bandwidth += on[i].Bandwidth
		s.caps += on[i].Cap
	}
	return s
}

// overlap returns how far the tenants may use the same SMs. The result is 0 where their caps leave each its own SMs, 1
// where the caps add up to two devices or more.
func (s sums) overlap() float64 { return min(1, max(0, s.caps-1)) }

// rootProduct returns the geometric mean of two parts.
func rootProduct(a, b float64) float64 { return math.Sqrt(a * b) }
