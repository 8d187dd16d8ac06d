package bound

import (
	"cmp"
	"slices"

	"github.com/tandem-gpu/tandem/pkg/vgpu"
)

// host is a node of a plan.
type host struct {
	t    *nodeType
	used amounts
	// slots and memory that are taken of each device, memory as a part of it.
	slots  []int
	memory []float64
}

// plan is what a solution becomes on whole nodes.
type plan struct {
	f *fill
	// left are the pods without a place, by kind.
	left  []int
	hosts []*host
	// filled are the nodes of each type that have a pattern already.
	filled []int
	value  float64
}

// round makes a plan of a solution: whole numbers of each pattern, then one of each as far
// as there are pods and nodes, then each other pod, the largest ones first, on the node that it leaves fullest.
func (f *fill) round(solution []used) *plan {
	p := &plan{f: f, left: slices.Clone(f.demand), filled: make([]int, len(f.types))}
	for i := range solution {
		for range int(solution[i].nodes + 1e-6) {
			p.put(&solution[i].pattern)
		}
	}
	slices.SortStableFunc(solution, func(a, b used) int { return cmp.Compare(fraction(b.nodes), fraction(a.nodes)) })
	for i := range solution {
		if fraction(solution[i].nodes) > 0 {
			p.put(&solution[i].pattern)
		}
	}
	for t := range f.types {
		for p.filled[t] < f.types[t].count {
			p.host(t)
		}
	}
	p.complete()
	return p
}

// fraction is what a number exceeds a whole one by, 0 where only rounding makes the difference.
func fraction(x float64) float64 { return max(0, x+1e-6-float64(int(x+1e-6))-2e-6) }

// host begins a further node of a type.
func (p *plan) host(t int) *host {
	n := &p.f.types[t]
	h := &host{t: n, slots: make([]int, n.devices), memory: make([]float64, n.devices)}
	p.hosts = append(p.hosts, h)
	p.filled[t]++
	return h
}

// put fills a node by a pattern, as far as there is a node and there are pods.
func (p *plan) put(pattern *pattern) {
	if p.filled[pattern.nodeType] == p.f.types[pattern.nodeType].count {
		return
	}
	h := p.host(pattern.nodeType)
	device := 0
	for _, group := range pattern.groups {
		for _, it := range group {
			if p.left[it.kind] > 0 {
				p.take(h, it, device)
			}
		}
		device += group[0].width
	}
}

// take gives an item so many devices from one on.
func (p *plan) take(h *host, it *item, device int) {
	h.used = h.used.plus(it.needs)
	for d := device; d < device+it.width; d++ {
		h.slots[d] += it.slots
		h.memory[d] += it.perDevice
	}
	p.left[it.kind]--
	p.value += it.value
}

// complete places further pods.
func (p *plan) complete() {
	type large struct {
		kind  int
		value float64
	}
	kinds := make([]large, len(p.left))
	for t := range p.f.types {
		for _, it := range p.f.types[t].items {
			kinds[it.kind] = large{it.kind, max(it.value, kinds[it.kind].value)}
		}
	}
	slices.SortStableFunc(kinds, func(a, b large) int { return cmp.Compare(b.value, a.value) })
	for _, k := range kinds {
		for p.left[k.kind] > 0 && p.placeOne(k.kind) {
		}
	}
}

// placeOne places a pod of a kind on the node and the device that it leaves fullest.
func (p *plan) placeOne(kind int) bool {
	var best *host
	var with *item
	at, least := 0, 0.
	for _, h := range p.hosts {
		i := slices.IndexFunc(h.t.items, func(it item) bool { return it.kind == kind })
		if i < 0 {
			continue
		}
		it := &h.t.items[i]
		device, left := h.first(it)
		if device >= 0 && (best == nil || left < least) {
			best, with, at, least = h, it, device, left
		}
	}
	if best == nil {
		return false
	}
	if with.width > 1 {
		best.gather()
	}
	p.take(best, with, at)
	return true
}

// first returns the device that the item leaves fullest and how much that leaves there, −1 where it does not fit.
func (h *host) first(it *item) (device int, left float64) {
	device = -1
	if !h.used.plus(it.needs).within() {
		return device, 0
	}
	free := 0
	for d := range h.slots {
		if h.slots[d]+it.slots > h.t.slots || h.memory[d]+it.perDevice > full {
			continue
		}
		free++
		l := float64(h.t.slots-h.slots[d]-it.slots) / float64(h.t.slots) * float64(vgpu.WholeGPU)
		if device < 0 || l < left {
			device, left = d, l
		}
	}
	if it.width > 1 {
		if free < it.width {
			return -1, 0
		}
		return 0, float64(free - it.width)
	}
	return device, left
}

// gather orders the devices by what is taken of them, so that the first ones are free.
func (h *host) gather() {
	order := make([]int, len(h.slots))
	for d := range order {
		order[d] = d
	}
	slices.SortStableFunc(order, func(a, b int) int { return cmp.Compare(h.slots[a], h.slots[b]) })
	slots, memory := slices.Clone(h.slots), slices.Clone(h.memory)
	for i, d := range order {
		h.slots[i], h.memory[i] = slots[d], memory[d]
	}
}
