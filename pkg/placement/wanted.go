package placement

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/tandem-gpu/tandem/pkg/vgpu"
)

// Wanted is a rate that a pod wants.
type Wanted struct {
	// Profile names the workload.
	Profile string
	// Rate above 0.
	Rate Rate
	// Least is the slots in the request of the pod's container. The pod gets at least these, whatever the rate.
	Least vgpu.Slots
	// Models that the pod may use, empty for any.
	Models []string
}

// Variants returns the models on which a share promises the rate, with that share and its cost, the cheapest first,
// then by name; or why there is none. Offers say which models the cluster has, and how many devices of one a node has
// at most. Without any offer all models count: the cluster's devices are unknown yet.
//
// The cost is that of the slots that the share takes, rounded up. If nodes divide one model differently, the highest
// cost counts.
func (t *Rates) Variants(w Wanted, offers []vgpu.Offer) ([]vgpu.Variant, *Unreachable) {
	miss := &Unreachable{Wanted: w}
	if t == nil {
		return nil, miss
	}
	miss.Profiles = t.profiles
	var list []vgpu.Variant
	for i := range t.curves {
		c := &t.curves[i]
		if c.profile != w.Profile {
			continue
		}
		miss.Known = append(miss.Known, c.model)
		if len(w.Models) > 0 && !slices.Contains(w.Models, c.model) {
			continue
		}
		if v, ok := t.variant(c, w, offers, miss); ok {
			list = append(list, v)
		}
	}
	if len(list) == 0 {
		for i := range offers {
			miss.Present = append(miss.Present, offers[i].Device.Model)
		}
		slices.Sort(miss.Present)
		miss.Present = slices.Compact(miss.Present)
		return nil, miss
	}
	slices.SortFunc(list, func(a, b vgpu.Variant) int {
		return cmp.Or(cmp.Compare(a.Cost, b.Cost), cmp.Compare(a.Model, b.Model))
	})
	return list[:min(len(list), vgpu.MaxVariants)], nil
}

// variant returns the variant of one curve, or records in miss what the model reaches.
func (t *Rates) variant(c *curve, w Wanted, offers []vgpu.Offer, miss *Unreachable) (vgpu.Variant, bool) {
	v := vgpu.Variant{Model: c.model}
	most := mostOf(offers, c.model)
	if most == 0 {
		return v, false
	}
	if best := c.at(most); best < w.Rate {
		miss.note(c.model, best, min(most, c.end().Share))
		return v, false
	}
	v.Compute = c.share(w.Rate)
	v.Cost = priceOf(t.prices[c.model], v.Compute, vgpu.WholeGPU)
	for i := range offers {
		if d := &offers[i].Device; d.Model == c.model {
			v.Cost = max(v.Cost, priceOf(t.prices[c.model], max(w.Least, vgpu.SlotsOf(v.Compute, d.Slots)), d.Slots))
		}
	}
	return v, true
}

// mostOf returns the most devices of a model that a node has: 0 where there are none, the largest number that Rates
// allows where offers are empty.
func mostOf(offers []vgpu.Offer, model string) vgpu.MilliGPU {
	if len(offers) == 0 {
		return maxShare
	}
	most := 0
	for i := range offers {
		if offers[i].Device.Model == model {
			most = max(most, offers[i].Most)
		}
	}
	return vgpu.MilliGPU(most) * vgpu.WholeGPU
}

// priceOf returns the price of k of n parts of a device that costs price, rounded up.
func priceOf[T ~int64](price int64, k, n T) int64 {
	whole, rest := int64(k/n), int64(k%n)
	return price*whole + (price*rest+int64(n)-1)/int64(n)
}

// Unreachable says why no GPU model reaches a wanted rate. The value is an answer, not an error.
type Unreachable struct {
	Wanted
	// Profiles are the workloads with throughputs, Known the models of this workload's, Present those of the cluster: all
	// sorted.
	Profiles, Known, Present []string
	// Best is the highest rate that the cluster's models reach, on Share of Model; 0 where no such model has a curve.
	Best  Rate
	Model string
	Share vgpu.MilliGPU
}

// note keeps the highest rate, of equal ones the first by name, since the curves are in that order.
func (u *Unreachable) note(model string, best Rate, share vgpu.MilliGPU) {
	if best > u.Best {
		u.Best, u.Model, u.Share = best, model, share
	}
}

// String describes the miss with the known numbers: "profile bert reaches at most 320 (on a whole NVIDIA-A100), the pod
// asks for 500". The text has no percent sign, since the scheduler uses the texts of events as formats.
func (u *Unreachable) String() string {
	switch {
	case len(u.Known) == 0:
		return fmt.Sprintf("profile %q has no throughputs; %s", u.Profile, listed("profiles with throughputs are", u.Profiles))
	case u.Best > 0:
		return fmt.Sprintf("profile %s reaches at most %v (on %s), the pod asks for %v", u.Profile, u.Best, u.best(), u.Rate)
	}
	text := fmt.Sprintf("profile %s has throughputs for %s", u.Profile, strings.Join(u.Known, ", "))
	if len(u.Models) > 0 {
		text += "; the pod may only use " + strings.Join(u.Models, " or ")
	}
	return text + "; " + listed("the cluster has", u.Present)
}

// best describes the share that reaches the highest rate.
func (u *Unreachable) best() string {
	switch {
	case u.Share == vgpu.WholeGPU:
		return "a whole " + u.Model
	case u.Share > vgpu.WholeGPU:
		return fmt.Sprintf("%d whole %s", u.Share/vgpu.WholeGPU, u.Model)
	}
	return strings.TrimSuffix(u.Share.String(), "%") + " percent of one " + u.Model
}

// listed writes a list, "none" for an empty one.
func listed(what string, names []string) string {
	if len(names) == 0 {
		return what + " none"
	}
	return what + " " + strings.Join(names, ", ")
}

// String writes the rate in its unit: "120", "0.25".
func (r Rate) String() string {
	const unit = 1_000_000
	text := strconv.FormatInt(int64(r/unit), 10)
	if part := r % unit; part != 0 {
		text += "." + strings.TrimRight(fmt.Sprintf("%06d", int64(part)), "0")
	}
	return text
}
