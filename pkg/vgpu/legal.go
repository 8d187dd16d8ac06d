package vgpu

import (
	"cmp"
	"slices"
)

// Offer is what the nodes of a cluster have of one shape of device.
type Offer struct {
	// Device of the shape. Its identity, health and links have no meaning here.
	Device Device
	// Most is the largest number of such devices on one node.
	Most int
}

// Offers returns what the nodes have, by model, slots and memory: the input of LegalAnywhere.
func Offers(nodes []*Node) []Offer {
	most := map[Shape]*Offer{}
	for _, n := range nodes {
		here := map[Shape]int{}
		for i := range n.devices {
			shape := n.devices[i].Shape()
			here[shape]++
			if most[shape] == nil {
				most[shape] = &Offer{Device: Device{Model: shape.Model, Slots: shape.Slots, Memory: shape.Memory, Healthy: true}}
			}
			most[shape].Most = max(most[shape].Most, here[shape])
		}
	}
	offers := make([]Offer, 0, len(most))
	for _, o := range most {
		offers = append(offers, *o)
	}
	slices.SortFunc(offers, func(a, b Offer) int {
		return cmp.Or(cmp.Compare(a.Device.Model, b.Device.Model), cmp.Compare(a.Device.Slots, b.Device.Slots),
			cmp.Compare(a.Device.Memory, b.Device.Memory))
	})
	return offers
}

// LegalAnywhere returns nil when each container is legal on at least one of the offered devices, so that some node may
// take the pod. Later checks skip devices where a container is illegal, node by node. Without any offer there is no
// refusal: the cluster's devices are unknown yet. Offers of models that the pod may not use do not count.
//
// Otherwise it returns one refusal, of the first container that is illegal on all devices. Its reason is the one, over
// the devices, that comes closest to legal, with the nearest legal values over all devices.
func LegalAnywhere(offers []Offer, r *Request) *Refusal {
	offers, refusal := allowedOf(offers, r)
	if refusal != nil {
		return refusal
	}
	for i := range r.Containers {
		var nearest *Refusal
		legal := len(offers) == 0
		for k := range offers {
			_, refusal := r.On(i, &offers[k].Device)
			if refusal == nil {
				legal = true
				break
			}
			nearest = nearerLegal(nearest, refusal)
		}
		if legal {
			continue
		}
		if nearest.Reason == IllegalSlots {
			nearest.Legal = nearestOffered(offers, r.Containers[i].Slots)
		}
		return nearest
	}
	return nil
}

// allowedOf returns the offers of models that the request may use, or a refusal where there are only others.
func allowedOf(offers []Offer, r *Request) ([]Offer, *Refusal) {
	if len(r.Variants) == 0 || len(offers) == 0 {
		return offers, nil
	}
	var allowed []Offer
	present := make([]string, 0, len(offers))
	for i := range offers {
		if r.variant(offers[i].Device.Model) != nil {
			allowed = append(allowed, offers[i])
		}
		present = append(present, offers[i].Device.Model)
	}
	if len(allowed) > 0 {
		return allowed, nil
	}
	slices.Sort(present)
	return nil, r.notAllowed(slices.Compact(present))
}

// nearestOffered returns the nearest legal values below and above k, which is illegal on all offers. Values that one
// node could hold come first. If a side has none, it returns what is legal on a node with more devices.
//
// Example: 13 slots, nodes with two devices of 10 slots or two of 4. The legal values 10 and 20 and 8 leave 10 and 20;
// 12 and 16 would take three and four devices.
func nearestOffered(offers []Offer, k Slots) []Slots {
	var offered, legal []Slots
	for i := range offers {
		n, most := offers[i].Device.Slots, Slots(offers[i].Most)*offers[i].Device.Slots
		for _, v := range nearestSlots(k, n) {
			legal = append(legal, v)
			offered = append(offered, min(v, most))
		}
	}
	near, wider := nearestTo(offered, k), nearestTo(legal, k)
	if top := wider[len(wider)-1]; top > k && near[len(near)-1] < k {
		near = append(near, top)
	}
	return near
}

// checkOrder orders the reasons like the checks of a share: a later one is closer to legal.
var checkOrder = []Reason{
	IllegalSlots, MemoryAboveDevice, ComputeLimitBelowRequest, MemoryLimitBelowRequest, LimitAboveDevice,
}

// nearerLegal returns the refusal that is closer to legal.
func nearerLegal(a, b *Refusal) *Refusal {
	if a == nil {
		return b
	}
	if a.Reason == IllegalSlots && b.Reason == IllegalSlots {
		both := *a
		if both.Model != b.Model {
			both.Model = ""
		}
		return &both
	}
	order := cmp.Or(
		cmp.Compare(slices.Index(checkOrder, a.Reason), slices.Index(checkOrder, b.Reason)),
		cmp.Compare(b.shortfall(), a.shortfall()),
		cmp.Compare(b.Model, a.Model),
	)
	if order < 0 {
		return b
	}
	return a
}

// nearestTo returns the largest legal value below k and the smallest one above.
func nearestTo(legal []Slots, k Slots) []Slots {
	var near []Slots
	slices.Sort(legal)
	if i := slices.IndexFunc(legal, func(v Slots) bool { return v > k }); i >= 0 {
		near = append(near, legal[i])
		legal = legal[:i]
	}
	if len(legal) > 0 {
		near = slices.Insert(near, 0, legal[len(legal)-1])
	}
	return near
}

// shortfall is the distance between a request and the most that is possible.
func (r *Refusal) shortfall() int64 { return max(r.Want-r.Best, r.Best-r.Want) }
