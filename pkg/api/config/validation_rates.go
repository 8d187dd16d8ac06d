package config

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"unicode"

	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// Bounds of ModelCost.Cost and Throughput.Rate. They keep sums and products of millionths within 64 bits.
const (
	MaxCost = 1_000_000
	MaxRate = 1_000_000_000_000
)

// maxScale bounds the power of ten of a quantity: one with an exponent of nine digits takes minutes to compare.
const maxScale = 30

// Bounds of the other amounts.
const (
	maxModels = 64     // as many as a request can have variants
	maxShare  = 12_800 // percent: the devices that the GPUNode schema admits on a node
	maxSlots  = 128_000
	maxCores  = 1_000_000
	maxHost   = 1 << 50 // bytes: 1Pi
	maxWeight = 1_000_000
)

const (
	legalCost  = "must be a decimal above 0, at most 1M, with up to six decimals"
	legalRate  = "must be a decimal above 0, at most 1T, with up to six decimals"
	legalShare = "must be from 1 to 100 percent of a device, or a multiple of 100 up to 12800 for whole devices"
	legalCPU   = "must be from 0 to 1M, in whole thousandths"
	legalHost  = "must be from 0 to 1Pi, in whole bytes"
)

// Millionths returns an amount in millionths, and whether it is above 0, at most most, and whole in that unit.
func Millionths(q resource.Quantity, most int64) (int64, bool) {
	amount := q.DeepCopy()
	if scale := amount.AsDec().Scale(); scale < -maxScale || scale > maxScale {
		return 0, false
	}
	if q.Sign() <= 0 || q.CmpInt64(most) > 0 {
		return 0, false
	}
	value := q.ScaledValue(resource.Micro) // rounds up, so that a fraction shows as a difference
	return value, q.Cmp(*resource.NewScaledQuantity(value, resource.Micro)) == 0
}

func validateBytes(q resource.Quantity, path *field.Path) field.ErrorList {
	if q.Sign() < 0 || q.CmpInt64(maxHost) > 0 || q.CmpInt64(q.Value()) != 0 {
		return field.ErrorList{field.Invalid(path, q.String(), legalHost)}
	}
	return nil
}

func validateTypical(list []TypicalRequest, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	for i := range list {
		r, at := &list[i], path.Index(i)
		if cores, ok := Millionths(r.CPU, maxCores); !r.CPU.IsZero() && (!ok || cores%1000 != 0) {
			errs = append(errs, field.Invalid(at.Child("cpu"), r.CPU.String(), legalCPU))
		}
		errs = append(errs, validateBytes(r.Memory, at.Child("memory"))...)
		errs = append(errs, validateBytes(r.VGPUMemory, at.Child("vgpuMemory"))...)
		if r.VGPU < 0 || r.VGPU > maxSlots {
			errs = append(errs, field.Invalid(at.Child("vgpu"), r.VGPU, "must be a number of slots from 0 to 128000"))
		}
		if r.Weight < 1 || r.Weight > maxWeight {
			errs = append(errs, field.Invalid(at.Child("weight"), r.Weight, "must be from 1 to 1000000"))
		}
		for k, model := range r.Models {
			errs = append(errs, validateModel(model, at.Child("models").Index(k))...)
			if slices.Contains(r.Models[:k], model) {
				errs = append(errs, field.Duplicate(at.Child("models").Index(k), model))
			}
		}
	}
	return errs
}

func validateCosts(costs []ModelCost, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	if len(costs) > maxModels {
		errs = append(errs, field.TooMany(path, len(costs), maxModels))
	}
	for i := range costs {
		c, at := &costs[i], path.Index(i)
		errs = append(errs, validateModel(c.Model, at.Child("model"))...)
		if slices.ContainsFunc(costs[:i], func(o ModelCost) bool { return o.Model == c.Model }) {
			errs = append(errs, field.Duplicate(at.Child("model"), c.Model))
		}
		if _, ok := Millionths(c.Cost, MaxCost); !ok {
			errs = append(errs, field.Invalid(at.Child("cost"), c.Cost.String(), legalCost))
		}
	}
	return errs
}

func validateThroughputs(args *GPUShareArgs, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	for i := range args.Throughputs {
		t, at := &args.Throughputs[i], path.Index(i)
		if why := validation.IsValidLabelValue(t.Profile); t.Profile == "" || len(why) > 0 {
			errs = append(errs, field.Invalid(at.Child("profile"), t.Profile, "must be a label value of 1 to 63 letters, digits, '-', '_' and '.'"))
		}
		if t.Model == "" {
			errs = append(errs, field.Required(at.Child("model"), "a product name as in GPUNode"))
		} else if !slices.ContainsFunc(args.ModelCosts, func(c ModelCost) bool { return c.Model == t.Model }) {
			errs = append(errs, field.Invalid(at.Child("model"), t.Model, "must have an entry in modelCosts"))
		}
		if t.Share < 1 || t.Share > maxShare || t.Share > 100 && t.Share%100 != 0 {
			errs = append(errs, field.Invalid(at.Child("share"), t.Share, legalShare))
		}
		if _, ok := Millionths(t.Rate, MaxRate); !ok {
			errs = append(errs, field.Invalid(at.Child("rate"), t.Rate.String(), legalRate))
		}
	}
	return append(errs, validateCurves(args.Throughputs, path)...)
}

// falls reports whether the rate of a point is below that of the one before. Illegal rates are told elsewhere.
func falls(before, t *Throughput) bool {
	a, okBefore := Millionths(before.Rate, MaxRate)
	b, ok := Millionths(t.Rate, MaxRate)
	return okBefore && ok && b < a
}

// validateCurves looks at each point beside the next smaller share of its profile and model.
func validateCurves(points []Throughput, path *field.Path) field.ErrorList {
	order := make([]int, len(points))
	for i := range order {
		order[i] = i
	}
	curve := func(a, b int) int {
		return cmp.Or(cmp.Compare(points[a].Profile, points[b].Profile), cmp.Compare(points[a].Model, points[b].Model))
	}
	slices.SortStableFunc(order, func(a, b int) int {
		return cmp.Or(curve(a, b), cmp.Compare(points[a].Share, points[b].Share))
	})
	var errs field.ErrorList
	for k := 1; k < len(order); k++ {
		i, before := order[k], &points[order[k-1]]
		switch t := &points[i]; {
		case curve(order[k-1], i) != 0:
		case t.Share == before.Share:
			errs = append(errs, field.Duplicate(path.Index(i).Child("share"), t.Share))
		case falls(before, t):
			errs = append(errs, field.Invalid(path.Index(i).Child("rate"), t.Rate.String(),
				fmt.Sprintf("must not be below %s, the rate of share %d", before.Rate.String(), before.Share)))
		}
	}
	return errs
}

// maxModelName is the length of a model in a GPUNode.
const maxModelName = 63

// validateModel refuses a name that no GPUNode can have.
func validateModel(model string, path *field.Path) field.ErrorList {
	switch {
	case model == "":
		return field.ErrorList{field.Required(path, "a product name as in GPUNode")}
	case len(model) > maxModelName || strings.ContainsFunc(model, unicode.IsSpace):
		return field.ErrorList{field.Invalid(path, model,
			"no GPUNode has such a model: must be a product name with dashes for blanks, of at most 63 bytes, for example NVIDIA-A100-SXM4-40GB")}
	}
	return nil
}
