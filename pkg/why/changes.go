package why

import (
	"fmt"
	"maps"
	"slices"

	"github.com/tandem-gpu/tandem/pkg/snapshot"
	"github.com/tandem-gpu/tandem/pkg/vgpu"
)

// changes tries each change alone, and returns those that help.
func (q *question) changes() ([]Change, error) {
	all := []Change{}
	for _, try := range []func() (*Change, error){
		q.lessMemory, q.asGang, q.fewerSlots, q.lessHost, q.anyModel, q.fewerMembers,
		q.podsLeave, q.podsEnd, q.podsLikelyEnd, q.holdsEnd, q.devicesRecover, q.nodesReturn,
	} {
		c, err := try()
		if err != nil {
			return nil, err
		}
		if c == nil {
			continue
		}
		c.Places = places(c.request, c.assigns)
		all = append(all, *c)
	}
	return all, nil
}

// largest returns the container that asks for the most by a measure, the first of equal ones.
func largest[T ~int64](r *vgpu.Request, measure func(c *vgpu.ContainerRequest) T) int {
	at := 0
	for i := range r.Containers {
		if measure(&r.Containers[i]) > measure(&r.Containers[at]) {
			at = i
		}
	}
	return at
}

// with returns the requests with another container.
func with(requests []vgpu.Request, change func(r *vgpu.Request)) []vgpu.Request {
	all := slices.Clone(requests)
	for i := range all {
		all[i].Containers, all[i].Variants = slices.Clone(all[i].Containers), slices.Clone(all[i].Variants)
		change(&all[i])
	}
	return all
}

// lessMemory finds the most memory of whole GiB that fits, below what the container asks for. Less memory fits wherever more does.
func (q *question) lessMemory() (*Change, error) {
	first := &q.requests[0]
	if len(first.Containers) == 0 {
		return nil, nil
	}
	at := largest(first, q.memoryOf)
	own := q.memoriesAt(at)
	ask := func(gib int64) []vgpu.Request {
		less := with(q.requests, func(*vgpu.Request) {})
		for i := range less {
			if at < len(less[i].Containers) {
				less[i].Containers[at].Memory = min(own[i], vgpu.Bytes(gib)*vgpu.GiB)
			}
		}
		return less
	}
	c, gib, err := q.most(LessMemory, int64((own[0]-1)/vgpu.GiB), ask)
	if c != nil {
		c.Memory = vgpu.Bytes(gib) * vgpu.GiB
	}
	return c, err
}

// most finds the largest amount, from 1 on, with which the pods fit: ask returns their requests with an amount. Less fits wherever
// more does.
func (q *question) most(kind Kind, most int64, ask func(amount int64) []vgpu.Request) (found *Change, amount int64, err error) {
	if q.gang == nil {
		if amount = q.mostOfOne(most, ask); amount == 0 {
			return nil, 0, nil
		}
		found, err = q.attempt(kind, ask(amount))
		return found, amount, err
	}
	for least := int64(1); least <= most; {
		k := most - (most-least)/2
		c, err := q.attempt(kind, ask(k))
		if err != nil {
			return nil, 0, err
		}
		if c == nil {
			most = k - 1
			continue
		}
		found, amount, least = c, k, k+1
	}
	return found, amount, nil
}

// mostOfOne is most for a single pod: it asks each node whether it beats the best so far. 0 stands for no node.
func (q *question) mostOfOne(most int64, ask func(amount int64) []vgpu.Request) (best int64) {
	if most < 1 {
		return 0
	}
	next := ask(1)
	for _, n := range q.nodes {
		if best == most || !q.fits(n, &next[0]) {
			continue
		}
		for least, highest := best+1, most; least <= highest; {
			k := highest - (highest-least)/2
			if r := ask(k); q.fits(n, &r[0]) {
				best, least = k, k+1
			} else {
				highest = k - 1
			}
		}
		next = ask(best + 1)
	}
	return best
}

// memoriesAt returns what the containers at a position ask for, 0 for pods without one there.
func (q *question) memoriesAt(at int) []vgpu.Bytes {
	own := make([]vgpu.Bytes, len(q.requests))
	for i := range q.requests {
		r := &q.requests[i]
		switch {
		case at >= len(r.Containers):
		case i > 0 && alike(r, &q.requests[i-1]):
			own[i] = own[i-1]
		default:
			own[i] = q.memoryOf(&r.Containers[at])
		}
	}
	return own
}

// memoryOf returns what a container asks for. Memory in proportion to the slots is that on the largest device.
func (q *question) memoryOf(c *vgpu.ContainerRequest) vgpu.Bytes {
	most := c.Memory
	if most > 0 {
		return most
	}
	for _, n := range q.nodes {
		for i := range n.Devices() {
			if i > 0 && n.Shape(i) == n.Shape(i-1) {
				continue
			}
			if share, ok := c.ShareOn(&n.Devices()[i], 0, 0); ok {
				most = max(most, share.Memory*vgpu.Bytes(share.Devices))
			}
		}
	}
	return most
}

// attempt returns a change of the requests where the pods fit then.
func (q *question) attempt(kind Kind, requests []vgpu.Request) (*Change, error) {
	assigned, err := q.try(q.nodes, requests)
	if err != nil || assigned == nil {
		return nil, err
	}
	return &Change{Kind: kind, request: requests, assigns: assigned}, nil
}

