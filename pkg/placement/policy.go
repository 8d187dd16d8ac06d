package placement

import (
	"fmt"
	"slices"
	"strings"

	"github.com/tandem-gpu/tandem/pkg/fragmentation"
	"github.com/tandem-gpu/tandem/pkg/vgpu"
)

// Policy ranks the places that fit. The caller gets it from ByName, and keeps it; the zero value is packed.
type Policy struct {
	// Name as in ByName.
	Name string
	// rate rates what the pod leaves of a node, 0 to rateMax. Placement prefers the highest rate.
	rate func(v *view) int64
	// device rates the rest of a device, 0 to rateMax; placement prefers the highest. The function decides between
	// devices of one node with equal rates. nil stands for the first by index.
	device func(d *vgpu.Device, left vgpu.Use) int64
	// node rates the taken slots of a node, 0 to rateMax; placement prefers the highest. The function decides where
	// rate and links are equal. nil stands for the order of names.
	node func(taken, of vgpu.Slots) int64
	// usual returns the part of all usual requests that the policy uses; nil where it uses none.
	usual func(all *fragmentation.Mix) *fragmentation.Mix
	// fills says that the policy looks at what the usual requests leave of a node that they fill.
	fills bool
	// isRandom says that a hash of the seed and the pod chooses nodes and devices; rate is equal for all then.
	isRandom bool
	// byRun says that the rate depends on the pods that run on the node, beside what is free.
	byRun bool

	// neutral is the rate of a place that changes nothing, 0 where there is none. A milli-GPU that is lost changes the
	// rate by perMilli ÷ grain; 0 stands for 1.
	neutral, perMilli, grain int64

	neighbours *Neighbours
	mix        *fragmentation.Mix
	measure    fragmentation.Measure // of losses to the mix
	memo       *fragmentation.Memo
	seed       int64
}

// rateMax is the highest rate that a policy gives: rates are parts per million, of a device or a node for most policies.
const rateMax = 1_000_000

// perDevice is perMilli of policies whose rates are parts of a device or a node.
const perDevice = rateMax / 1000

// policies in the order of their names.
var policies = []Policy{bestFit, clustering, dotProd, fgd, packed, packing, random, spread, tandem}

// Policies returns the names that ByName knows, sorted.
func Policies() []string {
	names := make([]string, 0, len(policies))
	for i := range policies {
		names = append(names, policies[i].Name)
	}
	return names
}

// ByName returns the policy with a name of Policies. See With for what fgd, tandem and random need beside.
func ByName(name string) (Policy, error) {
	i := slices.IndexFunc(policies, func(p Policy) bool { return p.Name == name })
	if i < 0 {
		return Policy{}, fmt.Errorf("choose policy: unknown name %q, known are %s", name, strings.Join(Policies(), ", "))
	}
	return policies[i], nil
}

// With returns the policy for a mix of all requests that usually arrive, and a seed. The policies fgd and tandem use
// the mix, and rate like packed while it is empty. The policy random uses the seed. The others ignore both.
func (p Policy) With(all *fragmentation.Mix, seed int64) Policy {
	p.seed, p.mix, p.measure, p.memo = seed, nil, nil, nil
	if p.usual != nil && all != nil && all.Weight() > 0 {
		p.mix = p.usual(all)
		p.measure = p.mix
		if p.fills {
			p.measure = fragmentation.NewFills(p.mix)
		}
	}
	return p
}

// orDefault returns the policy, packed for the zero value and for a policy without the requests that it needs.
func (p Policy) orDefault() Policy {
	if p.rate == nil || p.usual != nil && p.mix == nil {
		plain := packed
		plain.neighbours = p.neighbours
		return plain
	}
	return p
}

// nodeRate rates the node by the slots that are taken.
func (p *Policy) nodeRate(n *vgpu.Node) int64 {
	if p.node == nil {
		return 0
	}
	return p.node(n.Taken())
}

// mean makes a rate of nodes from one of devices: the mean over the devices that the pod uses.
func mean(device func(d *vgpu.Device, left vgpu.Use) int64) func(*view) int64 {
	return func(v *view) int64 {
		sum, touched := int64(0), int64(0)
		for i := range v.left {
			if v.touched(i) {
				sum += device(&v.n.Devices()[i], v.left[i])
				touched++
			}
		}
		return sum / max(1, touched)
	}
}

// part returns a part of a whole in parts per million, rounded down. Example: 3 of 10 slots are 300000.
func part[T ~int64](amount, whole T) int64 {
	if whole <= 0 {
		return 0
	}
	if whole > 1<<40 { // for memory beyond a TiB this keeps the product within 64 bits
		amount, whole = amount>>20, whole>>20
	}
	return int64(amount) * rateMax / int64(whole)
}
