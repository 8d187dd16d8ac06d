package vgpu

import (
	"fmt"
	"slices"
)

// MaxVariants bounds the variants of a request, so that the order of their costs is a small number. A larger bound
// leaves a score fewer digits for what follows the cost. A cluster has some ten models of GPU.
const MaxVariants = 64

// maxCompute bounds the compute of a variant, a thousand devices: far more than a node has.
const maxCompute = 1000 * WholeGPU

// Variant is a GPU model that a request may use, with what the pod needs of it and the price of that. Ten slots of one
// model do not do the same work as ten slots of another.
type Variant struct {
	// Model is the product name of the devices.
	Model string
	// Compute is the least that the container needs of such devices: up to WholeGPU a part of one device, above it
	// whole devices. SlotsOf rounds its slots up. The container gets at least the slots of its request, and exactly
	// these where Compute is 0.
	Compute MilliGPU
	// Cost is the price of that share, in any unit: comparisons are between variants of one request.
	Cost int64
}

// SlotsOf returns the fewest slots that give an amount of compute on devices of n slots. Examples: 260 are 2 of 4
// slots, 3 of 10; 1100 are two whole devices, 20 of 10.
func SlotsOf(m MilliGPU, n Slots) Slots {
	if m > WholeGPU {
		return Slots((m+WholeGPU-1)/WholeGPU) * n
	}
	return (Slots(m)*n + Slots(WholeGPU) - 1) / Slots(WholeGPU)
}

// validateVariants returns an error for variants that contradict each other or the containers.
func (r *Request) validateVariants() error {
	if len(r.Variants) > MaxVariants {
		return fmt.Errorf("%d variants, at most %d are legal", len(r.Variants), MaxVariants)
	}
	for i := range r.Variants {
		v := &r.Variants[i]
		switch {
		case v.Model == "":
			return fmt.Errorf("variant %d names no model", i)
		case slices.ContainsFunc(r.Variants[:i], func(o Variant) bool { return o.Model == v.Model }):
			return fmt.Errorf("model %s has two variants", v.Model)
		case v.Compute < 0 || v.Compute > maxCompute:
			return fmt.Errorf("the variant of model %s needs %d thousandths of a device, from 0 to %d are legal", v.Model, v.Compute, maxCompute)
		case v.Cost < 0:
			return fmt.Errorf("the variant of model %s costs %d", v.Model, v.Cost)
		case (v.Compute > 0 || v.Cost > 0) && len(r.Containers) > 1:
			return fmt.Errorf("the variant of model %s has a share or a cost, which is for a pod of one container; %d ask for slots",
				v.Model, len(r.Containers))
		}
	}
	return nil
}

// variant returns the variant for devices of a model, nil where there is none.
func (r *Request) variant(model string) *Variant {
	for i := range r.Variants {
		if r.Variants[i].Model == model {
			return &r.Variants[i]
		}
	}
	return nil
}

// on returns the request of a container for devices like d, and whether it may use them.
func (r *Request) on(c int, d *Device) (ContainerRequest, bool) {
	want := r.Containers[c]
	if len(r.Variants) == 0 {
		return want, true
	}
	v := r.variant(d.Model)
	if v == nil {
		return want, false
	}
	want.Slots = max(want.Slots, SlotsOf(v.Compute, d.Slots))
	return want, true
}

// On returns the share that container c of the request gets on devices like d, or why it gets none there: as
// ContainerRequest.On for the slots of the variant. A device of a model without a variant gives none, unless the
// request has no variants at all.
func (r *Request) On(c int, d *Device) (Share, *Refusal) {
	want, allowed := r.on(c, d)
	if !allowed {
		f := r.notAllowed([]string{d.Model})
		f.Container, f.Model = want.Name, d.Model
		return Share{}, f
	}
	return want.On(d, r.ComputeLimit, r.MemoryLimit)
}

// ShareOn is On without the reason, for callers with many devices: it allocates nothing.
func (r *Request) ShareOn(c int, d *Device) (Share, bool) {
	want, allowed := r.on(c, d)
	if !allowed {
		return Share{}, false
	}
	return want.ShareOn(d, r.ComputeLimit, r.MemoryLimit)
}

// Cost returns the price of the share on devices of a model, 0 where the request has no variant for it.
func (r *Request) Cost(model string) int64 {
	if v := r.variant(model); v != nil {
		return v.Cost
	}
	return 0
}

// CostRank returns how many variants cost less than that of a model: 0 for the cheapest, less than MaxVariants. The
// rank orders devices for one request as Cost does.
func (r *Request) CostRank(model string) int {
	cost, rank := r.Cost(model), 0
	for i := range r.Variants {
		if r.Variants[i].Cost < cost {
			rank++
		}
	}
	return rank
}

// notAllowed refuses devices of models without a variant.
func (r *Request) notAllowed(present []string) *Refusal {
	allowed := make([]string, 0, len(r.Variants))
	for i := range r.Variants {
		allowed = append(allowed, r.Variants[i].Model)
	}
	slices.Sort(allowed)
	return &Refusal{Reason: NoAllowedModel, Allowed: allowed, Present: present}
}

// Models returns the models of the node's devices, sorted, each once.
func (n *Node) Models() []string {
	models := make([]string, 0, len(n.devices))
	for i := range n.devices {
		models = append(models, n.devices[i].Model)
	}
	slices.Sort(models)
	return slices.Compact(models)
}