// fewerSlots finds the most slots that fit, below what the container asks for. The legal numbers have gaps above the slots of a
// device, so each number there is tried. Below, where each device takes a part, fewer slots fit wherever more do.
func (q *question) fewerSlots() (*Change, error) {
	first := &q.requests[0]
	if len(first.Containers) == 0 {
		return nil, nil
	}
	at := largest(first, func(c *vgpu.ContainerRequest) vgpu.Slots { return c.Slots })
	ask := func(k int64) []vgpu.Request {
		return with(q.requests, func(r *vgpu.Request) {
			if at < len(r.Containers) {
				r.Containers[at].Slots = min(vgpu.Slots(k), r.Containers[at].Slots)
			}
		})
	}
	k := int64(first.Containers[at].Slots - 1)
	for legal, part := q.legalSlots(); k > part; k-- {
		if !legal(k) {
			continue
		}
		c, err := q.attempt(FewerSlots, ask(k))
		if err != nil {
			return nil, err
		}
		if c != nil {
			c.Slots = vgpu.Slots(k)
			return c, nil
		}
	}
	c, k, err := q.most(FewerSlots, k, ask)
	if c != nil {
		c.Slots = vgpu.Slots(k)
	}
	return c, err
}

// asGang tries a gang of members with one whole device each in place of a single pod that asks for several: its devices need not be on one node.
func (q *question) asGang() (*Change, error) {
	first := &q.requests[0]
	if q.gang != nil || len(first.Containers) != 1 {
		return nil, nil
	}
	sizes := map[vgpu.Slots]bool{}
	for _, n := range q.nodes {
		for i := range n.Devices() {
			sizes[n.Devices()[i].Slots] = true
		}
	}
	for _, size := range slices.Backward(slices.Sorted(maps.Keys(sizes))) {
		whole := &first.Containers[0]
		members := whole.Slots / size
		if members < 2 || whole.Slots%size != 0 || members > mostMembers {
			continue
		}
		group := *q
		group.gang, group.min, group.requests = &snapshot.GangName{}, int(members), nil
		for i := range members {
			r := *first
			r.UID, r.Pod = vgpu.UID(fmt.Sprintf("%s-%d", first.UID, i)), fmt.Sprintf("%s-%d", first.Pod, i)
			r.Host = vgpu.Room{MilliCPU: first.Host.MilliCPU / int64(members), Memory: first.Host.Memory / vgpu.Bytes(members)}
			r.Containers = []vgpu.ContainerRequest{*whole}
			r.Containers[0].Slots, r.Containers[0].Memory = size, whole.Memory/vgpu.Bytes(members)
			group.requests = append(group.requests, r)
		}
		if c, err := group.attempt(AsGang, group.requests); c != nil || err != nil {
			if c != nil {
				c.Members, c.Slots = int(members), size
			}
			return c, err
		}
	}
	return nil, nil
}

// mostMembers bounds the gangs that asGang tries: more devices than a large node has.
const mostMembers = 128

// legalSlots returns a function that reports whether some device takes a number of slots, or whole devices do, and the number up to
// which each device takes a part. If a model needs some compute, the pod gets its slots by that, and any number may be legal.
func (q *question) legalSlots() (legal func(k int64) bool, part int64) {
	of := map[int64]bool{}
	for _, n := range q.nodes {
		for i := range n.Devices() {
			of[int64(n.Devices()[i].Slots)] = true
		}
	}
	sizes := slices.Sorted(maps.Keys(of))
	if len(sizes) > 0 {
		part = sizes[0]
	}
	if slices.ContainsFunc(q.requests[0].Variants, func(v vgpu.Variant) bool { return v.Compute > 0 }) {
		return func(int64) bool { return true }, part
	}
	return func(k int64) bool {
		return slices.ContainsFunc(sizes, func(n int64) bool { return k <= n || k%n == 0 })
	}, part
}

// anyModel tries the pods on all GPU models, where they restrict them.
func (q *question) anyModel() (*Change, error) {
	if len(q.requests[0].Variants) == 0 {
		return nil, nil
	}
	c, err := q.attempt(AnyModel, with(q.requests, func(r *vgpu.Request) { r.Variants = nil }))
	if c == nil {
		return nil, err
	}
	models := map[string]bool{}
	for _, n := range q.nodes {
		for i := range c.assigns {
			if c.assigns[i].Node != n.Name() {
				continue
			}
			for _, container := range c.assigns[i].Containers {
				for _, id := range container.Devices {
					models[n.Devices()[n.Index(id)].Model] = true
				}
			}
		}
	}
	c.Models = slices.Sorted(maps.Keys(models))
	return c, nil
}

// fewerMembers finds how many members of a gang have room.
func (q *question) fewerMembers() (*Change, error) {
	if q.gang == nil {
		return nil, nil
	}
	smaller := *q
	var found *Change
	for least, most := 1, q.min-1; least <= most; {
		smaller.min = least + (most-least)/2
		places, err := smaller.now()
		if err != nil {
			return nil, err
		}
		if places == nil {
			most = smaller.min - 1
			continue
		}
		found, least = &Change{Kind: FewerMembers, Members: smaller.min + len(q.placed), request: q.requests, assigns: places}, smaller.min+1
	}
	return found, nil
}
