package placement

import "github.com/tandem-gpu/tandem/pkg/vgpu"

// choice is a place for the only container of a request on one node.
type choice struct {
	share vgpu.Share
	// device is the only or the first device.
	device int
	// dearer is the rank of its cost, 0 for the cheapest.
	dearer int
	// rate of the policy, deviceRate of its device, links as by average.
	rate, deviceRate, links int64
}

// beats orders choices: by cost, the policy's rate of the node, its rate of the device, links, and then by fewer
// devices. Among equal choices the first device by index wins, since choices are compared in that order.
func (c *choice) beats(o *choice) bool {
	switch {
	case c.dearer != o.dearer:
		return c.dearer < o.dearer
	case c.rate != o.rate:
		return c.rate > o.rate
	case c.deviceRate != o.deviceRate:
		return c.deviceRate > o.deviceRate
	case c.links != o.links:
		return c.links > o.links
	}
	return c.share.Devices < o.share.Devices
}

// chooseOne returns the best place for a request of one container, and whether there is one.
func chooseOne(n *vgpu.Node, r *vgpu.Request, p *Policy) (best choice, found bool) {
	var v view
	v.load(n, r, p)
	devices := n.Devices()
	var next choice
	var use vgpu.Use
	legal, first := false, 0
	for i := range devices {
		if i == 0 || n.Shape(i) != n.Shape(i-1) {
			next = choice{dearer: r.CostRank(devices[i].Model)}
			next.share, legal = r.ShareOn(0, &devices[i])
			use, first = next.share.Use(), i
		}
		if !legal || !use.Within(v.free[i]) || !p.isRandom && next.share.Devices == 1 && v.seenBefore(first, i) {
			continue
		}
		next.device, next.links = i, bestQuality
		if next.share.Devices == 1 {
			if !p.neighbours.keepsPromises(n, i, r, next.share.ComputeLimit) {
				continue
			}
			next.rate, next.deviceRate = v.rateWith(p, i, use, next.share.ComputeLimit), p.deviceRate(&v, i, use)
		} else if !v.rateSet(p, &next) {
			continue
		}
		if !found || next.beats(&best) {
			best, found = next, true
		}
	}
	return best, found
}

// deviceRate is the policy's rate of device i after the use.
func (p *Policy) deviceRate(v *view, i int, use vgpu.Use) int64 {
	switch {
	case p.isRandom:
		return p.randomRank(v.r, string(v.n.Devices()[i].ID))
	case p.device == nil:
		return 0
	}
	return p.device(&v.n.Devices()[i], v.left[i].Minus(use))
}

// rateSet rates the best set of whole devices of the shape of the choice's first device, and its links. Each shape
// needs that once, at the first free device of it; the result says whether there are enough devices.
func (v *view) rateSet(p *Policy, c *choice) bool {
	var places, set [maxOnStack]int
	candidates, out := freeSet(v.n, v.r, c, places[:0]), set[:]
	m := c.share.Devices
	if len(candidates) < m || candidates[0] != c.device {
		return false
	}
	if m > maxOnStack {
		out = make([]int, m)
	}
	out = out[:m]
	sum, _ := BestSet(v.n, candidates, m, out)
	c.links = average(sum, m)
	for _, i := range out {
		v.left[i] = v.left[i].Minus(c.share.Use())
	}
	c.rate = p.weigh(p.rate(v), p.costOf(v, c.device, m, c.share.Use(), c.share.ComputeLimit))
	for _, i := range out {
		v.left[i] = v.free[i]
	}
	return true
}

// freeSet appends the devices of the shape of the choice's first device that have its share free, by index.
func freeSet(n *vgpu.Node, r *vgpu.Request, c *choice, list []int) []int {
	for i := range n.Devices() {
		if n.Shape(i) == n.Shape(c.device) && c.share.Use().Within(n.FreeFor(i, r)) {
			list = append(list, i)
		}
	}
	return list
}

// chosen returns the positions of the devices of a choice, and whether the search compared all sets.
func (c *choice) chosen(n *vgpu.Node, r *vgpu.Request) (at []int, all bool) {
	if c.share.Devices == 1 {
		return []int{c.device}, true
	}
	at = make([]int, c.share.Devices)
	_, all = BestSet(n, freeSet(n, r, c, nil), c.share.Devices, at)
	return at, all
}
